"""UnenforcedPolicies: warns the author of a NetworkPolicy if nodes let all packets pass."""

from collections.abc import Iterator
from typing import Final

from kedge.api.builtin.policy_limits import ENFORCED, ENFORCEMENT_ANNOTATION
from kedge.api.builtin.resources import NETWORKING
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.watchcache import Item, ResourceCache

_NAMED: Final = 3
"""Nodes that a warning names."""


class UnenforcedPolicies:
    """A member of the admission chain that is always on, and only warns."""

    name = "UnenforcedPolicies"

    def __init__(self, nodes: ResourceCache) -> None:
        self._nodes = nodes

    async def mutate(self, attempt: Attempt) -> Object | None:
        return attempt.object

    async def validate(self, attempt: Attempt) -> None:
        request = attempt.request
        resource = request.resource
        is_policy = (resource.group, resource.plural) == (NETWORKING, "networkpolicies")
        if is_policy and attempt.operation in ("CREATE", "UPDATE"):
            request.warnings += self._warnings()

    def _warnings(self) -> Iterator[str]:
        items = list(self._nodes.values())
        lacking = [name for each in items for name in _if_lax(each)]
        if not lacking:
            return
        names = ", ".join(lacking[:_NAMED]) + (", ..." if len(lacking) > _NAMED else "")
        yield (
            f"{len(lacking)} of {len(items)} nodes do not enforce NetworkPolicies, so that no"
            f" packet of their pods is dropped: {names}"
        )


def _if_lax(node: Item) -> Iterator[str]:
    """Yield the name of a node that says that it does not enforce policies; others do not tell."""
    meta = node.document()["metadata"]
    if (meta.get("annotations") or {}).get(ENFORCEMENT_ANNOTATION, ENFORCED) != ENFORCED:
        yield str(meta["name"])
