"""Pods that nobody else removes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.controllers.nodes import pod_garbage_collector
from kedge.controllers.nodes.pod_garbage_collector import PodGarbageCollector
from kedge.testing.controllers import ControllerHarness, workshop

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def place() -> AsyncIterator[ControllerHarness]:
    async with workshop(PodGarbageCollector) as made:
        yield made


async def make(place: ControllerHarness, name: str, *, node: str = "", **meta: Any) -> None:
    spec = {"containers": [{"name": "main", "image": "host"}], "nodeName": node}
    await place.create(PODS, {"metadata": {"name": name, **meta}, "spec": spec})


async def names(place: ControllerHarness) -> list[str]:
    return [pod["metadata"]["name"] for pod in await place.pods()]


async def test_pods_of_a_vanished_node_fail_and_go_after_a_while(place: ControllerHarness) -> None:
    await place.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await make(place, "bound", node="n1", finalizers=["example.com/look"])
    await make(place, "waiting")
    await place.pass_time(100)
    assert await names(place) == ["bound", "waiting"]
    await place.remove("/api/v1/nodes/n1")
    await place.pass_time(39)
    assert "deletionTimestamp" not in (await place.pods())[0]["metadata"]
    await place.pass_time(1.5)
    pod = (await place.pods())[0]
    assert "deletionTimestamp" in pod["metadata"]
    assert pod["status"]["phase"] == "Failed"
    (condition,) = [
        each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"
    ]
    assert condition["reason"] == "DeletionByPodGC"
    assert condition["message"] == "PodGC: node no longer exists"


async def test_node_that_comes_back_keeps_its_pods(place: ControllerHarness) -> None:
    await place.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await make(place, "bound", node="n1")
    await place.remove("/api/v1/nodes/n1")
    await place.pass_time(30)
    await place.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await place.pass_time(60)
    assert await names(place) == ["bound"]


async def test_pod_that_leaves_without_ever_having_had_a_node_fails(
    place: ControllerHarness,
) -> None:
    await make(place, "waiting", finalizers=["example.com/look"])
    await place.remove(f"{PODS}/waiting")
    (pod,) = await place.pods()
    assert pod["status"]["phase"] == "Failed"


async def test_leaving_pods_of_a_node_out_of_service_go(place: ControllerHarness) -> None:
    await place.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await make(place, "bound", node="n1")
    await place.remove(f"{PODS}/bound")
    assert await names(place) == ["bound"]
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    await place.change("/api/v1/nodes/n1", {"spec": {"taints": [taint]}})
    assert await names(place) == []


async def test_of_too_many_ended_pods_the_oldest_go(
    place: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_garbage_collector, "KEPT", 2)
    for name in ("a", "b", "c", "d"):
        await make(place, name)
        await place.pass_time(2)
    by_name = {pod["metadata"]["name"]: pod for pod in await place.pods()}
    await place.end_pod(by_name["b"])
    await place.end_pod(by_name["c"])
    assert await names(place) == ["a", "b", "c", "d"]
    await place.end_pod(by_name["d"], exit_code=1, reason="Evicted")
    assert await names(place) == ["a", "b", "c"]
    await place.end_pod(by_name["a"])
    assert await names(place) == ["b", "c"]
