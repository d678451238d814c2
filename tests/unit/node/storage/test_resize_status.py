"""The status of claims whose volumes grow."""

from typing import Any

import pytest

from kedge.api.core_v1.persistent_volume_claim import RESOURCE, PersistentVolumeClaim
from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER
from kedge.node.storage import resize_status
from kedge.node.storage.volume_driver import DriverError

GIB = 1 << 30
NOW = "2026-11-17T00:00:00Z"


def claim(request: str = "2Gi", state: str = "", *conditions: str) -> PersistentVolumeClaim:
    status: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "conditions": [{"type": each, "status": "True"} for each in conditions],
    }
    if state:
        status["allocatedResourceStatuses"] = {"storage": state}
    return RESOURCE.from_document(
        {
            "metadata": {"name": "c", "namespace": "default", "resourceVersion": "7"},
            "spec": {"resources": {"requests": {"storage": request}}},
            "status": status,
        }
    )


@pytest.mark.parametrize(
    ("state", "of_csi", "of_local"),
    [
        ("", False, True),
        ("NodeResizePending", True, True),
        ("NodeResizeInProgress", True, True),
        ("NodeResizeInfeasible", False, True),
        ("ControllerResizeInProgress", False, False),
        ("ControllerResizeInfeasible", False, False),
    ],
)
def test_a_node_grows_volumes_in_its_turn(state: str, of_csi: bool, of_local: bool) -> None:
    assert resize_status.may_grow(claim(state=state), "csi.example.com") is of_csi
    assert resize_status.may_grow(claim(state=state), LOCAL_DRIVER) is of_local


def test_the_growth_begins_only_if_the_claim_is_as_it_was() -> None:
    assert resize_status.begun(claim()) == {
        "metadata": {"resourceVersion": "7"},
        "status": {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}},
    }


@pytest.mark.parametrize(
    ("error", "request_", "state", "has_condition"),
    [
        (DriverError("x"), "2Gi", "NodeResizePending", False),
        (DriverError("x", is_final=True), "2Gi", "NodeResizePending", True),
        (DriverError("x", is_final=True), "1500Mi", "NodeResizeInfeasible", True),
        (DriverError("x", is_infeasible=True), "2Gi", "NodeResizeInfeasible", True),
    ],
)
def test_a_failure_says_whether_it_can_be_taken_back(
    error: DriverError, request_: str, state: str, has_condition: bool
) -> None:
    known = claim(request_, "NodeResizeInProgress", "FileSystemResizePending")
    status = resize_status.failed(known, error, 2 * GIB, NOW)["status"]
    assert status["allocatedResourceStatuses"] == {"storage": state}
    if not has_condition:
        assert "conditions" not in status
        return
    assert status["conditions"] == [
        {"type": "FileSystemResizePending", "status": "True"},
        {
            "type": "NodeResizeError",
            "status": "True",
            "message": "failed to expand pvc with x",
            "lastTransitionTime": NOW,
        },
    ]


def test_a_finished_growth_leaves_no_trace_of_failures() -> None:
    known = claim("2Gi", "NodeResizeInProgress", "NodeResizeError", "Other")
    assert resize_status.finished(known, "2Gi") == {
        "status": {
            "capacity": {"storage": "2Gi"},
            "allocatedResourceStatuses": None,
            "conditions": [{"type": "Other", "status": "True"}],
        }
    }
