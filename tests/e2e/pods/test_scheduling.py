"""Which node a pod runs on, and why none."""

from collections.abc import Iterator
from typing import Any

import pytest

Json = dict[str, Any]


def refused(pods: Any, name: str) -> str:
    """Why a pod cannot be placed, as its status has it."""

    def told(pod: Json) -> list[Json]:
        conditions = pod["status"].get("conditions", ())
        return [c for c in conditions if c.get("reason") == "Unschedulable"]

    [condition] = told(pods.when(name, told))
    assert condition["type"] == "PodScheduled"
    said: str = condition["message"]
    assert said in pods.events(name, "FailedScheduling")
    return said


def nodes(api: Any) -> int:
    return len(api.get("/api/v1/nodes")["items"])


@pytest.fixture
def labelled(api: Any, node: Json) -> Iterator[str]:
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    api.merge(path, {"metadata": {"labels": {"e2e.example.com/disk": "fast"}}})
    yield node["metadata"]["name"]
    api.merge(path, {"metadata": {"labels": {"e2e.example.com/disk": None}}})


@pytest.fixture
def tainted(api: Any, node: Json) -> Iterator[str]:
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    taint = {"key": "e2e.example.com/kept", "value": "free", "effect": "NoSchedule"}
    api.merge(path, {"spec": {"taints": [taint]}})
    yield node["metadata"]["name"]
    api.merge(path, {"spec": {"taints": None}})


def test_a_pod_waits_for_a_node_with_its_labels(
    pods: Any, api: Any, node: Json, request: pytest.FixtureRequest
) -> None:
    pods.create("picky", nodeSelector={"e2e.example.com/disk": "fast"})
    many = nodes(api)
    assert refused(pods, "picky") == (
        f"0/{many} nodes are available: {many} node(s) didn't match Pod's node affinity/selector. "
        f"preemption: 0/{many} nodes are available: "
        f"{many} Preemption is not helpful for scheduling."
    )
    name = request.getfixturevalue("labelled")
    assert pods.ready("picky")["spec"]["nodeName"] == name


def test_a_taint_keeps_pods_away_that_do_not_tolerate_it(pods: Any, api: Any, tainted: str) -> None:
    if nodes(api) > 1:
        pytest.skip("there are other nodes to go to")
    pods.create("stranger")
    assert "untolerated taint(s)" in refused(pods, "stranger")
    tolerated = {"key": "e2e.example.com/kept", "operator": "Exists"}
    pods.create("friend", tolerations=[tolerated])
    pods.ready("friend")


def test_a_node_with_too_little_is_not_taken(pods: Any, api: Any) -> None:
    pods.create("big", container={"resources": {"requests": {"cpu": "10k"}}})
    assert f"{nodes(api)} Insufficient cpu" in refused(pods, "big")


def test_a_gate_is_waited_for(pods: Any, any_kubectl: Any) -> None:
    pods.create("gated", schedulingGates=[{"name": "example.com/wait"}])
    pod = pods.when("gated", lambda pod: "SchedulingGated" in str(pod["status"]))
    assert "nodeName" not in pod["spec"]
    [shown] = any_kubectl.table("get pods")
    assert shown["STATUS"] == "SchedulingGated"
    any_kubectl(
        "patch",
        "pod",
        "gated",
        "--type=json",
        '-p=[{"op":"remove","path":"/spec/schedulingGates"}]',
    )
    pods.ready("gated")


def test_another_scheduler_is_left_its_pods(pods: Any) -> None:
    pods.create("theirs", schedulerName="another")
    pods.create("ours", "exit 0", restartPolicy="Never")
    pods.over("ours")
    assert "nodeName" not in pods.get("theirs")["spec"]


def test_an_important_pod_takes_the_place_of_another(
    pods: Any, api: Any, node: Json, namespace: str
) -> None:
    """With containers that run: the victim is asked to end, and does."""
    if nodes(api) > 1:
        pytest.skip("there are other nodes to go to")
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    high = f"{namespace}-high"
    api.create(classes, {"metadata": {"name": high}, "value": 1000})
    most = {"example.com/seat": "1"}
    path = f"/api/v1/nodes/{node['metadata']['name']}/status"
    api.merge(path, {"status": {"capacity": most, "allocatable": most}})
    try:
        seat = {"resources": {"limits": most, "requests": most}}
        pods.create("victim", container=seat)
        pods.ready("victim")
        pods.create("winner", container=seat, priorityClassName=high)
        pods.ready("winner")
        pods.gone("victim")
        [told] = pods.events("victim", "Preempted")
        assert told.startswith("Preempted by pod")
    finally:
        api.delete(f"{classes}/{high}")
        gone = {"example.com/seat": None}
        api.merge(path, {"status": {"capacity": gone, "allocatable": gone}})


def test_a_host_port_is_had_once(pods: Any, api: Any) -> None:
    if nodes(api) > 1:
        pytest.skip("there are other nodes to go to")
    port = {"ports": [{"containerPort": 80, "hostPort": 17321}]}
    pods.create("first", container=port)
    pods.ready("first")
    pods.create("second", container=port)
    assert "didn't have free ports for the requested pod ports" in refused(pods, "second")
    pods.delete("first")
    pods.ready("second")
