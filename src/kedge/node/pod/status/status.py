"""The status of a pod, computed from the runtime's state. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container, ResourceRequirements
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar, pod_requests, qos_class
from kedge.api.core_v1.pod.status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ContainerUser,
    HostIP,
    LinuxContainerUser,
    PodCondition,
    PodIP,
    PodStatus,
    ResourceStatus,
    VolumeMountStatus,
)
from kedge.machinery.durations import SECOND, format_time
from kedge.node.pod import labels
from kedge.node.pod.actions import ContainerKind
from kedge.node.pod.plan import ProbeVerdicts
from kedge.node.pod.restart_policy import restarts
from kedge.node.pod.runtime_cache import EMPTY, PodRuntimeState
from kedge.node.pod.status.conditions import conditions
from kedge.node.pod.status.phase import phase
from kedge.node.pod.termination import TERMINAL_PHASES, PodTermination
from kedge.node.pod.waiting import WaitingReason
from kedge.node.runtime import runtime
from kedge.node.runtime.runtime import RunState

POD_MESSAGE_BYTES = 12 * 1024
"""Bytes of all termination messages of a pod together, as in the kubelet."""
LOST_EXIT_CODE = 137
"""Exit code of a container whose exit status is lost."""
LOST_REASON = "ContainerStatusUnknown"


class StatusInput(msgspec.Struct, frozen=True):
    """Everything that a pod's status depends on, besides the pod."""

    now: datetime
    observed: PodRuntimeState = EMPTY
    previous: PodStatus = msgspec.field(default_factory=PodStatus)
    """The latest status."""
    waiting: Mapping[str, WaitingReason] = msgspec.field(default_factory=dict)
    """By container name: why it does not run."""
    verdicts: ProbeVerdicts = msgspec.field(default_factory=ProbeVerdicts)
    messages: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By container id: its termination message."""
    actuated: Mapping[str, ResourceRequirements] = msgspec.field(default_factory=dict)
    """By container name: the resources of the latest resize, if it was resized since its start."""
    resize: Sequence[PodCondition] = ()
    limits: Sequence[PodCondition] = ()
    """How limits are enforced, if not all are by the kernel with the rights of root."""
    host_ips: Sequence[str] = ()
    shared_ips: Sequence[str] = ()
    """The machine's addresses, for a pod on the machine's network."""
    terminal: bool = False
    """Whether no container runs and none will be started."""
    termination: PodTermination | None = None
    devices: Mapping[str, Sequence[ResourceStatus]] = msgspec.field(default_factory=dict)
    """By container name: the health of its devices."""


def pod_status(pod: Pod, given: StatusInput) -> PodStatus:
    """Return the status of an admitted pod."""
    init = list(_statuses(pod, ContainerKind.INIT, pod.spec.initContainers, given))
    main = list(_statuses(pod, ContainerKind.MAIN, pod.spec.containers, given))
    extra = list(_statuses(pod, ContainerKind.EPHEMERAL, pod.spec.ephemeralContainers, given))
    word, reason, message = _outcome(pod, given, init, main)
    previous = given.previous
    ips = _ips(given)
    now = format_time(given.now)
    return PodStatus(
        observedGeneration=max(pod.metadata.generation, previous.observedGeneration),
        phase=word,
        conditions=conditions(
            pod,
            word,
            [*init, *main],
            previous=previous.conditions or pod.status.conditions,
            sandbox_ready=given.observed.ready_sandbox is not None,
            resize=() if given.terminal else given.resize,
            limits=given.limits,
            now=now,
        ),
        reason=reason,
        message=message,
        hostIP=given.host_ips[0] if given.host_ips else "",
        hostIPs=[HostIP(ip=ip) for ip in given.host_ips] or (),
        podIP=ips[0] if ips else "",
        podIPs=[PodIP(ip=ip) for ip in ips] or (),
        startTime=previous.startTime or pod.status.startTime or now,
        # Empty lists are written as the API decodes them; otherwise every report would differ.
        initContainerStatuses=init or (),
        containerStatuses=sorted(main, key=lambda status: status.name) or (),
        ephemeralContainerStatuses=sorted(extra, key=lambda status: status.name) or (),
        qosClass=qos_class(pod),
        resources=pod.spec.resources,
        allocatedResources=pod_requests(pod.spec) if pod.spec.resources is not None else {},
        nominatedNodeName=pod.status.nominatedNodeName,
        resourceClaimStatuses=pod.status.resourceClaimStatuses,
        extendedResourceClaimStatus=pod.status.extendedResourceClaimStatus,
    )


def rejected_status(pod: Pod, reason: str, message: str, now: datetime) -> PodStatus:
    """Return the status of a pod that this node does not admit."""
    return PodStatus(
        phase="Failed",
        reason=reason,
        message=f"Pod was rejected: {message}",
        conditions=pod.status.conditions,
        startTime=pod.status.startTime or format_time(now),
        observedGeneration=pod.metadata.generation,
        qosClass=qos_class(pod),
        nominatedNodeName=pod.status.nominatedNodeName,
        resourceClaimStatuses=pod.status.resourceClaimStatuses,
    )


def _outcome(
    pod: Pod, given: StatusInput, init: list[ContainerStatus], main: list[ContainerStatus]
) -> tuple[str, str, str]:
    """Return phase, reason and message.

    A terminal phase is final: controllers may have replaced the pod. And no pod is terminal while a
    container runs, so a pod that ends keeps its phase until the last container has ended.
    """
    previous = given.previous if given.previous.phase else pod.status
    if pod.status.phase in TERMINAL_PHASES:
        return pod.status.phase, pod.status.reason, pod.status.message
    if not given.terminal and given.termination is not None:
        return previous.phase or "Pending", previous.reason, previous.message
    if given.termination is not None and given.termination.reason:
        return "Failed", given.termination.reason, given.termination.message
    begun = any(given.observed.current(c.name) is not None for c in pod.spec.containers)
    word = phase(pod.spec, [*init, *main], terminal=given.terminal, initialized=begun)
    if given.terminal and word not in TERMINAL_PHASES:
        # The pod ended before its containers started.
        word = "Failed"
    if word == previous.phase:
        return word, previous.reason, previous.message
    return word, "", ""


def _ips(given: StatusInput) -> Sequence[str]:
    sandbox = given.observed.sandbox
    known = [ip.ip for ip in given.previous.podIPs]
    if sandbox is None:
        return known if given.termination is not None else ()
    return sandbox.ips or known or given.shared_ips


# The containers.


def _statuses(
    pod: Pod, kind: ContainerKind, containers: Iterable[Container], given: StatusInput
) -> Iterator[ContainerStatus]:
    before = {status.name: status for status in _before(kind, given.previous)}
    for container in containers:
        status = _container_status(pod, container, given, before.get(container.name))
        status = _with_waiting(pod, kind, container, given, status)
        status = _with_devices(container, given, before.get(container.name), status)
        yield _with_readiness(kind, container, given, status)


def _with_devices(
    container: Container,
    given: StatusInput,
    before: ContainerStatus | None,
    status: ContainerStatus,
) -> ContainerStatus:
    """Add the container's devices; those of the latest status stay after their release."""
    devices = given.devices.get(container.name) or (
        before.allocatedResourcesStatus if before is not None else ()
    )
    return replace(status, allocatedResourcesStatus=devices) if devices else status


def _before(kind: ContainerKind, status: PodStatus) -> Sequence[ContainerStatus]:
    return {
        ContainerKind.INIT: status.initContainerStatuses,
        ContainerKind.MAIN: status.containerStatuses,
        ContainerKind.EPHEMERAL: status.ephemeralContainerStatuses,
    }[kind]


def _container_status(
    pod: Pod, container: Container, given: StatusInput, before: ContainerStatus | None
) -> ContainerStatus:
    records = given.observed.by_name.get(container.name, ())
    if not records:
        return _lost_container_status(pod, container, given, before)
    limit = POD_MESSAGE_BYTES // max(_count(pod), 1)
    newest = records[0]
    last = ContainerState()
    if len(records) > 1:
        last = _state(records[1], given, limit)
    elif before is not None:
        last = _carried(before, newest)
    running = newest.state is RunState.RUNNING
    actual = given.actuated.get(container.name) or labels.started_with(newest) if running else None
    return ContainerStatus(
        name=container.name,
        state=_state(newest, given, limit),
        lastState=last,
        restartCount=max(newest.attempt, before.restartCount if before is not None else 0),
        image=newest.annotations.get(labels.IMAGE) or newest.image_name or container.image,
        imageID=newest.annotations.get(labels.IMAGE_ID) or newest.image,
        containerID=newest.url,
        allocatedResources=container.resources.requests,
        resources=actual or container.resources,
        volumeMounts=list(_mounts(container)) or (),
        user=_user(newest) if newest.state is not RunState.CREATED else None,
    )


def _carried(before: ContainerStatus, newest: runtime.RuntimeContainer) -> ContainerState:
    """Return the previous end of a container whose record is removed, from the latest status."""
    ended = before.state.terminated
    if ended is not None and before.containerID != newest.url:
        return ContainerState(terminated=ended)
    return before.lastState


def _lost_container_status(
    pod: Pod, container: Container, given: StatusInput, before: ContainerStatus | None
) -> ContainerStatus:
    """Return the status of a container without a record in the runtime."""
    if before is not None and before.state.terminated is not None:
        return before
    initializing = bool(pod.spec.initContainers)
    reason = "PodInitializing" if initializing else "ContainerCreating"
    status = ContainerStatus(
        name=container.name,
        image=container.image,
        state=ContainerState(waiting=ContainerStateWaiting(reason=reason)),
        volumeMounts=list(_mounts(container)) or (),
    )
    if before is None:
        return status
    status = replace(status, restartCount=before.restartCount, lastState=before.lastState)
    if not before.containerID:
        return status
    # The runtime has lost the container: its exit status is unknown, and the next one is a restart.
    last = before.lastState
    if before.state.running is not None:
        last = ContainerState(
            terminated=ContainerStateTerminated(
                exitCode=LOST_EXIT_CODE,
                reason=LOST_REASON,
                message="The container could not be located when the pod was deleted.  "
                "The container used to be Running",
            )
        )
    again = 0 if pod.metadata.deletionTimestamp else 1
    return replace(status, lastState=last, restartCount=before.restartCount + again)


def _state(record: runtime.RuntimeContainer, given: StatusInput, limit: int) -> ContainerState:
    match record.state:
        case RunState.CREATED:
            return ContainerState(waiting=ContainerStateWaiting())
        case RunState.RUNNING:
            return ContainerState(running=ContainerStateRunning(startedAt=_time(record.started_at)))
    text = given.messages.get(record.id, "")
    return ContainerState(
        terminated=ContainerStateTerminated(
            exitCode=record.exit_code,
            reason=record.reason or ("Completed" if record.exit_code == 0 else "Error"),
            message=_cut(": ".join(part for part in (record.message, text) if part), limit),
            startedAt=_time(record.started_at),
            finishedAt=_time(record.finished_at),
            containerID=record.url,
        )
    )


def _cut(text: str, limit: int) -> str:
    """Return at most `limit` bytes of a text, without a partial character."""
    return text.encode()[:limit].decode(errors="ignore")


def _time(nanoseconds: int) -> str:
    return format_time(datetime.fromtimestamp(nanoseconds // SECOND, UTC))


def _with_waiting(
    pod: Pod, kind: ContainerKind, container: Container, given: StatusInput, status: ContainerStatus
) -> ContainerStatus:
    """Add the waiting state of a container that will be started."""
    waiting = given.waiting.get(container.name)
    newest = given.observed.newest(container.name)
    if waiting is None or given.terminal or pod.metadata.deletionTimestamp:
        return status
    if newest is not None and newest.state is RunState.RUNNING:
        return status
    if newest is not None and newest.state is RunState.EXITED:
        done = kind is ContainerKind.INIT and newest.exit_code == 0 and not is_sidecar(container)
        if done or not restarts(pod.spec, container, newest.exit_code):
            return status
    last = status.state if status.state.terminated is not None else status.lastState
    state = ContainerStateWaiting(reason=waiting.reason, message=waiting.message)
    return replace(status, lastState=last, state=ContainerState(waiting=state))


def _with_readiness(
    kind: ContainerKind, container: Container, given: StatusInput, status: ContainerStatus
) -> ContainerStatus:
    """Add `started` and `ready`."""
    if kind is ContainerKind.EPHEMERAL:
        return status
    ended = status.state.terminated
    if status.state.running is None:
        done = kind is ContainerKind.INIT and ended is not None and ended.exitCode == 0
        return replace(status, started=False, ready=done and not is_sidecar(container))
    newest = given.observed.newest(container.name)
    assert newest is not None
    verdicts = given.verdicts
    started = container.startupProbe is None or verdicts.startup.get(newest.id) is True
    # Only a simulated container has a verdict without a probe.
    ready = started and verdicts.readiness.get(newest.id, container.readinessProbe is None)
    lasting = kind is ContainerKind.MAIN or is_sidecar(container)
    return replace(status, started=started, ready=ready and lasting)


def _mounts(container: Container) -> Iterator[VolumeMountStatus]:
    for mount in container.volumeMounts:
        recursive = None
        if mount.readOnly:
            is_recursive = mount.recursiveReadOnly in ("IfPossible", "Enabled")
            recursive = "Enabled" if is_recursive else "Disabled"
        yield VolumeMountStatus(
            name=mount.name,
            mountPath=mount.mountPath,
            readOnly=mount.readOnly,
            recursiveReadOnly=recursive,
        )


def _user(record: runtime.RuntimeContainer) -> ContainerUser:
    linux = LinuxContainerUser(
        uid=record.user, gid=record.group, supplementalGroups=record.groups or [record.group]
    )
    return ContainerUser(linux=linux)


def _count(pod: Pod) -> int:
    spec = pod.spec
    return len(spec.containers) + len(spec.initContainers) + len(spec.ephemeralContainers)


# The final status.


def final_status(pod: Pod, status: PodStatus) -> PodStatus:
    """Return the final status of a pod: no container runs or waits."""
    main = status.containerStatuses
    if _initialized(pod, status):
        main = [_terminated(container) for container in main]
    begun = [i for i, c in enumerate(status.initContainerStatuses) if _has_run(c)]
    reached = begun[-1] + 1 if begun else min(len(status.initContainerStatuses), 1)
    init = [
        _terminated(container) if i < reached else container
        for i, container in enumerate(status.initContainerStatuses)
    ]
    word = status.phase if status.phase in TERMINAL_PHASES else "Failed"
    return replace(
        status, phase=word, containerStatuses=main or (), initContainerStatuses=init or ()
    )


def _initialized(pod: Pod, status: PodStatus) -> bool:
    if not pod.spec.initContainers or any(_has_run(c) for c in status.containerStatuses):
        return True
    if not status.initContainerStatuses:
        return False
    last = status.initContainerStatuses[-1]
    return bool(last.ready or last.started)


def _has_run(status: ContainerStatus) -> bool:
    return status.state.waiting is None or status.lastState.terminated is not None


def _terminated(status: ContainerStatus) -> ContainerStatus:
    if status.state.terminated is not None:
        return status
    lost = ContainerStateTerminated(
        exitCode=LOST_EXIT_CODE,
        reason=LOST_REASON,
        message="The container could not be located when the pod was terminated",
    )
    return replace(status, state=ContainerState(terminated=lost), started=False, ready=False)
