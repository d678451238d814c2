"""Ending: whether a pod is to end, why, and how long its containers may take."""

from dataclasses import dataclass

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.machinery.durations import parse_time
from kedge.node.observed import Observed
from kedge.node.restarts import restarts
from kedge.node.runtime.runtime import State

TERMINAL = ("Succeeded", "Failed")
LEAST = 1.0
"""Seconds that every container gets at its end."""
EVICTED_REASON = "Evicted"
DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


@dataclass(frozen=True, slots=True)
class Ending:
    """A pod's end."""

    grace: float
    """Seconds for its containers to obey."""
    reason: str = ""
    """What its status says, if it failed as a whole."""
    message: str = ""


def ending(
    pod: Pod, seen: Observed, now: float, *, removed: bool, evicted: str = ""
) -> Ending | None:
    """How a pod ends, or None for one that is to run; `evicted` says why it has to, if it has."""
    own = float(pod.spec.terminationGracePeriodSeconds or 0)
    if removed:
        # We let an object go after its containers; one that went before was deleted by force.
        return Ending(LEAST)
    if pod.metadata.deletionTimestamp:
        return Ending(_deletion_grace(pod, own, now))
    if pod.status.phase in TERMINAL:
        return Ending(own)
    if evicted:
        return Ending(LEAST, EVICTED_REASON, evicted)
    deadline = deadline_of(pod)
    if deadline is not None and now >= deadline:
        return Ending(own, DEADLINE_REASON, DEADLINE_MESSAGE)
    if finished(pod, seen):
        return Ending(own)
    return None


def deadline_of(pod: Pod) -> float | None:
    """When the pod has been active for too long, in seconds since the epoch."""
    seconds = pod.spec.activeDeadlineSeconds
    if seconds is None or not pod.status.startTime:
        return None
    return parse_time(pod.status.startTime).timestamp() + seconds


def finished(pod: Pod, seen: Observed) -> bool:
    """Whether every container has done its work, or one has failed that all others wait for."""
    spec = pod.spec
    records = [(container, seen.newest(container.name)) for container in spec.containers]
    if all(
        record is not None
        and record.state is State.EXITED
        and not restarts(spec, container, record.exit_code)
        for container, record in records
    ):
        return True
    return _failed_to_initialize(pod, seen) or _lost(pod, seen)


def _failed_to_initialize(pod: Pod, seen: Observed) -> bool:
    if any(seen.newest(container.name) is not None for container in pod.spec.containers):
        return False
    for container in pod.spec.initContainers:
        record = seen.newest(container.name)
        if is_sidecar(container) or record is None or record.state is not State.EXITED:
            continue
        if record.exit_code != 0 and not restarts(pod.spec, container, record.exit_code):
            return True
    return False


def _lost(pod: Pod, seen: Observed) -> bool:
    """Whether a pod that runs only once has lost its sandbox after something ran in it."""
    if pod.spec.restartPolicy != "Never" or seen.ready_sandbox is not None:
        return False
    if seen.sandbox is None:
        # The runtime has lost all it knew; the API still knows whether something ran.
        return any(_has_run(status) for status in pod.status.containerStatuses)
    return any(record.state is not State.CREATED for record in seen.containers)


def _has_run(status: ContainerStatus) -> bool:
    return status.state.running is not None or status.state.terminated is not None


def _deletion_grace(pod: Pod, own: float, now: float) -> float:
    meta = pod.metadata
    grace = own if meta.deletionGracePeriodSeconds is None else meta.deletionGracePeriodSeconds
    # A pod is deleted at the end of its grace period: an agent that comes later has less left.
    left = parse_time(meta.deletionTimestamp).timestamp() - now
    return max(min(float(grace), left), LEAST)
