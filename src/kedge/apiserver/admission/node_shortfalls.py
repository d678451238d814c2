"""NodeShortfalls: warns the author of an object that nodes of this cluster do not carry out."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kedge.api.builtin.policy_limits import ENFORCED, ENFORCEMENT_ANNOTATION
from kedge.api.builtin.resources import NETWORKING
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.limits.workloads import template_of
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.watchcache import ResourceCache

_NAMED: Final = 3
"""Nodes that a warning names."""


class NodeShortfalls(ValidatingPlugin):
    """A member of the admission chain that is always on, and only warns."""

    name = "NodeShortfalls"

    def __init__(self, nodes: ResourceCache) -> None:
        self._nodes = nodes

    async def validate(self, attempt: Attempt) -> None:
        request = attempt.request
        resource = request.resource
        if attempt.operation not in ("CREATE", "UPDATE") or request.subresource:
            return
        if (resource.group, resource.plural) == (NETWORKING, "networkpolicies"):
            request.warnings += policy_warnings([each.document() for each in self._nodes.values()])
        elif attempt.object is not None and (spec := _written_spec(attempt)) is not None:
            request.warnings += pod_warnings(spec, self._documents())

    def _documents(self) -> Iterator[dict[str, Any]]:
        return (each.document() for each in self._nodes.values())


def _written_spec(attempt: Attempt) -> PodSpec | None:
    """Return the pod spec that the author of an object wrote; a controller reads no warnings."""
    obj = attempt.object
    if obj is None or obj.metadata.ownerReferences:
        return None
    if isinstance(obj, Pod):
        return obj.spec if attempt.operation == "CREATE" else None
    template = template_of(obj)
    return None if template is None else template.spec.spec


def policy_warnings(nodes: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a warning if nodes say that they do not enforce policies; others do not tell."""
    lacking = [each["metadata"]["name"] for each in nodes if _is_lax(each["metadata"])]
    if not lacking:
        return
    names = ", ".join(lacking[:_NAMED]) + (", ..." if len(lacking) > _NAMED else "")
    yield (
        f"{len(lacking)} of {len(nodes)} nodes do not enforce NetworkPolicies, so that no"
        f" packet of their pods is dropped: {names}"
    )


def _is_lax(meta: dict[str, Any]) -> bool:
    told = (meta.get("annotations") or {}).get(ENFORCEMENT_ANNOTATION, ENFORCED)
    return bool(told != ENFORCED)


def pod_warnings(spec: PodSpec, nodes: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a warning for each part of a pod that no node can start. The nodes are looked at only
    if the pod has such a part, and up to the first one that can."""
    if spec.hostUsers is not False:
        return
    has_nodes = False
    for each in nodes:
        has_nodes = True
        if _has_user_namespaces(each):
            return
    if has_nodes:
        yield (
            "spec.hostUsers: no node supports user namespaces of pods, so the pod waits; its event"
            " FailedCreatePodSandBox gives the reason of the node"
        )


def _has_user_namespaces(node: dict[str, Any]) -> bool:
    """Return whether a node has user namespaces for pods; one that does not tell has them."""
    handlers: list[dict[str, Any]] = (node.get("status") or {}).get("runtimeHandlers") or [{}]
    return any((each.get("features") or {}).get("userNamespaces", True) for each in handlers)
