from typing import Any

import pytest

from kedge.api.core_v1.pod.status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from kedge.node.pod.status.phase import phase
from kedge.testing.pods import new_pod

RUNNING = ContainerState(running=ContainerStateRunning())
WAITING = ContainerState(waiting=ContainerStateWaiting())


def ended(code: int) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exitCode=code))


def status(name: str, state: ContainerState, **fields: Any) -> ContainerStatus:
    return ContainerStatus(name=name, state=state, **fields)


def phase_of(
    policy: str,
    *statuses: ContainerStatus,
    init: tuple[str, ...] = (),
    sidecars: tuple[str, ...] = (),
    terminal: bool = False,
    initialized: bool = False,
) -> str:
    made = [
        {"name": n, "image": "i"} | ({"restartPolicy": "Always"} if n in sidecars else {})
        for n in (*init, *sidecars)
    ]
    main = [
        {"name": s.name, "image": "i"} for s in statuses if s.name not in (*init, *sidecars)
    ] or [{"name": "a", "image": "i"}]
    pod = new_pod(spec={"restartPolicy": policy, "initContainers": made, "containers": main})
    return phase(pod.spec, statuses, terminal=terminal, initialized=initialized)


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        ("Always", [RUNNING, RUNNING], "Running"),
        ("Always", [RUNNING, WAITING], "Pending"),
        ("Always", [RUNNING, ended(1)], "Running"),
        ("Always", [ended(0), ended(0)], "Running"),
        ("OnFailure", [ended(0), ended(0)], "Succeeded"),
        ("OnFailure", [ended(0), ended(1)], "Running"),
        ("Never", [ended(0), ended(0)], "Succeeded"),
        ("Never", [ended(0), ended(1)], "Failed"),
        ("Never", [RUNNING, ended(1)], "Running"),
    ],
)
def test_main_containers_decide(policy: str, states: list[ContainerState], expected: str) -> None:
    statuses = [status(name, state) for name, state in zip("ab", states, strict=True)]
    assert phase_of(policy, *statuses) == expected


def test_a_container_that_waits_to_be_restarted_has_run() -> None:
    crashing = status("a", WAITING, lastState=ended(1))
    assert phase_of("Always", crashing) == "Running"
    assert phase_of("Always", crashing, terminal=True) == "Failed"


def test_an_ended_pod_is_judged_by_its_exit_codes_alone() -> None:
    assert phase_of("Always", status("a", ended(0)), terminal=True) == "Succeeded"
    assert phase_of("Always", status("a", ended(143)), terminal=True) == "Failed"


def test_a_pod_without_statuses_is_pending() -> None:
    assert phase_of("Always") == "Pending"


@pytest.mark.parametrize(
    ("policy", "state", "expected"),
    [
        ("Always", RUNNING, "Pending"),
        ("Always", WAITING, "Pending"),
        ("Always", ended(1), "Pending"),
        ("Never", ended(1), "Failed"),
        ("Never", ended(0), "Pending"),
    ],
)
def test_init_containers_come_before(policy: str, state: ContainerState, expected: str) -> None:
    statuses = [status("i", state), status("a", WAITING)]
    assert phase_of(policy, *statuses, init=("i",)) == expected


def test_a_sidecar_that_restarts_does_not_put_the_pod_back() -> None:
    main = status("a", RUNNING)
    side = status("s", RUNNING, started=False)
    assert phase_of("Always", side, main, sidecars=("s",), initialized=True) == "Running"
    assert phase_of("Always", side, main, sidecars=("s",)) == "Pending"


def test_how_a_sidecar_ended_is_of_no_account() -> None:
    statuses = [status("s", ended(1)), status("a", ended(0))]
    assert phase_of("Never", *statuses, sidecars=("s",), initialized=True) == "Succeeded"


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        ([], "Pending"),
        ([status("s", WAITING)], "Pending"),
        ([status("s", WAITING, lastState=ended(1))], "Running"),
        ([status("s", ended(1))], "Running"),
        ([status("s", RUNNING, started=False)], "Pending"),
        ([status("s", RUNNING, started=True)], "Running"),
    ],
    ids=["unknown", "new", "crashed", "ended", "runs", "started"],
)
def test_a_pod_is_pending_until_its_sidecars_have_started(
    side: list[ContainerStatus], expected: str
) -> None:
    assert phase_of("Always", *side, status("a", RUNNING), sidecars=("s",)) == expected


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        (status("s", WAITING), "Pending"),
        (status("s", WAITING, lastState=ended(1)), "Succeeded"),
        (status("s", RUNNING), "Running"),
    ],
    ids=["new", "crashed", "runs"],
)
def test_a_pod_has_not_ended_before_its_sidecars(side: ContainerStatus, expected: str) -> None:
    statuses = [side, status("a", ended(0))]
    assert phase_of("Never", *statuses, sidecars=("s",), initialized=True) == expected


def test_an_init_container_that_succeeded_before_it_waits_again_has_not_failed() -> None:
    done = status("i", WAITING, lastState=ended(0))
    statuses = [done, status("j", ended(0)), status("a", RUNNING)]
    assert phase_of("Never", *statuses, init=("i", "j")) == "Running"


def test_a_main_container_that_waits_after_success_has_not_succeeded() -> None:
    waits = status("a", WAITING, lastState=ended(0))
    statuses = [status("i", ended(0)), waits]
    assert phase_of("Never", *statuses, init=("i",), terminal=True) == "Failed"
