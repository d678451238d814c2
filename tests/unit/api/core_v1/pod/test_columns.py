"""What `kubectl get pods` shows, in the words that Kubernetes 1.36 uses."""

from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.pod.columns import (
    COLUMNS,
    LIMITS,
    RestartsCell,
    ready,
    restarts,
    row_conditions,
    status,
)
from kedge.api.core_v1.pod.pod import RESOURCE
from kedge.testing.pods import pod_document

RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
INIT = [
    {"name": "x", "image": "i"},
    {"name": "s", "image": "i", "restartPolicy": "Always"},
]
TWO = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **more}}


def container(name: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, **more}


def document(
    spec: dict[str, Any], state: dict[str, Any], metadata: dict[str, Any]
) -> dict[str, Any]:
    return pod_document(spec=spec, metadata=metadata) | {"status": state}


def pod(spec: dict[str, Any], state: dict[str, Any], **metadata: Any) -> Any:
    """Return what rows show of a pod; the columns show the same of the whole pod."""
    text = msgspec.json.encode(document(spec, state, metadata))
    shown = RESOURCE.decode_row(text)
    whole = RESOURCE.decode(text)
    for column in (*COLUMNS, LIMITS.column):
        assert column.cell(shown) == column.cell(whole), column.name
    assert row_conditions(shown) == row_conditions(whole)
    return shown


READY = [{"type": "Ready", "status": "True"}]
INITIALIZED = [{"type": "Initialized", "status": "True"}]
GATED = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]


@pytest.mark.parametrize(
    ("spec", "state", "cells"),
    [
        ({}, {"phase": "Pending"}, "0/1 Pending"),
        ({}, {"phase": "Failed", "reason": "Evicted"}, "0/1 Evicted"),
        ({}, {"phase": "Pending", "conditions": GATED}, "0/1 SchedulingGated"),
        (
            {"containers": TWO},
            {
                "phase": "Running",
                "containerStatuses": [
                    container("a", RUNNING, ready=True),
                    container("b", RUNNING),
                ],
            },
            "1/2 Running",
        ),
        (
            {"containers": TWO},
            {
                "phase": "Running",
                "containerStatuses": [
                    container("a", waiting("CrashLoopBackOff")),
                    container("b", waiting("ImagePullBackOff")),
                ],
            },
            "0/2 CrashLoopBackOff",
        ),
        (
            {"containers": TWO},
            {
                "phase": "Running",
                "containerStatuses": [container("a", RUNNING), container("b", ended(3))],
            },
            "0/2 ExitCode:3",
        ),
        (
            {},
            {"phase": "Failed", "containerStatuses": [container("ctr", ended(0, signal=9))]},
            "0/1 Signal:9",
        ),
        (
            {"containers": TWO},
            {
                "phase": "Running",
                "conditions": READY,
                "containerStatuses": [
                    container("a", ended(0, reason="Completed")),
                    container("b", RUNNING, ready=True),
                ],
            },
            "1/2 Running",
        ),
        (
            {"containers": TWO},
            {
                "phase": "Running",
                "containerStatuses": [
                    container("a", ended(0, reason="Completed")),
                    container("b", RUNNING, ready=True),
                ],
            },
            "1/2 NotReady",
        ),
        (
            {"containers": TWO},
            {
                "phase": "Running",
                "containerStatuses": [
                    container("a", ended(0, reason="Completed")),
                    container("b", ended(1, reason="Error")),
                ],
            },
            "0/2 Error",
        ),
        (
            {"initContainers": INIT},
            {
                "phase": "Pending",
                "initContainerStatuses": [container("x", waiting("ImagePullBackOff"))],
                "containerStatuses": [container("ctr", waiting("PodInitializing"))],
            },
            "0/2 Init:ImagePullBackOff",
        ),
        (
            {"initContainers": INIT},
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    container("x", ended(0)),
                    container("s", waiting("PodInitializing")),
                ],
            },
            "0/2 Init:1/2",
        ),
        (
            {"initContainers": INIT},
            {"phase": "Pending", "initContainerStatuses": [container("x", ended(2))]},
            "0/2 Init:ExitCode:2",
        ),
        (
            {"initContainers": INIT},
            {
                "phase": "Running",
                "conditions": READY,
                "initContainerStatuses": [
                    container("x", ended(0)),
                    container("s", RUNNING, ready=True, started=True),
                ],
                "containerStatuses": [container("ctr", RUNNING, ready=True)],
            },
            "2/2 Running",
        ),
        (
            {"initContainers": INIT},
            {
                "phase": "Running",
                "conditions": INITIALIZED,
                "initContainerStatuses": [
                    container("x", ended(0)),
                    container("s", ended(1, reason="Error")),
                ],
                "containerStatuses": [container("ctr", RUNNING, ready=True)],
            },
            "1/2 Init:Error",
        ),
    ],
)
def test_one_word_tells_how_a_pod_fares(
    spec: dict[str, Any], state: dict[str, Any], cells: str
) -> None:
    shown = pod(spec, state)
    assert f"{ready(shown)} {status(shown)}" == cells


def test_a_pod_being_deleted_is_terminating_until_it_has_finished() -> None:
    gone = "2026-01-01T00:00:00Z"
    assert status(pod({}, {"phase": "Running"}, deletionTimestamp=gone)) == "Terminating"
    assert status(pod({}, {"phase": "Succeeded"}, deletionTimestamp=gone)) == "Succeeded"
    lost = {"phase": "Running", "reason": "NodeLost"}
    assert status(pod({}, lost, deletionTimestamp=gone)) == "Unknown"


def test_restarts_tell_when_the_last_one_was() -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    statuses = [
        container("a", RUNNING, restartCount=2, lastState=ended(1, finishedAt=early)),
        container("b", RUNNING, restartCount=1, lastState=ended(1, finishedAt=late)),
    ]
    cell = restarts(pod({"containers": TWO}, {"containerStatuses": statuses}))
    assert cell == RestartsCell(late, 3)
    assert RestartsCell(late, 3).around("5m") == "3 (5m ago)"
    assert restarts(pod({}, {})) == "0"


def test_restarts_of_init_containers_count_only_until_they_are_done() -> None:
    init = [container("x", RUNNING, restartCount=4)]
    spec = {"initContainers": INIT}
    assert restarts(pod(spec, {"initContainerStatuses": init})) == "4"
    done = {"initContainerStatuses": init, "conditions": INITIALIZED}
    assert restarts(pod(spec, done)) == "0"


def test_rows_of_finished_pods_are_marked() -> None:
    assert [c["reason"] for c in row_conditions(pod({}, {"phase": "Failed"}))] == ["Failed"]
    assert row_conditions(pod({}, {"phase": "Running"})) == ()


def test_wide_columns_show_none_rather_than_nothing() -> None:
    wide = [column.cell(pod({}, {})) for column in RESOURCE.presentation.columns if column.priority]
    assert wide == ["<none>"] * 4
    gates = {"readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}], "nodeName": "n"}
    met = {"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "x", "status": "True"}]}
    wide = [
        column.cell(pod(gates, met)) for column in RESOURCE.presentation.columns if column.priority
    ]
    assert wide == ["10.0.0.1", "n", "<none>", "1/2"]


def test_a_row_takes_null_for_what_is_not_set() -> None:
    """As other servers write to a store that they share."""
    empty = {"conditions": None, "containerStatuses": None, "podIPs": None, "reason": None}
    written = document({}, {"phase": "Pending", **empty}, {"deletionTimestamp": None})
    written["spec"]["initContainers"] = None
    shown = RESOURCE.decode_row(msgspec.json.encode(written))
    assert [column.cell(shown) for column in COLUMNS][1:4] == ["0/1", "Pending", "0"]


def test_a_row_needs_no_part_of_a_pod() -> None:
    cells = [column.cell(RESOURCE.decode_row(b"{}")) for column in COLUMNS]
    assert cells[1:4] == ["0/0", "", "0"]
