from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
    PodStatus,
)
from kedge.node.pod.runtime_cache import EMPTY, PodRuntimeState, pod_runtime_state
from kedge.node.pod.termination import PodTermination, deadline_of, finished, termination
from kedge.node.pod.worker_state import ApiObjectState, WorkerState
from kedge.node.runtime.runtime import PodSandbox, RunState, RuntimeContainer
from kedge.testing.pods import new_pod

NOW = 1_893_456_000.0
"""2030-01-01T00:00:00Z."""
RUNS = WorkerState()
REMOVED = WorkerState(api_object=ApiObjectState.REMOVED)
EVICTED = WorkerState(eviction="too much")


def pod(status: PodStatus | None = None, **spec: Any) -> Pod:
    made = new_pod(metadata={"uid": "u"}, spec=spec)
    return replace(made, status=status or PodStatus())


def deleted(of: Pod, *, grace: int | None, left: int) -> Pod:
    at = f"2030-01-01T00:00:{left:02}Z"
    meta = replace(of.metadata, deletionTimestamp=at, deletionGracePeriodSeconds=grace)
    return replace(of, metadata=meta)


def observed(*ends: tuple[str, int | None], ready: bool = True) -> PodRuntimeState:
    """Containers by name and exit code, None for one that runs."""
    sandbox = PodSandbox(id="s", namespace="default", name="pod", uid="u", ready=ready)
    records = [
        RuntimeContainer(
            id=name,
            sandbox="s",
            name=name,
            state=RunState.RUNNING if code is None else RunState.EXITED,
            exit_code=code or 0,
        )
        for name, code in ends
    ]
    return pod_runtime_state([sandbox], records)


@pytest.mark.parametrize(
    ("of", "state", "expected"),
    [
        (pod(), RUNS, None),
        (pod(), REMOVED, PodTermination(1)),
        (pod(), EVICTED, PodTermination(1, "Evicted", "too much")),
        (pod(PodStatus(phase="Failed")), RUNS, PodTermination(30)),
        (pod(PodStatus(phase="Failed")), EVICTED, PodTermination(30)),
        (deleted(pod(), grace=None, left=59), RUNS, PodTermination(30)),
        (deleted(pod(), grace=20, left=20), RUNS, PodTermination(20)),
        (deleted(pod(), grace=20, left=5), RUNS, PodTermination(5)),
        (deleted(pod(), grace=20, left=0), RUNS, PodTermination(1)),
        (deleted(pod(), grace=20, left=20), EVICTED, PodTermination(20)),
        (deleted(pod(), grace=20, left=20), REMOVED, PodTermination(1)),
    ],
)
def test_the_first_cause_decides(
    of: Pod, state: WorkerState, expected: PodTermination | None
) -> None:
    assert termination(of, observed(("ctr", None)), NOW, state) == expected


@pytest.mark.parametrize(("seconds", "ends"), [(61, False), (60, True)])
def test_a_pod_ends_at_its_deadline(seconds: int, ends: bool) -> None:
    of = pod(PodStatus(startTime="2029-12-31T23:59:00Z"), activeDeadlineSeconds=seconds)
    found = termination(of, observed(("ctr", None)), NOW, RUNS)
    assert (found is not None and found.reason == "DeadlineExceeded") is ends
    assert deadline_of(of) == NOW - 60 + seconds
    assert deadline_of(pod(activeDeadlineSeconds=5)) is None, "it has not started"


INIT = {"initContainers": [{"name": "init", "image": "i"}]}
SIDECAR = {"initContainers": [{"name": "init", "image": "i", "restartPolicy": "Always"}]}


@pytest.mark.parametrize(
    ("spec", "found", "expected"),
    [
        ({"restartPolicy": "Never"}, observed(("ctr", 0)), True),
        ({"restartPolicy": "Never"}, observed(("ctr", 1)), True),
        ({"restartPolicy": "OnFailure"}, observed(("ctr", 0)), True),
        ({"restartPolicy": "OnFailure"}, observed(("ctr", 1)), False),
        ({"restartPolicy": "Always"}, observed(("ctr", 0)), False),
        ({"restartPolicy": "Never"}, observed(("ctr", None)), False),
        ({"restartPolicy": "Never", **INIT}, observed(("init", 1)), True),
        ({"restartPolicy": "Always", **INIT}, observed(("init", 1)), False),
        ({"restartPolicy": "Never", **INIT}, observed(("init", 0)), False),
        ({"restartPolicy": "Never", **SIDECAR}, observed(("init", 1)), False),
        ({"restartPolicy": "Never", **INIT}, observed(("init", 1), ("ctr", None)), False),
        # The sandbox is lost.
        ({"restartPolicy": "Never"}, observed(("ctr", None), ready=False), True),
        ({"restartPolicy": "Never"}, observed(ready=False), False),
        ({"restartPolicy": "Always"}, observed(("ctr", None), ready=False), False),
        ({"restartPolicy": "Never"}, EMPTY, False),
    ],
)
def test_a_pod_is_finished_when_no_container_will_run_again(
    spec: dict[str, Any], found: PodRuntimeState, expected: bool
) -> None:
    assert finished(pod(**spec), found) is expected


def test_the_status_tells_that_a_lost_pod_has_run() -> None:
    running = ContainerState(running=ContainerStateRunning())
    status = PodStatus(containerStatuses=[ContainerStatus(name="ctr", state=running)])
    assert finished(pod(status, restartPolicy="Never"), EMPTY)
