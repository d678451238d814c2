"""Facts about pods and nodes."""

from typing import Any

import pytest

from kedge.api.core_v1 import node as core_node
from kedge.api.core_v1.pod import pod as core_pod
from kedge.cli.usage.top.live.facts import (
    NodeFacts,
    NodeLoad,
    PodFacts,
    ResourceBounds,
    device_text,
    node_facts,
    node_loads,
    pod_facts,
)

RUNNING = {"running": {"startedAt": "2026-11-15T18:20:00Z"}}


def pod(spec: dict[str, Any], status: dict[str, Any] | None = None) -> PodFacts:
    metadata = {"name": "web", "namespace": "shop", "annotations": spec.pop("annotations", {})}
    document = {"metadata": metadata, "spec": spec, "status": status or {"phase": "Pending"}}
    return pod_facts(core_pod.RESOURCE.from_document(document))


def container(name: str = "main", **resources: Any) -> dict[str, Any]:
    return {"name": name, "image": "host", "resources": resources}


def running(name: str = "main", *, ready: bool = True, restarts: int = 0) -> dict[str, Any]:
    return {"name": name, "state": RUNNING, "ready": ready, "restartCount": restarts}


def status(*containers: dict[str, Any], ready: str = "True") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}, {"type": "Initialized", "status": "True"}]
    return {"phase": "Running", "conditions": conditions, "containerStatuses": [*containers]}


def test_a_pod_has_the_requests_and_limits_of_its_containers() -> None:
    found = pod(
        {
            "nodeName": "n1",
            "containers": [
                container(requests={"cpu": "100m"}, limits={"cpu": "1", "example.com/gpu": "2"}),
                container("side", requests={"cpu": "1"}, limits={"example.com/gpu": "1"}),
            ],
        }
    )
    assert found.cpu == ResourceBounds(1.1, None)
    assert found.memory == ResourceBounds(None, None)
    assert found.devices == {"example.com/gpu": 3}
    assert [each.cpu for each in found.containers] == [
        ResourceBounds(0.1, 1.0),
        ResourceBounds(1.0, None),
    ]
    assert found.containers[0].devices == "gpu 2"
    assert (found.node, found.main) == ("n1", "main")


@pytest.mark.parametrize(
    ("given", "word", "is_well"),
    [
        (status(running()), "Running", True),
        (status(running(), ready="False"), "Running", False),
        ({"phase": "Pending"}, "Pending", False),
        ({"phase": "Succeeded"}, "Succeeded", True),
        (
            status({"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}),
            "CrashLoopBackOff",
            False,
        ),
    ],
)
def test_the_status_is_that_of_kubectl_get(given: Any, word: str, is_well: bool) -> None:
    found = pod({"containers": [container()]}, given)
    assert (found.status, found.is_well) == (word, is_well)


@pytest.mark.parametrize(
    ("state", "word", "is_well"),
    [
        (running(), "Running", True),
        (running(ready=False), "NotReady", False),
        ({"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}, "ErrImagePull", False),
        (
            {"name": "main", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}},
            "Error",
            False,
        ),
        (
            {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            "Completed",
            True,
        ),
        ({"name": "other", "state": {}}, "Waiting", False),
    ],
)
def test_a_container_has_a_state_of_its_own(state: Any, word: str, is_well: bool) -> None:
    (found,) = pod({"containers": [container()]}, status(state)).containers
    assert (found.status, found.is_well) == (word, is_well)


def test_restarts_are_added_up() -> None:
    found = pod(
        {"containers": [container(), container("side")]},
        status(running(restarts=2), running("side", restarts=3)),
    )
    assert found.restarts == 5
    assert [each.restarts for each in found.containers] == [2, 3]


def test_a_pod_can_name_its_main_container() -> None:
    annotation = "kubectl.kubernetes.io/default-container"
    both = [container(), container("app")]
    assert pod({"containers": both, "annotations": {annotation: "app"}}).main == "app"
    assert pod({"containers": both, "annotations": {annotation: "gone"}}).main == "main"


@pytest.mark.parametrize(
    ("ready", "unschedulable", "word", "is_well"),
    [
        ("True", False, "Ready", True),
        ("Unknown", False, "NotReady", False),
        ("True", True, "Ready,cordoned", False),
    ],
)
def test_nodes(ready: str, unschedulable: bool, word: str, is_well: bool) -> None:
    document = {
        "metadata": {"name": "n1"},
        "spec": {"unschedulable": unschedulable},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "8"},
        },
    }
    found = node_facts(core_node.RESOURCE.from_document(document))
    assert found == NodeFacts("n1", word, is_well, 2.0, float(1 << 30), {"example.com/gpu": 8})


def test_the_load_of_a_node_is_what_its_pods_ask_for() -> None:
    asking = container(requests={"cpu": "1", "memory": "1k"}, limits={"example.com/gpu": "1"})
    one = pod({"nodeName": "n1", "containers": [asking]}, status(running()))
    done = one._replace(is_finished=True)
    waiting = one._replace(node="")
    assert node_loads([one, one, done, waiting]) == {
        "n1": NodeLoad(2, 2.0, 2000.0, {"example.com/gpu": 2})
    }


def test_devices_of_a_node_are_shown_with_those_in_use() -> None:
    assert device_text({"a/gpu": 8, "b/fpga": 2}, {"a/gpu": 3}) == "fpga 0/2, gpu 3/8"
    assert device_text({"a/gpu": 0}, {}) == ""
