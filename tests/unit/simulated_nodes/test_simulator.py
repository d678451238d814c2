"""Simulated nodes against a server in this process: registration, pods, silence, usage."""

import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.api.core_v1.node_types import SIMULATED as NODE
from kedge.api.core_v1.node_types import SIMULATED_VALUE as NODE_VALUE
from kedge.api.core_v1.pod.pod import Pod
from kedge.apiserver import api
from kedge.machinery.quantity import Quantity
from kedge.metrics.windows import TICK_SECONDS
from kedge.simulated_nodes import pod_life, simulator
from kedge.simulated_nodes.node_object import TAINT
from kedge.simulated_nodes.on_demand import simulate
from kedge.simulated_nodes.pod_life import LifeStep, PodLife, PodPlace
from kedge.simulated_nodes.registration import register
from kedge.simulated_nodes.usage_reports import TOGETHER
from kedge.testing.local_server import LocalServer

PREFIX = "simulation.kedge.dev/"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
GRACE = 50.0
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(is_for_tests=True) as running:
        yield running


@pytest.fixture
async def simulated(server: LocalServer) -> LocalServer:
    """A server with two simulated nodes."""
    await register(server.client, server.clock, 2, resources={}, taints=[])
    return await begun(server)


async def begun(server: LocalServer) -> LocalServer:
    server.start(simulate(server.client, server.client_of_node, server.clock, GRACE))
    await settle(server)
    return server


async def settle(server: LocalServer) -> None:
    """Let requests that follow from each other be answered."""
    for _ in range(10):
        await server.settle()


async def pod(
    server: LocalServer, name: str = "web", node: str = "simulated-1", **more: str
) -> Any:
    marks = {PREFIX + key.replace("_", "-"): value for key, value in more.items()}
    meta = {"name": name, "annotations": marks}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "i"}]}
    await server.post(PODS, {"metadata": meta, "spec": spec})
    await settle(server)
    return await server.get(f"{PODS}/{name}")


async def large_pod(server: LocalServer, containers: int, image: str) -> Any:
    """A pod whose status names so many images."""
    made = [{"name": f"c{i}", "image": image} for i in range(containers)]
    spec = {"nodeName": "simulated-1", "containers": made}
    await server.post(PODS, {"metadata": {"name": "large"}, "spec": spec})
    return await until_phase(server, "Running", "Failed")


async def until_phase(server: LocalServer, *phases: str) -> Any:
    """Wait for threads as long as it takes; the timeout of the test ends it."""
    while True:
        await settle(server)
        found = await server.call("GET", f"{PODS}/large")
        phase = json.loads(found.data)["status"]["phase"] if found.status == 200 else "gone"
        if phase in phases:
            return json.loads(found.data)


async def restarts(server: LocalServer, name: str) -> int:
    [container] = (await server.get(f"{PODS}/{name}"))["status"]["containerStatuses"]
    return int(container["restartCount"])


def ready(obj: Any) -> str:
    return str({each["type"]: each["status"] for each in obj["status"]["conditions"]}["Ready"])


async def test_nodes_are_ready_with_leases_and_resources(server: LocalServer) -> None:
    resources = {"example.com/gpu": Quantity.parse("4"), "cpu": Quantity.parse("8")}
    await register(server.client, server.clock, 2, resources=resources, taints=[TAINT])
    await register(server.client, server.clock, 2, resources={}, taints=[])
    await begun(server)
    await server.clock.advance(10)
    await settle(server)
    node = await server.get(f"{NODES}/simulated-2")
    assert ready(node) == "True"
    assert node["metadata"]["labels"][NODE] == NODE_VALUE
    assert node["spec"]["taints"] == [{"key": NODE, "value": "true", "effect": "NoSchedule"}]
    allocatable = node["status"]["allocatable"]
    assert (allocatable["example.com/gpu"], allocatable["cpu"], allocatable["pods"]) == (
        "4",
        "8",
        "110",
    )
    lease = await server.get(f"{LEASES}/simulated-2")
    assert lease["spec"]["holderIdentity"] == "simulated-2"


async def test_a_pod_on_a_simulated_node_runs(simulated: LocalServer) -> None:
    found = await pod(simulated)
    assert (found["status"]["phase"], ready(found)) == ("Running", "True")
    assert found["status"]["podIP"].startswith("198.1")


async def test_a_pod_whose_status_cannot_be_stored_fails(simulated: LocalServer) -> None:
    found = await large_pod(simulated, 300, "i" * 3_500)
    status = found["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "StatusTooLarge")
    assert status["message"] == (
        "Pod was rejected: the status of its containers exceeds the size of an object"
    )
    assert "containerStatuses" not in status
    assert "conditions" not in status
    # Nothing is tried again.
    await simulated.clock.advance(120)
    await settle(simulated)
    after = await simulated.get(f"{PODS}/large")
    assert after["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_a_pod_whose_last_status_cannot_be_stored_is_deleted(
    simulated: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await large_pod(simulated, 50, "i")
    assert found["status"]["phase"] == "Running"
    # The exit codes of its containers make the object larger.
    monkeypatch.setattr(api, "LARGEST_OBJECT", 1)
    await simulated.delete(f"{PODS}/large")
    await until_phase(simulated, "gone")


async def test_pods_with_many_containers_leave_the_loop_to_others(
    simulated: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    original = pod_life.advance

    def advance(life: PodLife, pod: Pod, place: PodPlace, now: float) -> LifeStep:
        threads.append(threading.current_thread() is threading.main_thread())
        return original(life, pod, place, now)

    monkeypatch.setattr(simulator, "advance", advance)
    await large_pod(simulated, 50, "i")
    assert threads
    assert True not in threads
    threads.clear()
    await pod(simulated)
    assert True in threads


async def test_delays_follow_the_clock(simulated: LocalServer) -> None:
    found = await pod(simulated, start_delay="30s")
    assert found["status"]["phase"] == "Pending"
    await simulated.clock.advance(30)
    await settle(simulated)
    found = await simulated.get(f"{PODS}/web")
    assert found["status"]["phase"] == "Running"


async def test_a_deleted_pod_goes_after_its_delay(simulated: LocalServer) -> None:
    await pod(simulated, stop_delay="5s")
    await simulated.delete(f"{PODS}/web")
    await settle(simulated)
    assert (await simulated.get(f"{PODS}/web"))["metadata"]["deletionTimestamp"]
    await simulated.clock.advance(5)
    await settle(simulated)
    assert (await simulated.call("GET", f"{PODS}/web")).status == 404


async def test_failures_are_events(simulated: LocalServer) -> None:
    await pod(simulated, image_error="no such tag")
    events = (await simulated.get("/api/v1/namespaces/default/events"))["items"]
    assert 'Failed to pull image "i": no such tag' in [each["message"] for each in events]


async def test_a_change_of_annotations_counts_at_once(simulated: LocalServer) -> None:
    assert ready(await pod(simulated)) == "True"
    change = {"metadata": {"annotations": {f"{PREFIX}ready-delay": "never"}}}
    await simulated.merge(f"{PODS}/web", change)
    await settle(simulated)
    assert ready(await simulated.get(f"{PODS}/web")) == "False"


async def test_a_node_that_a_user_creates_is_simulated(simulated: LocalServer) -> None:
    meta = {"name": "mine", "labels": {NODE: NODE_VALUE}, "annotations": {f"{PREFIX}cpu": "2"}}
    status = {"capacity": {"cpu": "2", "memory": "1Gi", "pods": "5"}}
    await simulated.post(NODES, {"metadata": meta, "status": status})
    await simulated.clock.advance(10)
    await settle(simulated)
    node = await simulated.get(f"{NODES}/mine")
    assert (ready(node), node["status"]["allocatable"]["cpu"]) == ("True", "2")
    found = await pod(simulated, node="mine")
    assert found["status"]["phase"] == "Running"


async def test_pods_of_other_nodes_are_left_alone(simulated: LocalServer) -> None:
    await simulated.post(NODES, {"metadata": {"name": "real"}})
    found = await pod(simulated, node="real")
    assert found["status"]["phase"] == "Pending"
    node = await simulated.get(f"{NODES}/real")
    assert "conditions" not in node["status"]


async def test_pods_and_nodes_that_are_deleted_are_forgotten(simulated: LocalServer) -> None:
    await pod(simulated)
    await simulated.delete(f"{NODES}/simulated-1")
    await simulated.call("DELETE", f"{PODS}/web", b'{"gracePeriodSeconds": 0}')
    await settle(simulated)
    await simulated.clock.advance(20)
    await settle(simulated)
    assert (await simulated.call("GET", f"{NODES}/simulated-1")).status == 404


async def test_a_node_that_comes_back_goes_on_with_its_pods(simulated: LocalServer) -> None:
    await pod(simulated, run_for="1m")
    await simulated.delete(f"{NODES}/simulated-1")
    await settle(simulated)
    await register(simulated.client, simulated.clock, 1, resources={}, taints=[])
    await settle(simulated)
    await simulated.clock.advance(61)
    await settle(simulated)
    assert await restarts(simulated, "web") == 1


async def test_a_node_that_is_deleted_during_reports_stops_no_other(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    await register(server.client, server.clock, TOGETHER + 2, resources={}, taints=[])
    await begun(server)
    await pod(server, cpu="250m", memory="64Mi")
    # A tick has just ended: the second portion of nodes waits for its turn.
    await server.clock.advance(TICK_SECONDS - server.clock.now().timestamp() % TICK_SECONDS + 0.1)
    await server.delete(f"{NODES}/simulated-{TOGETHER - 1}")
    await settle(server)
    await server.clock.advance(5)
    await settle(server)
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []
    [usage] = (await server.get(USAGE))["items"]
    assert usage["containers"][0]["usage"]["cpu"] == "250m"


async def test_a_status_that_was_refused_is_written_later(simulated: LocalServer) -> None:
    rule = b'{"resource": "pods/status", "code": 409, "times": 1}'
    made = await simulated.call("POST", "/testing/faults", rule)
    assert made.status < 300, made.text
    await pod(simulated)
    await simulated.clock.advance(1)
    await settle(simulated)
    assert (await simulated.get(f"{PODS}/web"))["status"]["phase"] == "Running"


async def test_a_silent_node_reports_when_it_can(simulated: LocalServer) -> None:
    rule = b'{"user": "system:node:simulated-1", "drop": true}'
    made = await simulated.call("POST", "/testing/faults", rule)
    assert made.status < 300, made.text
    found = await pod(simulated)
    assert found["status"]["phase"] == "Pending"
    renewed = await simulated.call("GET", f"{LEASES}/simulated-1")
    await simulated.clock.advance(30)
    assert (await simulated.call("GET", f"{LEASES}/simulated-1")).text == renewed.text
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    change = {"status": {"conditions": [unknown]}}
    await simulated.merge(f"{NODES}/simulated-1/status", change)
    await simulated.call("DELETE", "/testing/faults")
    await simulated.clock.advance(10)
    await settle(simulated)
    assert (await simulated.get(f"{PODS}/web"))["status"]["phase"] == "Running"
    assert ready(await simulated.get(f"{NODES}/simulated-1")) == "True"


async def test_a_condition_that_a_test_sets_stays(simulated: LocalServer) -> None:
    node = await simulated.get(f"{NODES}/simulated-1")
    for condition in node["status"]["conditions"]:
        if condition["type"] == "DiskPressure":
            condition["status"] = "True"
    await simulated.put(f"{NODES}/simulated-1/status", node)
    await simulated.clock.advance(30)
    await settle(simulated)
    conditions = (await simulated.get(f"{NODES}/simulated-1"))["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions}["DiskPressure"] == "True"


async def test_usage_is_served_by_the_metrics_api(simulated: LocalServer) -> None:
    await pod(simulated, cpu="250m", memory="64Mi")
    await simulated.clock.advance(20)
    await settle(simulated)
    [usage] = (await simulated.get(USAGE))["items"]
    assert usage["containers"][0]["usage"] == {"cpu": "250m", "memory": "64Mi"}
    node = await simulated.get("/apis/metrics.k8s.io/v1beta1/nodes/simulated-1")
    assert node["usage"]["cpu"] == "250m"


async def test_a_later_process_goes_on_with_the_pods(server: LocalServer) -> None:
    await register(server.client, server.clock, 1, resources={}, taints=[])
    first = server.start(simulate(server.client, server.client_of_node, server.clock, GRACE))
    await settle(server)
    before = await pod(server, run_for="1m")
    first.cancel()
    await settle(server)
    await begun(server)
    assert (await server.get(f"{PODS}/web"))["status"] == before["status"]
    await server.clock.advance(61)
    await settle(server)
    assert await restarts(server, "web") == 1


async def test_a_later_process_gives_no_address_away_that_a_pod_has(server: LocalServer) -> None:
    await register(server.client, server.clock, 1, resources={}, taints=[])
    first = server.start(simulate(server.client, server.client_of_node, server.clock, GRACE))
    await settle(server)
    await pod(server, "web")
    first.cancel()
    await pod(server, "first-in-the-list")
    await begun(server)
    items = (await server.get(PODS))["items"]
    assert len({each["status"]["podIP"] for each in items}) == 2
