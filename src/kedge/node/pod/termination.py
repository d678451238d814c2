"""Termination of a pod: whether it ends, why, and the grace period of its containers. Pure."""

import msgspec

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.machinery.durations import parse_time
from kedge.node.pod.restart_policy import restarts
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.pod.worker_state import EVICTED_REASON, ApiObjectState, WorkerState
from kedge.node.runtime.runtime import RunState

TERMINAL_PHASES = ("Succeeded", "Failed")
MINIMUM_GRACE_SECONDS = 1.0
DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class PodTermination(msgspec.Struct, frozen=True):
    """The end of a pod."""

    grace: float
    """Seconds between SIGTERM and SIGKILL."""
    reason: str = ""
    """The reason in the pod's status, if the pod fails as a whole."""
    message: str = ""


def termination(
    pod: Pod, observed: PodRuntimeState, now: float, state: WorkerState
) -> PodTermination | None:
    """Return how a pod ends; None for a pod that runs.

    The first matching cause decides. Deletion comes before eviction and deadline: a user who
    deletes a pod set its grace period, and a pod that is deleted has no use for a reason.
    """
    own = float(pod.spec.terminationGracePeriodSeconds or 0)
    if state.api_object is ApiObjectState.REMOVED:
        # The agent deletes the object after the containers, so this was a forced deletion.
        return PodTermination(MINIMUM_GRACE_SECONDS)
    if pod.metadata.deletionTimestamp:
        return PodTermination(_deletion_grace(pod, own, now))
    if pod.status.phase in TERMINAL_PHASES:
        return PodTermination(own)
    if state.eviction:
        return PodTermination(MINIMUM_GRACE_SECONDS, EVICTED_REASON, state.eviction)
    deadline = deadline_of(pod)
    if deadline is not None and now >= deadline:
        return PodTermination(own, DEADLINE_REASON, DEADLINE_MESSAGE)
    if finished(pod, observed):
        return PodTermination(own)
    return None


def deadline_of(pod: Pod) -> float | None:
    """Return when activeDeadlineSeconds expires, in seconds since the epoch."""
    seconds = pod.spec.activeDeadlineSeconds
    if seconds is None or not pod.status.startTime:
        return None
    return parse_time(pod.status.startTime).timestamp() + seconds


def finished(pod: Pod, observed: PodRuntimeState) -> bool:
    """Return whether no container will run again: all have ended, initialization has failed, or a
    pod that runs once has lost its sandbox."""
    spec = pod.spec
    records = [(container, observed.newest(container.name)) for container in spec.containers]
    if all(
        record is not None
        and record.state is RunState.EXITED
        and not restarts(spec, container, record.exit_code)
        for container, record in records
    ):
        return True
    return _initialization_failed(pod, observed) or _lost(pod, observed)


def _initialization_failed(pod: Pod, observed: PodRuntimeState) -> bool:
    if any(observed.newest(container.name) is not None for container in pod.spec.containers):
        return False
    for container in pod.spec.initContainers:
        record = observed.newest(container.name)
        if is_sidecar(container) or record is None or record.state is not RunState.EXITED:
            continue
        if record.exit_code != 0 and not restarts(pod.spec, container, record.exit_code):
            return True
    return False


def _lost(pod: Pod, observed: PodRuntimeState) -> bool:
    """Return whether a pod with restartPolicy Never has lost its sandbox after a container ran."""
    if pod.spec.restartPolicy != "Never" or observed.ready_sandbox is not None:
        return False
    if observed.sandbox is None:
        # The runtime has lost its records; only the API knows whether a container ran.
        return any(_has_run(status) for status in pod.status.containerStatuses)
    return any(record.state is not RunState.CREATED for record in observed.containers)


def _has_run(status: ContainerStatus) -> bool:
    return status.state.running is not None or status.state.terminated is not None


def _deletion_grace(pod: Pod, own: float, now: float) -> float:
    meta = pod.metadata
    grace = own if meta.deletionGracePeriodSeconds is None else meta.deletionGracePeriodSeconds
    # deletionTimestamp is the end of the grace period: a restarted agent has less time left.
    left = parse_time(meta.deletionTimestamp).timestamp() - now
    return max(min(float(grace), left), MINIMUM_GRACE_SECONDS)
