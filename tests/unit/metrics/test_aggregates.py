"""The usage of groups of pods, as nodes report and the cluster changes."""

from collections.abc import Iterable
from typing import Any

import pytest

from kedge.apiserver.metrics.groups import MOST_SERVICES
from kedge.metrics.aggregates import AT_ONCE, KEPT_SECONDS, REFRESH_SECONDS
from kedge.testing.local_server import TABLE, LocalServer
from kedge.testing.reporting_nodes import ReportingNodes

ROOT = "/apis/metrics/v1alpha1/namespaces/default"


async def workload(nodes: ReportingNodes, *names: str, node: str = "n1") -> None:
    """Pods of a Deployment, through its ReplicaSet."""
    server = nodes.server
    base = "/apis/apps/v1/namespaces/default"
    spec = {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "host"}]},
        },
    }
    metadata = {"name": "web", "labels": {"team": "a"}}
    made = await server.post(f"{base}/deployments", {"metadata": metadata, "spec": spec})
    owned = {"name": "web-1", "ownerReferences": [owner(made, "Deployment")]}
    replicas = await server.post(f"{base}/replicasets", {"metadata": owned, "spec": spec})
    for name in names:
        await pod(nodes, name, owner(replicas, "ReplicaSet"), node)


def owner(made: Any, kind: str) -> dict[str, Any]:
    meta = made["metadata"]
    identity = {"name": meta["name"], "uid": meta["uid"], "controller": True}
    return {"apiVersion": "apps/v1", "kind": kind, **identity}


async def pod(nodes: ReportingNodes, name: str, owned_by: dict[str, Any], node: str) -> None:
    meta = {"name": name, "labels": {"app": "web"}, "ownerReferences": [owned_by]}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "host"}]}
    made = await nodes.server.post(
        "/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec}
    )
    nodes.uids[f"default/{name}"] = made["metadata"]["uid"]


def names(found: Any) -> Iterable[str]:
    return [each["metadata"]["name"] for each in found["items"]]


async def test_the_pods_of_a_deployment_are_added_up_across_nodes(
    server: LocalServer, nodes: ReportingNodes
) -> None:
    await nodes.node("n1")
    await nodes.node("n2")
    await workload(nodes, "web-a")
    owned = (await server.get("/apis/apps/v1/namespaces/default/replicasets/web-1"), "ReplicaSet")
    await pod(nodes, "web-b", owner(*owned), "n2")
    await nodes.report("n1", "web-a", cpu=0.25)
    await nodes.report("n2", "web-b", cpu=0.5)
    found = await server.get(f"{ROOT}/deployments/web")
    assert found["kind"] == "Deployment"
    assert found["metadata"]["labels"] == {"team": "a"}
    assert found["pods"] == 2
    minute = found["total"]["1m"]
    assert minute["mean"] == {"cpu": "750m", "memory": "128Mi"}
    assert minute["max"] == {"cpu": "1500m", "memory": "256Mi"}
    assert found["lowerBounds"]["1m"]["max"] == {"cpu": "1", "memory": "128Mi"}
    assert found["distribution"]["1m"]["min"] == {"cpu": "250m", "memory": "64Mi"}
    assert found["distribution"]["1m"]["max"] == {"cpu": "500m", "memory": "64Mi"}
    assert (await server.get(f"{ROOT}/replicasets/web-1"))["total"] == found["total"]


@pytest.mark.parametrize(
    ("plural", "name"),
    [("namespaceusages", "default"), ("qosclasses", "BestEffort"), ("services", "web")],
)
async def test_a_pod_counts_in_its_namespace_class_and_services(
    server: LocalServer, nodes: ReportingNodes, plural: str, name: str
) -> None:
    await nodes.node("n1")
    await nodes.pod("one", "n1", app="web")
    service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [PORT]}}
    await server.post("/api/v1/namespaces/default/services", service)
    await nodes.report("n1", "one")
    found = await server.get(f"{ROOT}/{plural}/{name}")
    assert found["pods"] == 1
    assert found["total"]["10s"]["mean"]["cpu"] == "250m"
    assert names(await server.get(f"/apis/metrics/v1alpha1/{plural}")) == [name]


PORT = {"port": 80}


async def test_a_group_without_pods_is_not_found(
    server: LocalServer, nodes: ReportingNodes
) -> None:
    await nodes.node("n1")
    await workload(nodes, "web-a")
    missing = await server.call("GET", f"{ROOT}/deployments/web")
    assert (missing.status, missing.message) == (404, 'deployments.metrics "web" not found')
    await nodes.report("n1", "web-a")
    assert names(await server.get(f"{ROOT}/deployments")) == ["web"]
    await server.delete("/api/v1/namespaces/default/pods/web-a?gracePeriodSeconds=0")
    await server.settle()
    assert names(await server.get(f"{ROOT}/deployments")) == []


async def test_groups_follow_the_selector_of_a_service_and_the_labels_of_a_pod(
    server: LocalServer, nodes: ReportingNodes
) -> None:
    await nodes.node("n1")
    await nodes.pod("one", "n1", app="web")
    await nodes.report("n1", "one")
    assert names(await server.get(f"{ROOT}/services")) == []
    service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [PORT]}}
    await server.post("/api/v1/namespaces/default/services", service)
    assert names(await server.get(f"{ROOT}/services")) == ["web"]
    patch = {"metadata": {"labels": {"app": "other"}}}
    await server.merge("/api/v1/namespaces/default/pods/one", patch)
    assert names(await server.get(f"{ROOT}/services")) == []


async def test_aggregates_that_are_not_read_are_forgotten(
    server: LocalServer, nodes: ReportingNodes
) -> None:
    await nodes.node("n1")
    await nodes.pod("one", "n1")
    await nodes.report("n1", "one")
    before = await server.get(f"{ROOT}/namespaceusages")
    aggregates = server.app.api.metrics.aggregates
    await server.clock.advance(KEPT_SECONDS + 1)
    aggregates.tick()
    await nodes.report("n1", "one")
    after = await server.get(f"{ROOT}/namespaceusages")
    assert names(after) == ["default"]
    assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


async def test_a_watch_is_told_when_pods_report_come_and_go(
    server: LocalServer, nodes: ReportingNodes
) -> None:
    await nodes.node("n1")
    await workload(nodes, "web-a", "web-b")
    await nodes.report("n1", "web-a")
    watch = await server.watch(f"{ROOT}/deployments?watch=true")
    await server.clock.advance(10)
    await nodes.report("n1", "web-a", "web-b")
    aggregates = server.app.api.metrics.aggregates
    aggregates.tick()
    for name in ("web-a", "web-b"):
        await server.delete(f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")
    await server.settle()
    counted = [(each["type"], each["object"]["pods"]) for each in await watch.events()]
    assert counted[:2] == [("ADDED", 1), ("MODIFIED", 2)]
    aggregates.tick()
    await server.settle()
    events = [each["type"] for each in await watch.events()]
    assert events[-1] == "DELETED"


async def test_a_watch_of_aggregates_makes_nodes_report_each_tick(
    server: LocalServer, nodes: ReportingNodes
) -> None:
    await nodes.node("n1")
    assert not server.app.api.metrics.aggregates.hurries_nodes
    await server.watch(f"{ROOT}/deployments?watch=true&hurryNodes=false")
    assert not server.app.api.metrics.aggregates.hurries_nodes
    await server.watch(f"{ROOT}/deployments?watch=true")
    assert server.app.api.metrics.aggregates.hurries_nodes


async def test_a_workload_that_is_made_again_has_only_its_new_pods(
    server: LocalServer, nodes: ReportingNodes
) -> None:
    await nodes.node("n1")
    await workload(nodes, "web-a")
    await nodes.report("n1", "web-a")
    watch = await server.watch(f"{ROOT}/deployments?watch=true")
    old = (await server.get(f"{ROOT}/deployments/web"))["metadata"]["uid"]
    for each in ("deployments/web", "replicasets/web-1"):
        path = f"/apis/apps/v1/namespaces/default/{each}"
        await server.delete(path, {"propagationPolicy": "Orphan"})
        await server.merge(path, {"metadata": {"finalizers": []}})
    await workload(nodes, "web-b")
    await server.clock.advance(10)
    await nodes.report("n1", "web-a", "web-b")
    server.app.api.metrics.aggregates.tick()
    found = await server.get(f"{ROOT}/deployments/web")
    assert (found["pods"], found["metadata"]["uid"] != old) == (1, True)
    await server.delete("/api/v1/namespaces/default/pods/web-a?gracePeriodSeconds=0")
    await server.clock.advance(10)
    await nodes.report("n1", "web-b")
    server.app.api.metrics.aggregates.tick()
    assert names(await server.get(f"{ROOT}/deployments")) == ["web"]
    await server.settle()
    seen = [each["type"] for each in await watch.events()]
    assert seen[:1] + seen[-3:] == ["ADDED", "DELETED", "ADDED", "MODIFIED"]


async def test_an_error_in_a_tick_is_logged_and_the_next_one_comes(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    aggregates = server.app.api.metrics.aggregates
    ticks = []

    def tick() -> None:
        ticks.append(1)
        raise KeyError("default/web")

    monkeypatch.setattr(aggregates, "tick", tick)
    running = server.start(aggregates.run())
    for _ in range(2):
        await server.clock.advance(REFRESH_SECONDS)
    assert not running.done()
    running.cancel()
    assert len(ticks) >= 2
    assert "could not bring aggregates of usage up to date" in caplog.text


async def test_lists_of_aggregates_come_in_small_pieces_and_in_every_form(
    server: LocalServer, nodes: ReportingNodes
) -> None:
    await nodes.node("n1")
    for number in range(AT_ONCE + 1):
        await server.post("/api/v1/namespaces", {"metadata": {"name": f"space-{number}"}})
        await nodes.pod(f"p{number}", "n1", f"space-{number}")
    await nodes.report("n1", *(f"space-{number}/p{number}" for number in range(AT_ONCE + 1)))
    found = server.app.api.metrics.aggregates.current("namespaceusages")
    assert found.at_once == AT_ONCE
    path = "/apis/metrics/v1alpha1/namespaceusages"
    listed = await server.get(path)
    assert len(listed["items"]) == AT_ONCE + 1
    assert not found.lists
    assert len((await server.get(path, accept=TABLE))["rows"]) == AT_ONCE + 1


async def test_a_pod_counts_in_a_limited_number_of_services(
    server: LocalServer, nodes: ReportingNodes
) -> None:
    await nodes.node("n1")
    await nodes.pod("one", "n1", app="web")
    for number in range(MOST_SERVICES + 1):
        spec = {"selector": {"app": "web"}, "ports": [PORT], "clusterIP": "None"}
        service = {"metadata": {"name": f"web-{number}"}, "spec": spec}
        await server.post("/api/v1/namespaces/default/services", service)
    await nodes.report("n1", "one")
    assert len((await server.get(f"{ROOT}/services"))["items"]) == MOST_SERVICES
