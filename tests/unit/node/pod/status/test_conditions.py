from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.columns import enforcement
from kedge.api.core_v1.pod.status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateWaiting,
    ContainerStatus,
    PodCondition,
    PodStatus,
)
from kedge.node.pod.status.conditions import conditions, limit_condition
from kedge.supervisor.machine_capabilities import (
    ADVISORY,
    FULL,
    KERNEL,
    PLAIN,
    SAMPLED,
    USERNS,
    of_level,
)
from kedge.testing.pods import new_pod

NOW, BEFORE = "2030-01-01T00:00:00Z", "2029-01-01T00:00:00Z"
RUNNING = ContainerState(running=ContainerStateRunning())
WAITING = ContainerState(waiting=ContainerStateWaiting())
BOTH = {"cpu": "1", "memory": "1Gi"}
INIT = {"initContainers": [{"name": "init", "image": "i"}]}


def status(name: str, *, ready: bool = True, state: ContainerState = RUNNING) -> ContainerStatus:
    return ContainerStatus(name=name, ready=ready, state=state)


def found(
    *statuses: ContainerStatus,
    phase: str = "Running",
    own: list[PodCondition] | None = None,
    spec: dict[str, Any] | None = None,
) -> dict[str, PodCondition]:
    made = new_pod(metadata={"uid": "u"}, spec=spec)
    pod = replace(made, status=PodStatus(conditions=own or []))
    all_conditions = conditions(
        pod,
        phase,
        statuses,
        previous=own or [],
        sandbox_ready=True,
        resize=[],
        now=NOW,
    )
    return {each.type: each for each in all_conditions}


@pytest.mark.parametrize(
    ("statuses", "phase", "kind", "expected"),
    [
        ((status("ctr"),), "Running", "Ready", ("True", "", "")),
        (
            (status("ctr", ready=False),),
            "Running",
            "Ready",
            ("False", "ContainersNotReady", "containers with unready status: [ctr]"),
        ),
        (
            (),
            "Pending",
            "ContainersReady",
            ("False", "ContainersNotReady", "containers with unknown status: [ctr]"),
        ),
        ((status("ctr"),), "Failed", "Ready", ("False", "PodFailed", "")),
        ((status("ctr"),), "Succeeded", "ContainersReady", ("False", "PodCompleted", "")),
        ((status("ctr"),), "Succeeded", "Initialized", ("True", "PodCompleted", "")),
    ],
)
def test_readiness_follows_phase_and_containers(
    statuses: tuple[ContainerStatus, ...], phase: str, kind: str, expected: tuple[str, str, str]
) -> None:
    condition = found(*statuses, phase=phase)[kind]
    assert (condition.status, condition.reason, condition.message) == expected


@pytest.mark.parametrize(
    ("gates", "status_of_gate", "expected"),
    [
        (["a"], "True", "True"),
        (["a"], "False", 'the status of pod readiness gate "a" is not "True", but False'),
        (["b"], "True", 'corresponding condition of pod readiness gate "b" does not exist.'),
    ],
)
def test_readiness_gates_must_be_open(gates: list[str], status_of_gate: str, expected: str) -> None:
    own = [PodCondition(type="a", status=status_of_gate)]
    spec = {"readinessGates": [{"conditionType": gate} for gate in gates]}
    made = found(status("ctr"), own=own, spec=spec)
    assert expected in (made["Ready"].status, made["Ready"].message)
    assert made["a"] == own[0], "conditions of others stay"


def test_a_pod_is_initialized_when_its_init_containers_are_done() -> None:
    waiting = status("ctr", ready=False, state=WAITING)
    incomplete = found(status("init", ready=False), waiting, phase="Pending", spec=INIT)
    assert incomplete["Initialized"].reason == "ContainersNotInitialized"
    assert incomplete["Initialized"].message == "containers with incomplete status: [init]"
    done = found(status("init"), waiting, phase="Pending", spec=INIT)
    assert done["Initialized"].status == "True"


def test_the_time_of_a_condition_is_that_of_its_change() -> None:
    own = [
        PodCondition(type="Ready", status="True", lastTransitionTime=BEFORE),
        PodCondition(type="Initialized", status="False", lastTransitionTime=BEFORE),
    ]
    made = found(status("ctr"), own=own)
    assert made["Ready"].lastTransitionTime == BEFORE
    assert made["Initialized"].lastTransitionTime == NOW


def container(**limits: str) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": {"limits": limits}}


@pytest.mark.parametrize(
    ("limits", "cpu", "memory", "condition", "cell"),
    [
        ({}, SAMPLED, SAMPLED, None, "<none>"),
        (BOTH, KERNEL, KERNEL, ("True", "ByKernel"), "kernel"),
        (BOTH, SAMPLED, SAMPLED, ("True", "Sampled"), "sampled"),
        (BOTH, ADVISORY, ADVISORY, ("False", "Advisory"), "advisory"),
        (BOTH, SAMPLED, KERNEL, ("True", "Sampled"), "cpu=sampled,memory=kernel"),
        (BOTH, KERNEL, ADVISORY, ("False", "Advisory"), "cpu=kernel,memory=advisory"),
        ({"memory": "1Gi"}, ADVISORY, SAMPLED, ("True", "Sampled"), "sampled"),
        ({"ephemeral-storage": "1Gi"}, SAMPLED, SAMPLED, None, "<none>"),
    ],
)
def test_the_weakest_enforcement_is_told(
    limits: dict[str, str], cpu: str, memory: str, condition: tuple[str, str] | None, cell: str
) -> None:
    pod = new_pod(spec={"containers": [container(**limits)]})
    machine = of_level(USERNS)._replace(cpu=cpu, memory=memory)
    found = limit_condition(pod, machine)
    assert [(each.status, each.reason) for each in found] == ([condition] if condition else [])
    assert enforcement(replace(pod, status=PodStatus(conditions=found))) == cell


@pytest.mark.parametrize("where", ["initContainers", "resources"])
def test_limits_of_init_containers_and_of_the_pod_count(where: str) -> None:
    spec: dict[str, Any] = {"containers": [container()], "initContainers": []}
    spec[where] = [container(cpu="1")] if where == "initContainers" else {"limits": {"cpu": "1"}}
    (found,) = limit_condition(new_pod(spec=spec), of_level(PLAIN))
    assert found.message == "cpu=sampled"


def test_root_has_the_conditions_of_a_kubelet() -> None:
    pod = new_pod(spec={"containers": [container(**BOTH)]})
    assert limit_condition(pod, of_level(FULL)) == ()


@pytest.mark.parametrize("message", ["", "anything", "=", "a=b=c, d"])
def test_any_message_makes_a_cell(message: str) -> None:
    """Users may write the condition too."""
    pod = new_pod(spec={"containers": [container(**BOTH)]})
    (found,) = limit_condition(pod, of_level(PLAIN))
    changed = replace(pod, status=PodStatus(conditions=[replace(found, message=message)]))
    assert isinstance(enforcement(changed), str)
