from collections.abc import Awaitable
from typing import Any

import pytest

from kedge.api.model import LabelSelector, ObjectMeta
from kedge.api.rbac_v1.cluster_role import AggregationRule, ClusterRole
from kedge.api.rbac_v1.role import PolicyRule
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.controllers.access.cluster_role_aggregation import (
    ClusterRoleAggregationController,
    gathered,
)
from kedge.machinery.errors import StatusError
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.web.message import HttpRequest, Response

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
SUM = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}


def rule(resource: str) -> PolicyRule:
    return PolicyRule(apiGroups=[""], resources=[resource], verbs=["get"])


def part(name: str, labels: dict[str, str], *resources: str) -> ClusterRole:
    meta = ObjectMeta(name=name, labels=labels)
    return ClusterRole(metadata=meta, rules=[rule(resource) for resource in resources])


def total(*selectors: LabelSelector) -> ClusterRole:
    rule_ = AggregationRule(clusterRoleSelectors=selectors)
    # Selected by itself: a sum does not add to itself what it was.
    meta = ObjectMeta(name="sum", labels={"a": "1"})
    return ClusterRole(metadata=meta, aggregationRule=rule_, rules=[rule("old")])


def test_rules_are_gathered_by_name() -> None:
    role = total(LabelSelector(matchLabels={"a": "1"}), LabelSelector(matchLabels={"b": "1"}))
    roles = [
        part("z", {"a": "1"}, "pods", "nodes"),
        part("c", {"b": "1"}, "secrets"),
        part("m", {"a": "1", "b": "1"}, "services", "pods"),
        part("none", {}, "events"),
        role,
    ]
    found = [each for each in gathered(role, roles) if each is not None]
    wanted = ("services", "pods", "pods", "nodes", "secrets", "services", "pods")
    assert found == [rule(each) for each in wanted]


def test_an_empty_selector_gathers_all() -> None:
    role = total(LabelSelector())
    assert [*gathered(role, [part("a", {}, "pods"), role])] == [None, rule("pods")]


def test_each_role_is_a_round_of_its_own() -> None:
    role = total(LabelSelector(matchLabels={"a": "1"}))
    assert [*gathered(role, [part(f"n{i}", {}, "pods") for i in range(5)])] == [None] * 5


def client_of(server: LocalServer) -> Client:
    def handle(call: Call) -> Response | Awaitable[Response]:
        headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
        http = HttpRequest(call.method, call.path, call.query, headers, call.body)
        return server.app.handle(http)

    return Client(LocalTransport(handle), user_agent="test")


async def test_a_sum_follows_its_parts() -> None:
    one: dict[str, Any] = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    labelled = {"metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": [one]}
    async with LocalServer.running() as server:
        controller = ClusterRoleAggregationController(client_of(server), server.clock)
        server.start(controller.run())

        async def summed() -> list[str]:
            await server.clock.advance(1)
            found: Any = await server.get(f"{ROLES}/sum")
            return [resource for each in found.get("rules", []) for resource in each["resources"]]

        await server.post(ROLES, {"metadata": {"name": "sum"}, "aggregationRule": SUM})
        assert await summed() == []
        await server.post(ROLES, labelled)
        assert await summed() == ["pods"]
        meta = {"name": "other", "labels": {"part": "yes"}}
        await server.post(ROLES, {"metadata": meta, "rules": [one]})
        assert await summed() == ["pods"], "each rule is in the sum once"
        await server.delete(f"{ROLES}/other")
        await server.merge(f"{ROLES}/part", {"rules": [one | {"resources": ["nodes"]}]})
        assert await summed() == ["nodes"]
        await server.merge(f"{ROLES}/sum", {"rules": [one]})
        assert await summed() == ["nodes"]
        await server.merge(f"{ROLES}/part", {"metadata": {"labels": {"part": None}}})
        assert await summed() == []


async def test_a_sum_that_is_too_large_for_an_object_is_not_sent() -> None:
    def handle(call: Call) -> Response:
        raise AssertionError(f"{call.method} {call.path}")

    controller = ClusterRoleAggregationController(Client(LocalTransport(handle)), FakeClock())
    for prefix in ("a", "b"):
        names = (f"{prefix}-{i}-{'x' * 200}" for i in range(4_000))
        controller._roles.put(part(prefix, {"a": "1"}, *names))
    controller._roles.put(total(LabelSelector(matchLabels={"a": "1"})))
    with pytest.raises(StatusError, match="limit is 1572864"):
        await controller.reconcile("sum")
