from typing import Any

from msgspec.structs import replace as changed

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
    PodCondition,
    PodIP,
    PodStatus,
)
from kedge.node.pod.status.patch import status_patch
from kedge.testing.pods import new_pod

READY = PodCondition(type="Ready", status="True")


def patched(old: PodStatus, new: PodStatus) -> dict[str, Any] | None:
    pod = changed(new_pod(metadata={"uid": "u"}), status=old)
    return status_patch(pod, new)


def test_nothing_is_sent_for_the_same() -> None:
    assert patched(PodStatus(phase="Running"), PodStatus(phase="Running")) is None


def test_only_changes_are_sent_and_for_this_pod_only() -> None:
    old = PodStatus(phase="Pending", hostIP="1.1.1.1")
    found = patched(old, PodStatus(phase="Running", hostIP="1.1.1.1"))
    assert found == {"metadata": {"uid": "u"}, "status": {"phase": "Running"}}


def test_others_conditions_are_not_touched() -> None:
    theirs = PodCondition(type="example.com/x", status="True")
    old = PodStatus(conditions=[theirs, READY])
    found = patched(old, PodStatus(conditions=[changed(READY, status="False")]))
    assert found is not None
    assert found["status"] == {"conditions": [{"type": "Ready", "status": "False"}]}


def test_our_conditions_can_go_and_lose_their_reasons() -> None:
    resize = PodCondition(type="PodResizePending", status="True")
    old = PodStatus(conditions=[resize, changed(READY, reason="x", message="y")])
    found = patched(old, PodStatus(conditions=[READY]))
    assert found is not None
    assert found["status"]["conditions"] == [
        {"reason": None, "message": None, "type": "Ready", "status": "True"},
        {"$patch": "delete", "type": "PodResizePending"},
    ]


def test_fields_that_are_gone_are_taken_away() -> None:
    found = patched(PodStatus(reason="x"), PodStatus())
    assert found is not None
    assert found["status"] == {"reason": None}


def test_addresses_are_replaced_and_not_merged() -> None:
    found = patched(PodStatus(podIPs=[PodIP(ip="1")]), PodStatus(podIPs=[PodIP(ip="2")]))
    assert found is not None
    assert found["status"]["podIPs"] == [{"$patch": "replace"}, {"ip": "2"}]


def test_the_patch_leads_to_the_status() -> None:
    running = ContainerState(running=ContainerStateRunning(startedAt="2030-01-01T00:00:00Z"))
    new = PodStatus(containerStatuses=[ContainerStatus(name="c", state=running)])
    found = patched(PodStatus(), new)
    assert found is not None
    pod: Pod = RESOURCE.from_document({"status": found["status"]})
    assert pod.status == new
