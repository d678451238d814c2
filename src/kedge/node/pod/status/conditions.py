"""The conditions of a pod."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1.pod.columns import LIMITS_ENFORCED
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.status import ContainerStatus, PodCondition
from kedge.supervisor.machine_capabilities import (
    ADVISORY,
    FULL,
    KERNEL,
    SAMPLED,
    MachineCapabilities,
)

READY_TO_START = "PodReadyToStartContainers"
INITIALIZED = "Initialized"
READY = "Ready"
CONTAINERS_READY = "ContainersReady"
SCHEDULED = "PodScheduled"
RESIZE_PENDING = "PodResizePending"
RESIZE_IN_PROGRESS = "PodResizeInProgress"
RESTARTING_ALL = "AllContainersRestarting"
OWN = (
    READY_TO_START,
    INITIALIZED,
    READY,
    CONTAINERS_READY,
    SCHEDULED,
    RESIZE_PENDING,
    RESIZE_IN_PROGRESS,
    RESTARTING_ALL,
    LIMITS_ENFORCED,
)
"""The conditions that the node agent owns; all others are left unchanged."""
COMPLETED = "PodCompleted"
FAILED = "PodFailed"
_REASONS: Final = {ADVISORY: "Advisory", SAMPLED: "Sampled", KERNEL: "ByKernel"}
"""The weakest enforcement first: it is the reason of the condition."""


def conditions(
    pod: Pod,
    phase: str,
    statuses: Sequence[ContainerStatus],
    *,
    previous: Sequence[PodCondition],
    sandbox_ready: bool,
    resize: Sequence[PodCondition],
    limits: Sequence[PodCondition] = (),
    now: str,
) -> list[PodCondition]:
    """Return all conditions of a pod; times of unchanged ones are taken from `previous`."""
    others = [condition for condition in pod.status.conditions if condition.type not in OWN]
    known = {status.name: status for status in statuses}
    before = {condition.type: condition for condition in previous}
    containers = _containers_ready(pod, phase, known)
    own = [
        PodCondition(type=READY_TO_START, status=_word(sandbox_ready)),
        _initialized(pod, phase, known),
        _ready(pod, containers, others),
        containers,
        PodCondition(type=SCHEDULED, status="True"),
        *limits,
    ]
    timed = [_with_times(condition, before, pod.metadata.generation, now) for condition in own]
    return [*others, *resize, *timed]


def _with_times(
    condition: PodCondition, before: Mapping[str, PodCondition], generation: int, now: str
) -> PodCondition:
    """Return a condition with the time at which its status last changed."""
    old = before.get(condition.type)
    same = old is not None and old.status == condition.status and old.lastTransitionTime
    since = old.lastTransitionTime if old is not None and same else now
    return replace(condition, lastTransitionTime=since, observedGeneration=generation)


def _containers_ready(pod: Pod, phase: str, known: Mapping[str, ContainerStatus]) -> PodCondition:
    lasting = [c.name for c in pod.spec.initContainers if is_sidecar(c)]
    names = lasting + [c.name for c in pod.spec.containers]
    unknown = [name for name in names if name not in known]
    if phase == "Failed" or (phase == "Succeeded" and not unknown):
        reason = FAILED if phase == "Failed" else COMPLETED
        return PodCondition(type=CONTAINERS_READY, status="False", reason=reason)
    unready = [name for name in names if name in known and not known[name].ready]
    message = _listed(("unknown", unknown), ("unready", unready))
    if message:
        return PodCondition(
            type=CONTAINERS_READY, status="False", reason="ContainersNotReady", message=message
        )
    return PodCondition(type=CONTAINERS_READY, status="True")


def _ready(pod: Pod, containers: PodCondition, others: Sequence[PodCondition]) -> PodCondition:
    if containers.status != "True":
        return replace(containers, type=READY)
    message = ", ".join(_closed_gates(pod, {c.type: c.status for c in others}))
    if message:
        return PodCondition(
            type=READY, status="False", reason="ReadinessGatesNotReady", message=message
        )
    return PodCondition(type=READY, status="True")


def _closed_gates(pod: Pod, statuses: Mapping[str, str]) -> Iterator[str]:
    for gate in pod.spec.readinessGates:
        name = gate.conditionType
        if name not in statuses:
            yield f'corresponding condition of pod readiness gate "{name}" does not exist.'
        elif statuses[name] != "True":
            status = statuses[name]
            yield f'the status of pod readiness gate "{name}" is not "True", but {status}'


def _initialized(pod: Pod, phase: str, known: Mapping[str, ContainerStatus]) -> PodCondition:
    names = [c.name for c in pod.spec.initContainers]
    unknown = [name for name in names if name not in known]
    if phase == "Succeeded" and not unknown:
        return PodCondition(type=INITIALIZED, status="True", reason=COMPLETED)
    incomplete = [
        c.name
        for c in pod.spec.initContainers
        if c.name in known and not _done(known[c.name], lasting=is_sidecar(c))
    ]
    message = _listed(("unknown", unknown), ("incomplete", incomplete))
    if not message or any(_has_begun(known.get(c.name)) for c in pod.spec.containers):
        return PodCondition(type=INITIALIZED, status="True")
    return PodCondition(
        type=INITIALIZED, status="False", reason="ContainersNotInitialized", message=message
    )


def _done(status: ContainerStatus, *, lasting: bool) -> bool:
    return bool(status.started) if lasting else status.ready


def _has_begun(status: ContainerStatus | None) -> bool:
    return status is not None and status.state.waiting is None


def _listed(*groups: tuple[str, Sequence[str]]) -> str:
    return ", ".join(
        f"containers with {what} status: [{' '.join(names)}]" for what, names in groups if names
    )


def _word(value: bool) -> str:
    return "True" if value else "False"


def limit_condition(pod: Pod, machine: MachineCapabilities) -> Sequence[PodCondition]:
    """Return the condition that tells how limits are enforced; none if the pod has no limits, or
    the node all rights of root."""
    found = {
        name: kind
        for name, kind in (("cpu", machine.cpu), ("memory", machine.memory))
        if machine.level != FULL and _is_limited(pod, name)
    }
    weakest = next((kind for kind in _REASONS if kind in found.values()), None)
    if weakest is None:
        return ()
    return (
        PodCondition(
            type=LIMITS_ENFORCED,
            status="False" if weakest == ADVISORY else "True",
            reason=_REASONS[weakest],
            message=", ".join(f"{name}={kind}" for name, kind in found.items()),
        ),
    )


def _is_limited(pod: Pod, resource: str) -> bool:
    whole = pod.spec.resources
    containers = (*pod.spec.initContainers, *pod.spec.containers)
    return (whole is not None and resource in whole.limits) or any(
        resource in each.resources.limits for each in containers
    )
