"""Aggregated cluster roles get the rules of the cluster roles that their selectors match."""

import asyncio
from collections.abc import Iterable

import msgspec

from kedge.api import label_selector
from kedge.api.rbac_v1.cluster_role import RESOURCE, ClusterRole
from kedge.api.rbac_v1.role import PolicyRule
from kedge.client.client import APPLY_PATCH, Client
from kedge.client.informer import Cache, Informer, Key
from kedge.client.view import objects
from kedge.controllers.loop import ControllerLoop
from kedge.machinery.clock import Clock

MANAGER = "clusterrole-aggregation-controller"


class ClusterRoleAggregationController:
    """Recomputes the aggregated rules whenever a cluster role changes."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
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
        rules = gathered(role, self._roles)
        if rules == list(role.rules):
            return
        body = {
            "apiVersion": RESOURCE.api_version,
            "kind": RESOURCE.kind,
            "metadata": {"name": name},
            "rules": msgspec.to_builtins(rules),
        }
        await self._client.patch(
            RESOURCE, name, body, form=APPLY_PATCH, field_manager=MANAGER, force=True
        )


def gathered(role: ClusterRole, roles: Iterable[ClusterRole]) -> list[PolicyRule]:
    """The rules of all roles that a sum selects, each once, by the roles' names."""
    assert role.aggregationRule is not None
    others = [other for other in roles if other.metadata.name != role.metadata.name]
    others.sort(key=lambda other: other.metadata.name)
    rules: list[PolicyRule] = []
    for selector in map(label_selector.compiled, role.aggregationRule.clusterRoleSelectors):
        selected = [other for other in others if selector.matches(other.metadata.labels)]
        for rule in (rule for other in selected for rule in other.rules):
            if rule not in rules:
                rules.append(rule)
    return rules
