from collections.abc import Awaitable
from typing import Any

from kedge.api.model import LabelSelector, ObjectMeta
from kedge.api.rbac_v1.cluster_role import AggregationRule, ClusterRole
from kedge.api.rbac_v1.role import PolicyRule
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.controllers.access.cluster_role_aggregation import (
    ClusterRoleAggregationController,
    gathered,
)
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


def test_rules_are_gathered_by_name_each_once() -> None:
    role = total(LabelSelector(matchLabels={"a": "1"}), LabelSelector(matchLabels={"b": "1"}))
    roles = [
        part("z", {"a": "1"}, "pods", "nodes"),
        part("c", {"b": "1"}, "secrets"),
        part("m", {"a": "1", "b": "1"}, "services", "pods"),
        part("none", {}, "events"),
        role,
    ]
    assert gathered(role, roles) == [
        rule(each) for each in ("services", "pods", "nodes", "secrets")
    ]


def test_an_empty_selector_gathers_all() -> None:
    role = total(LabelSelector())
    assert gathered(role, [part("a", {}, "pods"), role]) == [rule("pods")]


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
        await server.merge(f"{ROLES}/part", {"rules": [one | {"resources": ["nodes"]}]})
        assert await summed() == ["nodes"]
        await server.merge(f"{ROLES}/sum", {"rules": [one]})
        assert await summed() == ["nodes"]
        await server.merge(f"{ROLES}/part", {"metadata": {"labels": {"part": None}}})
        assert await summed() == []
