"""Percentiles on request: the server asks the nodes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.apiserver.metrics.percentiles import _paths
from kedge.metrics.frame import Frame
from kedge.metrics.usage_object import UsageObject
from kedge.testing.agents import FakeAgent
from kedge.testing.local_server import LocalServer
from kedge.testing.reporting_nodes import ReportingNodes
from kedge.web.message import Response, json_response, text_response

ROOT = "/apis/metrics/v1alpha1"
POD = f"{ROOT}/namespaces/default/pods/web"
WINDOW = {"endtime": "2030-01-01T00:00:10Z", "50th": {"cpu": "7m"}}


@pytest.fixture
async def agent(server: LocalServer, nodes: ReportingNodes) -> AsyncIterator[FakeAgent]:
    agent = FakeAgent()
    await agent.listen()
    await agent.register(server)
    made = await server.get("/api/v1/nodes/n")
    nodes.uids["n"] = made["metadata"]["uid"]
    await nodes.pod("web", "n", app="web")
    await nodes.report("n", "web")
    yield agent
    await agent.close()


def answer_of(nodes: ReportingNodes) -> Response:
    """The answer of a node about its pod."""
    meta = {"name": "web", "namespace": "default", "uid": nodes.uids["default/web"]}
    container = {"metadata": {"name": "main"}, "metrics": {"1m": WINDOW}}
    return json_response({"kind": "Pod", "metadata": meta, "containers": [container]})


async def test_a_pod_has_the_percentiles_that_its_node_computes(
    server: LocalServer, nodes: ReportingNodes, agent: FakeAgent
) -> None:
    agent.answer = answer_of(nodes)
    found = await server.get(f"{POD}?percentiles=50")
    assert found["containers"][0]["metrics"]["1m"]["50th"] == {"cpu": "7m"}
    assert found["metadata"]["labels"] == {"app": "web"}
    listed = await server.get(f"{ROOT}/pods?percentiles=50,99.9")
    assert listed["items"][0]["containers"][0]["metrics"]["1m"] == WINDOW
    asked = [f"{each.path}?{each.query_string}" for each in agent.asked]
    assert asked == [f"{POD}?percentiles=50", f"{POD}?percentiles=50,99.9"]


async def test_the_course_of_a_pod_comes_from_its_node(
    server: LocalServer, nodes: ReportingNodes, agent: FakeAgent
) -> None:
    meta = {"name": "web", "namespace": "default", "uid": nodes.uids["default/web"]}
    course = {"1h": {"step": "10s"}}
    agent.answer = json_response({"metadata": meta, "containers": [], "history": course})
    found = await server.get(f"{POD}?history=true&percentiles=50")
    assert found["history"] == course
    (asked,) = agent.asked
    assert f"{asked.path}?{asked.query_string}" == f"{POD}?percentiles=50&history=true"
    assert "history" not in await server.get(f"{POD}?history=false")


async def test_a_few_pods_of_a_node_are_asked_for_by_name(
    server: LocalServer, nodes: ReportingNodes, agent: FakeAgent
) -> None:
    await nodes.pod("other", "n")
    await nodes.pod("third", "n", app="web")
    await server.clock.advance(10)
    await nodes.report("n", "web", "other", "third")
    agent.answer = answer_of(nodes)
    found = await server.get(f"{ROOT}/pods?percentiles=50&labelSelector=app%3Dweb")
    assert len(found["items"]) == 2
    places = f"{ROOT}/namespaces/default/pods"
    assert sorted(each.path for each in agent.asked) == [f"{places}/third", f"{places}/web"]


@pytest.mark.parametrize(
    ("namespaces", "path"), [(["a"], f"{ROOT}/namespaces/a/pods"), (["a", "b"], f"{ROOT}/pods")]
)
def test_many_pods_are_asked_for_together(namespaces: list[str], path: str) -> None:
    objects = [
        UsageObject("n", namespaces[i % len(namespaces)], f"p{i}", f"u{i}", {}) for i in range(9)
    ]
    assert _paths("pods", objects) == [path]


async def test_a_node_that_does_not_answer_is_named_in_a_warning(
    server: LocalServer, agent: FakeAgent
) -> None:
    agent.answer = text_response("no", 500)
    found = await server.call("GET", f"{POD}?percentiles=50")
    assert found.status == 200
    assert "95th" in found.document["containers"][0]["metrics"]["1m"]
    assert found.warnings == ['299 - "node n has sent no percentiles: it answered 500"']


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (f"{ROOT}/pods?percentiles=0", "must be a number above 0"),
        (f"{ROOT}/pods?percentiles=", "must be a number above 0"),
        (f"{ROOT}/pods?watch=true&percentiles=50", "cannot be watched"),
        (f"{ROOT}/pods?history=true", "applies to one object"),
        (f"{ROOT}/namespaces/a/deployments/b?history=true", "apply to pods and nodes"),
        (f"{ROOT}/deployments?percentiles=50", "apply to pods and nodes"),
        ("/apis/metrics.k8s.io/v1beta1/pods?percentiles=50", "apply to pods and nodes"),
    ],
)
async def test_nonsense_is_refused(server: LocalServer, path: str, why: str) -> None:
    answer = await server.call("GET", path)
    assert answer.status == 400
    assert why in answer.message


def test_frames_do_not_grow() -> None:
    assert "percentiles" not in Frame._fields


@pytest.mark.parametrize(
    "answer",
    [
        {"items": [{"metadata": {}}]},
        {"items": ["web"]},
        {"items": 1},
        {"metadata": {"uid": {}}},
        {"metadata": {"uid": "u"}, "containers": "main"},
    ],
)
async def test_a_malformed_answer_counts_as_none(
    server: LocalServer, agent: FakeAgent, answer: Any
) -> None:
    agent.answer = json_response(answer)
    found = await server.call("GET", f"{POD}?percentiles=50")
    assert found.status == 200
    assert "95th" in found.document["containers"][0]["metrics"]["1m"]
    assert found.warnings[0].startswith('299 - "node n has sent no percentiles: ')


async def test_a_node_answers_for_its_own_objects_and_only_their_usage(
    server: LocalServer, nodes: ReportingNodes, agent: FakeAgent
) -> None:
    await nodes.node("other")
    await nodes.pod("away", "other")
    await nodes.report("other", "away")
    items = [
        {"metadata": {"uid": nodes.uids[f"default/{each}"]}, "containers": [], "status": {}}
        for each in ("web", "away")
    ]
    agent.answer = json_response({"items": items})
    listed = (await server.get(f"{ROOT}/pods?percentiles=50"))["items"]
    found = {each["metadata"]["name"]: each for each in listed}
    assert found["web"]["containers"] == []
    assert "status" not in found["web"]
    assert len(found["away"]["containers"]) == 1
