"""Status: what the API is told about a pod, worked out from what is observed. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

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
from kedge.node import marks
from kedge.node.conditions import conditions
from kedge.node.ending import TERMINAL, Ending
from kedge.node.observed import NOTHING, Observed
from kedge.node.phase import phase
from kedge.node.plan import Health, Kind, Waiting
from kedge.node.restarts import restarts
from kedge.node.runtime import runtime
from kedge.node.runtime.runtime import State

POD_MESSAGES = 12 * 1024
"""Bytes that the termination messages of a pod may have together."""
LOST = 137
"""Exit code of a container of which nobody knows how it ended."""
LOST_REASON = "ContainerStatusUnknown"


@dataclass(frozen=True)
class Facts:
    """All that a pod's status depends on, besides the pod."""

    now: datetime
    observed: Observed = NOTHING
    previous: PodStatus = field(default_factory=PodStatus)
    """What was told last."""
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    """By name of the container: why it does not run."""
    health: Health = field(default_factory=Health)
    messages: Mapping[str, str] = field(default_factory=dict)
    """By id of the container: what it said when it ended."""
    actual: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    """By name: what a container was last given, where that is not what it began with."""
    resize: Sequence[PodCondition] = ()
    host_ips: Sequence[str] = ()
    shared_ips: Sequence[str] = ()
    """Addresses of a pod without any of its own: those of the machine, if it is on that network."""
    terminal: bool = False
    """Nothing runs any more, and nothing will be started."""
    ending: Ending | None = None
    devices: Mapping[str, Sequence[ResourceStatus]] = field(default_factory=dict)
    """By name: how a container's devices are."""


def pod_status(pod: Pod, facts: Facts) -> PodStatus:
    """The whole status of a pod that has been admitted."""
    init = list(_statuses(pod, Kind.INIT, pod.spec.initContainers, facts))
    main = list(_statuses(pod, Kind.MAIN, pod.spec.containers, facts))
    extra = list(_statuses(pod, Kind.EPHEMERAL, pod.spec.ephemeralContainers, facts))
    word, reason, message = _outcome(pod, facts, init, main)
    previous = facts.previous
    ips = _ips(facts)
    now = format_time(facts.now)
    return PodStatus(
        observedGeneration=max(pod.metadata.generation, previous.observedGeneration),
        phase=word,
        conditions=conditions(
            pod,
            word,
            [*init, *main],
            previous=previous.conditions or pod.status.conditions,
            sandbox_ready=facts.observed.ready_sandbox is not None,
            resize=() if facts.terminal else facts.resize,
            now=now,
        ),
        reason=reason,
        message=message,
        hostIP=facts.host_ips[0] if facts.host_ips else "",
        hostIPs=[HostIP(ip=ip) for ip in facts.host_ips] or (),
        podIP=ips[0] if ips else "",
        podIPs=[PodIP(ip=ip) for ip in ips] or (),
        startTime=previous.startTime or pod.status.startTime or now,
        # What is not there is written as the API reads it, or it would seem to be news each time.
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


def rejected(pod: Pod, reason: str, message: str, now: datetime) -> PodStatus:
    """The status of a pod that this node does not take."""
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
    pod: Pod, facts: Facts, init: list[ContainerStatus], main: list[ContainerStatus]
) -> tuple[str, str, str]:
    """Phase, reason and message. A pod does not come back from its end, nor reaches it early."""
    previous = facts.previous if facts.previous.phase else pod.status
    if pod.status.phase in TERMINAL:
        return pod.status.phase, pod.status.reason, pod.status.message
    if not facts.terminal and facts.ending is not None:
        return previous.phase or "Pending", previous.reason, previous.message
    if facts.ending is not None and facts.ending.reason:
        return "Failed", facts.ending.reason, facts.ending.message
    begun = any(facts.observed.current(c.name) is not None for c in pod.spec.containers)
    word = phase(pod.spec, [*init, *main], terminal=facts.terminal, initialized=begun)
    if facts.terminal and word not in TERMINAL:
        # It ended before it had begun.
        word = "Failed"
    if word == previous.phase:
        return word, previous.reason, previous.message
    return word, "", ""


def _ips(facts: Facts) -> Sequence[str]:
    sandbox = facts.observed.sandbox
    known = [ip.ip for ip in facts.previous.podIPs]
    if sandbox is None:
        return known if facts.ending is not None else ()
    return sandbox.ips or known or facts.shared_ips


# The containers.


def _statuses(
    pod: Pod, kind: Kind, containers: Iterable[Container], facts: Facts
) -> Iterator[ContainerStatus]:
    before = {status.name: status for status in _before(kind, facts.previous)}
    for container in containers:
        status = _seen(pod, container, facts, before.get(container.name))
        status = _waits(pod, kind, container, facts, status)
        status = _equipped(container, facts, before.get(container.name), status)
        yield _probed(kind, container, facts, status)


def _equipped(
    container: Container, facts: Facts, before: ContainerStatus | None, status: ContainerStatus
) -> ContainerStatus:
    """With its devices; those that it had stay in the status when they are given back."""
    devices = facts.devices.get(container.name) or (
        before.allocatedResourcesStatus if before is not None else ()
    )
    return replace(status, allocatedResourcesStatus=devices) if devices else status


def _before(kind: Kind, status: PodStatus) -> Sequence[ContainerStatus]:
    return {
        Kind.INIT: status.initContainerStatuses,
        Kind.MAIN: status.containerStatuses,
        Kind.EPHEMERAL: status.ephemeralContainerStatuses,
    }[kind]


def _seen(
    pod: Pod, container: Container, facts: Facts, before: ContainerStatus | None
) -> ContainerStatus:
    records = facts.observed.by_name.get(container.name, ())
    if not records:
        return _unseen(pod, container, facts, before)
    limit = POD_MESSAGES // max(_count(pod), 1)
    newest = records[0]
    last = ContainerState()
    if len(records) > 1:
        last = _state(records[1], facts, limit)
    elif before is not None:
        last = _carried(before, newest)
    running = newest.state is State.RUNNING
    actual = facts.actual.get(container.name) or marks.started_with(newest) if running else None
    return ContainerStatus(
        name=container.name,
        state=_state(newest, facts, limit),
        lastState=last,
        restartCount=max(newest.attempt, before.restartCount if before is not None else 0),
        image=newest.annotations.get(marks.IMAGE) or newest.image_name or container.image,
        imageID=newest.annotations.get(marks.IMAGE_ID) or newest.image,
        containerID=identity(newest.id),
        allocatedResources=container.resources.requests,
        resources=actual or container.resources,
        volumeMounts=list(_mounts(container)) or (),
        user=_user(newest) if newest.state is not State.CREATED else None,
    )


def identity(container: str) -> str:
    """The id of a container as statuses spell it."""
    return f"kedge://{container}"


def _carried(before: ContainerStatus, newest: runtime.Container) -> ContainerState:
    """How the container ended last, of which only the status told so far still knows."""
    ended = before.state.terminated
    if ended is not None and before.containerID != identity(newest.id):
        return ContainerState(terminated=ended)
    return before.lastState


def _unseen(
    pod: Pod, container: Container, facts: Facts, before: ContainerStatus | None
) -> ContainerStatus:
    """The status of a container of which the runtime has nothing."""
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
    # There was a container, and the runtime has lost it: what comes next is another.
    last = before.lastState
    if before.state.running is not None:
        last = ContainerState(
            terminated=ContainerStateTerminated(
                exitCode=LOST,
                reason=LOST_REASON,
                message="The container could not be located when the pod was deleted.  "
                "The container used to be Running",
            )
        )
    again = 0 if pod.metadata.deletionTimestamp else 1
    return replace(status, lastState=last, restartCount=before.restartCount + again)


def _state(record: runtime.Container, facts: Facts, limit: int) -> ContainerState:
    match record.state:
        case State.CREATED:
            return ContainerState(waiting=ContainerStateWaiting())
        case State.RUNNING:
            return ContainerState(running=ContainerStateRunning(startedAt=_time(record.started_at)))
    said = facts.messages.get(record.id, "")
    return ContainerState(
        terminated=ContainerStateTerminated(
            exitCode=record.exit_code,
            reason=record.reason or ("Completed" if record.exit_code == 0 else "Error"),
            message=_cut(": ".join(part for part in (record.message, said) if part), limit),
            startedAt=_time(record.started_at),
            finishedAt=_time(record.finished_at),
            containerID=identity(record.id),
        )
    )


def _cut(text: str, limit: int) -> str:
    """At most so many bytes of a text."""
    return text.encode()[:limit].decode(errors="ignore")


def _time(nanoseconds: int) -> str:
    return format_time(datetime.fromtimestamp(nanoseconds // SECOND, UTC))


def _waits(
    pod: Pod, kind: Kind, container: Container, facts: Facts, status: ContainerStatus
) -> ContainerStatus:
    """Say why a container waits, if it is to be started and is not."""
    waiting = facts.waiting.get(container.name)
    newest = facts.observed.newest(container.name)
    if waiting is None or facts.terminal or pod.metadata.deletionTimestamp:
        return status
    if newest is not None and newest.state is State.RUNNING:
        return status
    if newest is not None and newest.state is State.EXITED:
        done = kind is Kind.INIT and newest.exit_code == 0 and not is_sidecar(container)
        if done or not restarts(pod.spec, container, newest.exit_code):
            return status
    last = status.state if status.state.terminated is not None else status.lastState
    state = ContainerStateWaiting(reason=waiting.reason, message=waiting.message)
    return replace(status, lastState=last, state=ContainerState(waiting=state))


def _probed(
    kind: Kind, container: Container, facts: Facts, status: ContainerStatus
) -> ContainerStatus:
    """Whether the container has started, and whether it is ready."""
    if kind is Kind.EPHEMERAL:
        return status
    ended = status.state.terminated
    if status.state.running is None:
        done = kind is Kind.INIT and ended is not None and ended.exitCode == 0
        return replace(status, started=False, ready=done and not is_sidecar(container))
    newest = facts.observed.newest(container.name)
    assert newest is not None
    health = facts.health
    started = container.startupProbe is None or health.startup.get(newest.id) is True
    ready = started and (
        container.readinessProbe is None or health.readiness.get(newest.id) is True
    )
    lasting = kind is Kind.MAIN or is_sidecar(container)
    return replace(status, started=started, ready=ready and lasting)


def _mounts(container: Container) -> Iterator[VolumeMountStatus]:
    for mount in container.volumeMounts:
        recursive = None
        if mount.readOnly:
            wanted = mount.recursiveReadOnly in ("IfPossible", "Enabled")
            recursive = "Enabled" if wanted else "Disabled"
        yield VolumeMountStatus(
            name=mount.name,
            mountPath=mount.mountPath,
            readOnly=mount.readOnly,
            recursiveReadOnly=recursive,
        )


def _user(record: runtime.Container) -> ContainerUser:
    linux = LinuxContainerUser(
        uid=record.user, gid=record.group, supplementalGroups=record.groups or [record.group]
    )
    return ContainerUser(linux=linux)


def _count(pod: Pod) -> int:
    spec = pod.spec
    return len(spec.containers) + len(spec.initContainers) + len(spec.ephemeralContainers)


# The end.


def final(pod: Pod, status: PodStatus) -> PodStatus:
    """The last status of a pod: nothing in it runs or waits any more."""
    main = status.containerStatuses
    if _initialized(pod, status):
        main = [_ended(container) for container in main]
    begun = [i for i, c in enumerate(status.initContainerStatuses) if _has_run(c)]
    reached = begun[-1] + 1 if begun else min(len(status.initContainerStatuses), 1)
    init = [
        _ended(container) if i < reached else container
        for i, container in enumerate(status.initContainerStatuses)
    ]
    word = status.phase if status.phase in TERMINAL else "Failed"
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


def _ended(status: ContainerStatus) -> ContainerStatus:
    if status.state.terminated is not None:
        return status
    lost = ContainerStateTerminated(
        exitCode=LOST,
        reason=LOST_REASON,
        message="The container could not be located when the pod was terminated",
    )
    return replace(status, state=ContainerState(terminated=lost), started=False, ready=False)
