"""The columns of `kubectl get pods`: ready containers, status, restarts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kedge.api.core_v1.pod.status import ContainerStateTerminated, ContainerStatus
from kedge.api.presentation import Age, Column, FurtherColumn, age_column, name_column

if TYPE_CHECKING:
    # They may be given a ShownPod as well, which has all that they read.
    from kedge.api.core_v1.pod.pod import Pod

NONE = "<none>"
LIMITS_ENFORCED: Final = "kedge.dev/LimitsEnforced"
"""The type of the condition that tells how limits are enforced. Nodes with all rights of root do
not set it: the kernel enforces all limits there, as users expect."""


class RestartsCell(Age, frozen=True):
    """How often containers were restarted and how long ago the last one ended: `3 (5m ago)`."""

    count: int

    def around(self, age: str) -> str:
        return f"{self.count} ({age} ago)"


def ready(pod: "Pod") -> str:
    """`1/2`: containers that serve, of all that are meant to run together."""
    sidecars = _sidecars(pod)
    count = sum(
        status.ready and status.started is True and status.state.terminated is None
        for status, problem in _initialization(pod)
        if not problem and status.name in sidecars
    )
    if _is_initialized(pod):
        count += sum(_serves(status) for status in pod.status.containerStatuses)
    return f"{count}/{len(pod.spec.containers) + len(sidecars)}"


def status(pod: "Pod") -> str:
    """One word for how the pod fares; the worst of its containers speaks for all."""
    reason = pod.status.reason or pod.status.phase
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason == "SchedulingGated":
            reason = "SchedulingGated"
    for _, problem in _initialization(pod):
        reason = problem or reason
    if _is_initialized(pod):
        reason = _running_reason(pod, reason)
    if pod.metadata.deletionTimestamp:
        if pod.status.reason == "NodeLost":
            return "Unknown"
        if pod.status.phase not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def restarts(pod: "Pod") -> object:
    """How often containers were restarted: those that run now, or that are still to finish."""
    counted = [status for status, _ in _initialization(pod)]
    if _is_initialized(pod):
        sidecars = _sidecars(pod)
        counted = [status for status in counted if status.name in sidecars]
        counted.extend(pod.status.containerStatuses)
    count = sum(status.restartCount for status in counted)
    last = max(_ends(counted), default="")
    return RestartsCell(last, count) if count and last else str(count)


def row_conditions(pod: "Pod") -> Sequence[Mapping[str, str]]:
    """Marks the rows of pods that have finished."""
    if pod.status.phase == "Succeeded":
        return _completed("Succeeded", "The pod has completed successfully.")
    if pod.status.phase == "Failed":
        return _completed("Failed", "The pod failed.")
    return ()


def _completed(reason: str, message: str) -> Sequence[Mapping[str, str]]:
    return ({"type": "Completed", "status": "True", "reason": reason, "message": message},)


def _sidecars(pod: "Pod") -> set[str]:
    """Return the names of the init containers that stay on beside the others."""
    return {each.name for each in pod.spec.initContainers if each.restartPolicy == "Always"}


def _initialization(pod: "Pod") -> Iterable[tuple[ContainerStatus, str]]:
    """Init containers up to the one that the pod waits for, that one with what holds it up."""
    return _init_steps(pod) if pod.status.initContainerStatuses else ()


def _init_steps(pod: "Pod") -> Iterator[tuple[ContainerStatus, str]]:
    sidecars = _sidecars(pod)
    for i, status in enumerate(pod.status.initContainerStatuses):
        terminated, waiting = status.state.terminated, status.state.waiting
        if terminated is not None and terminated.exitCode == 0:
            yield status, ""
            continue
        if status.name in sidecars and status.started:
            yield status, ""
            continue
        if terminated is not None:
            yield status, f"Init:{_end(terminated)}"
        elif waiting is not None and waiting.reason not in ("", "PodInitializing"):
            yield status, f"Init:{waiting.reason}"
        else:
            yield status, f"Init:{i}/{len(pod.spec.initContainers)}"
        return


def _is_initialized(pod: "Pod") -> bool:
    """Whether the containers proper are what counts."""
    if not pod.status.initContainerStatuses or _has_condition(pod, "Initialized"):
        return True
    return not any(problem for _, problem in _initialization(pod))


def _running_reason(pod: "Pod", reason: str) -> str:
    serving, failure = False, ""
    for status in reversed(pod.status.containerStatuses):
        waiting, terminated = status.state.waiting, status.state.terminated
        if waiting is not None and waiting.reason:
            reason = waiting.reason
        elif terminated is not None:
            reason = _end(terminated)
            failure = reason if terminated.exitCode else failure
        else:
            serving = serving or _serves(status)
    if reason != "Completed":
        return reason
    if serving and _has_condition(pod, "Ready"):
        return "Running"
    return failure or ("NotReady" if serving else reason)


def _end(terminated: ContainerStateTerminated) -> str:
    if terminated.reason:
        return terminated.reason
    if terminated.signal:
        return f"Signal:{terminated.signal}"
    return f"ExitCode:{terminated.exitCode}"


def _serves(status: ContainerStatus) -> bool:
    return status.ready and status.state.running is not None


def _ends(statuses: Iterable[ContainerStatus]) -> Iterator[str]:
    for status in statuses:
        if status.lastState.terminated is not None:
            yield status.lastState.terminated.finishedAt


def _has_condition(pod: "Pod", type: str) -> bool:
    return any(c.type == type and c.status == "True" for c in pod.status.conditions)


def _address(pod: "Pod") -> str:
    return pod.status.podIPs[0].ip if pod.status.podIPs else NONE


def _readiness_gates(pod: "Pod") -> str:
    gates = pod.spec.readinessGates
    if not gates:
        return NONE
    met = sum(_has_condition(pod, gate.conditionType) for gate in gates)
    return f"{met}/{len(gates)}"


COLUMNS: Sequence[Column] = (
    name_column(),
    Column(name="Ready", cell=ready, description="How many of the pod's containers are ready."),
    Column(name="Status", cell=status, description="How the pod fares as a whole."),
    Column(
        name="Restarts",
        cell=restarts,
        description="How often containers were restarted, and when the last one ended.",
    ),
    age_column(),
    Column(name="IP", cell=_address, priority=1, description="Address of the pod."),
    Column(
        name="Node",
        cell=lambda pod: pod.spec.nodeName or NONE,
        priority=1,
        description="The node that the pod is placed on.",
    ),
    Column(
        name="Nominated Node",
        cell=lambda pod: pod.status.nominatedNodeName or NONE,
        priority=1,
        description="The node on which room is being made for the pod.",
    ),
    Column(
        name="Readiness Gates",
        cell=_readiness_gates,
        priority=1,
        description="How many of the further conditions for being ready are met.",
    ),
)


def enforcement(pod: "Pod") -> str:
    """Return how limits are enforced: `sampled`, or `cpu=sampled,memory=kernel` if that differs."""
    for condition in pod.status.conditions:
        if condition.type == LIMITS_ENFORCED:
            return _shortened(condition.message)
    return NONE


def _shortened(message: str) -> str:
    found = dict(each.split("=", 1) for each in message.split(", ") if "=" in each)
    kinds = {*found.values()}
    return kinds.pop() if len(kinds) == 1 else ",".join(f"{k}={v}" for k, v in found.items())


LIMITS: Final = FurtherColumn(
    column=Column(
        name="Limits",
        cell=enforcement,
        priority=1,
        description="How the limits of cpu and memory are enforced: by the kernel, by sampling, or"
        " not at all (advisory).",
    ),
    marker=LIMITS_ENFORCED.encode(),
)
