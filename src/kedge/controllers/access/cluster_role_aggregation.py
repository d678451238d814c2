"""Aggregated cluster roles get the rules of the cluster roles that their selectors match."""

import asyncio
from collections.abc import Iterable, Iterator

import msgspec

from kedge.api import label_selector
from kedge.api.model import LARGEST_OBJECT
from kedge.api.rbac_v1.cluster_role import RESOURCE, ClusterRole
from kedge.api.rbac_v1.role import PolicyRule
from kedge.client.client import APPLY_PATCH, Client
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import objects
from kedge.controllers.loop import ControllerLoop
from kedge.machinery.clock import Clock
from kedge.machinery.errors import too_large

MANAGER = "clusterrole-aggregation-controller"


class ClusterRoleAggregationController:
    """Recomputes the aggregated rules whenever a cluster role changes."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._roles: Cache[ClusterRole] = Cache()
        self._informer = Informer(client, objects(RESOURCE), self._roles, clock)
        self._loop = ControllerLoop("cluster-role-aggregation", self.reconcile, clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            self._roles.listen(self._changed)
            self._add_all()
            tasks.create_task(self._loop.run())

    def _changed(self, key: Key) -> None:
        self._add_all()

    def _add_all(self) -> None:
        # Which sum a role is part of may have changed with its labels: there are few, so all.
        for role in self._roles:
            if role.aggregationRule is not None:
                self._loop.add(role.metadata.name)

    async def reconcile(self, name: str) -> None:
        role = self._roles.get(name)
        if role is None or role.aggregationRule is None:
            return
        rules = await self._sum(role)
        if rules == [msgspec.json.encode(rule) for rule in role.rules]:
            return
        body = {
            "apiVersion": RESOURCE.api_version,
            "kind": RESOURCE.kind,
            "metadata": {"name": name},
            "rules": [*map(msgspec.Raw, rules)],
        }
        await self._client.patch(
            RESOURCE, name, body, form=APPLY_PATCH, field_manager=MANAGER, force=True
        )

    async def _sum(self, role: ClusterRole) -> list[bytes]:
        """Return the rules of an aggregated role as JSON, each once."""
        found: dict[bytes, None] = {}
        size = 0
        for rule in gathered(role, self._roles):
            await self._clock.give_way()
            encoded = b"" if rule is None else msgspec.json.encode(rule)
            if encoded and encoded not in found:
                found[encoded] = None
                size += len(encoded)
            if size > LARGEST_OBJECT:
                # Many roles of the allowed size have more rules together than can be stored.
                raise too_large(LARGEST_OBJECT)
        return list(found)


def gathered(role: ClusterRole, roles: Iterable[ClusterRole]) -> Iterator[PolicyRule | None]:
    """Yield the rules of all roles that an aggregated role selects, by the roles' names, and None
    for each role: there may be many, and the caller gives way in each round."""
    assert role.aggregationRule is not None
    others = [other for other in roles if other.metadata.name != role.metadata.name]
    others.sort(key=lambda other: other.metadata.name)
    for selector in map(label_selector.compiled, role.aggregationRule.clusterRoleSelectors):
        for other in others:
            yield None
            if selector.matches(other.metadata.labels):
                yield from other.rules
