"""The metrics API: goals, rationale and alternatives of the proposal, as far as the API server
fulfils them."""

from typing import Any

import pytest

from kedge.metrics.detail_windows import SIZE, DetailWindows
from kedge.metrics.frame_codec import encode
from kedge.metrics.windows import DETAILS
from kedge.testing.local_server import LocalServer

ROOT = "/apis/metrics/v1alpha1"
METRICS = f"{ROOT}/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"
EQUAL = {"cpu": "1", "memory": "64Mi"}
CLASSES: dict[str, Any] = {
    "BestEffort": {},
    "Burstable": {"requests": {"cpu": "1"}},
    "Guaranteed": {"requests": EQUAL, "limits": EQUAL},
}


@pytest.mark.parametrize("quality", CLASSES)
async def test_qos_semantics_do_not_change_across_deployments(
    server: LocalServer, strict: LocalServer, nodes: Any, quality: str
) -> None:
    """A class depends on the pod alone: neither on the settings of the server nor on usage."""
    container = {"name": "main", "image": "host", "resources": CLASSES[quality]}
    document = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [container]}}
    for each in (server, strict):
        assert (await each.post(PODS, document))["status"]["qosClass"] == quality
    await nodes.node("n1")
    nodes.uids["default/p"] = (await server.get(f"{PODS}/p"))["metadata"]["uid"]
    await nodes.report("n1", "p", cpu=64.0)
    assert (await server.get(f"{PODS}/p"))["status"]["qosClass"] == quality
    usage = await server.get(f"{METRICS}/qosclasses/{quality}")
    assert usage["total"]["1m"]["mean"]["cpu"] == "64"


async def test_cpu_and_memory_come_first_and_disk_was_added(
    server: LocalServer, nodes: Any
) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1")
    await nodes.report("n1", "web")
    mean = (await server.get(f"{METRICS}/pods/web"))["containers"][0]["metrics"]["1m"]["mean"]
    assert list(mean) == ["cpu", "memory"]
    await server.clock.advance(10)
    frame = nodes.frame("n1", {"default/web": ["main"]})
    windows = DetailWindows(memoryview(bytearray(SIZE)))
    windows.put(frame.end_tick, [100.0 for _ in DETAILS])
    await nodes.send("n1", encode(frame._replace(details=[windows.row()] * 4)))
    mean = (await server.get(f"{METRICS}/pods/web"))["containers"][0]["metrics"]["1m"]["mean"]
    assert list(mean)[:2] == ["cpu", "memory"]
    assert {"disk-read", "disk-write"} <= mean.keys()


async def test_reports_do_not_change_the_pod_resource(server: LocalServer, nodes: Any) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1")
    watching = await server.watch(f"{PODS}?watch=true")
    assert await watching.seen() == [("ADDED", "web")]
    for _ in range(3):
        await nodes.report("n1", "web")
        await server.clock.advance(10)
    assert await watching.seen() == [("ADDED", "web")]


async def test_controllers_namespaces_and_services_are_aggregated(
    server: LocalServer, nodes: Any
) -> None:
    labels = {"app": "web"}
    core = "/api/v1/namespaces/default"
    containers = {"containers": [{"name": "main", "image": "host"}]}
    template = {"metadata": {"labels": labels}, "spec": containers}
    body = {"metadata": {"name": "web"}, "spec": {"selector": labels, "template": template}}
    made = await server.post(f"{core}/replicationcontrollers", body)
    ports = {"ports": [{"port": 80}], "selector": labels}
    await server.post(f"{core}/services", {"metadata": {"name": "web"}, "spec": ports})
    owner = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "name": "web",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    await nodes.node("n1")
    for name in ("web-1", "web-2"):
        meta = {"name": name, "labels": labels, "ownerReferences": [owner]}
        spec = {**containers, "nodeName": "n1"}
        pod = await server.post(PODS, {"metadata": meta, "spec": spec})
        nodes.uids[f"default/{name}"] = pod["metadata"]["uid"]
    await nodes.report("n1", "web-1", "web-2")
    names = ("replicationcontrollers/web", "namespaceusages/default", "services/web")
    for name in names:
        usage = await server.get(f"{METRICS}/{name}")
        assert (usage["pods"], usage["total"]["1m"]["mean"]["cpu"]) == (2, "500m"), name


async def test_watching_clients_may_keep_more_than_the_server_holds(
    server: LocalServer, nodes: Any
) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1")
    watching = await server.watch(f"{METRICS}/pods?watch=true")
    for cpu in (0.25, 0.5, 0.75):
        await nodes.report("n1", "web", cpu=cpu)
        await watching.seen()
        await server.clock.advance(10)
    kept = [
        event["object"]["containers"][0]["metrics"]["10s"]["mean"]["cpu"]
        for event in await watching.events()
    ]
    assert kept == ["250m", "500m", "750m"]
    (held,) = (await server.get(f"{METRICS}/pods"))["items"]
    assert held["containers"][0]["metrics"]["10s"]["mean"]["cpu"] == "750m"


@pytest.mark.parametrize(
    "selector", ["labelSelector=app%3Dnone", "fieldSelector=metadata.name%3Dx"]
)
async def test_selectors_restrict_list_endpoints_only(
    server: LocalServer, nodes: Any, selector: str
) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1")
    await nodes.report("n1", "web")
    for plural, single in ((f"{ROOT}/nodes", "n1"), (f"{METRICS}/pods", "web")):
        assert (await server.get(f"{plural}?{selector}"))["items"] == []
        assert (await server.get(f"{plural}/{single}?{selector}"))["metadata"]["name"] == single
