"""The life of a simulated pod, from one moment to the next. Pure.

The plan and the status are those of a real node (kedge.node.pod): init containers, sidecars,
restart policies, back-off, deadlines and graceful deletion behave as there. Only the runtime is
pretended: its records of sandboxes and containers change as the annotations of the pod say.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1 import simulation
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.status import ContainerStatus, PodStatus
from kedge.api.core_v1.simulation import Annotations, ContainerScript
from kedge.machinery.durations import SECOND, format_time, parse_time
from kedge.node.pod import labels
from kedge.node.pod.actions import (
    Action,
    RemoveContainer,
    RemoveSandbox,
    ResizeContainers,
    RunSandbox,
    StartContainer,
    StopContainer,
    StopContainers,
    StopSandbox,
)
from kedge.node.pod.backoff import IMAGE_PULL, BackoffDelay
from kedge.node.pod.plan import PlanInput, PodPlan, ProbeVerdicts, plan
from kedge.node.pod.runtime_cache import EMPTY, PodRuntimeState, pod_runtime_state
from kedge.node.pod.status.status import StatusInput, final_status, pod_status
from kedge.node.pod.termination import TERMINAL_PHASES
from kedge.node.pod.waiting import StepFailure
from kedge.node.runtime.runtime import PodSandbox, RunState, RuntimeContainer

ROUNDS: Final = 10
"""Plans for one moment. More than these are a loop: containers that end at once and restart all."""
PAUSE_SECONDS: Final = 1.0
"""Seconds after which such a loop continues."""
WARNING: Final = "Warning"
LONGEST_CACHED_IMAGE: Final = 512


class PodPlace(msgspec.Struct, frozen=True):
    """The place of a pod: its node, and the addresses that it has there."""

    node_address: str
    pod_address: str
    node_annotations: Annotations = ()


class ContainerStop(NamedTuple):
    """The end of a container that was asked to end, in seconds since the epoch."""

    begun: float
    end: float


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
"""One empty mapping for the thousands of pods without delays and failures."""


class PodLife(msgspec.Struct, frozen=True):
    """Everything that is remembered of a simulated pod."""

    observed: PodRuntimeState = EMPTY
    status: PodStatus | None = None
    """The latest status; None before the first one."""
    starts: Mapping[str, float] = _NOTHING
    """By container: when it starts, if that was decided."""
    stops: Mapping[str, ContainerStop] = _NOTHING
    """By id: the containers that were asked to end."""
    crash_delays: Mapping[str, BackoffDelay] = _NOTHING
    step_failures: Mapping[str, StepFailure] = _NOTHING
    failures: Mapping[str, int] = _NOTHING
    """By container: how often it has failed."""

    def at_rest(self) -> "PodLife":
        """Return the same without what was derived from it: most pods do nothing for long."""
        observed = PodRuntimeState(self.observed.sandboxes, self.observed.containers)
        return replace(self, observed=observed)


class LifeEvent(NamedTuple):
    """An event to record about a container."""

    container: str
    type: str
    reason: str
    message: str


class LifeStep(NamedTuple):
    """The life of a pod at one moment."""

    life: PodLife
    status: PodStatus
    plan: PodPlan
    wake: float | None
    """When to go on, in seconds since the epoch; None if nothing happens by itself."""
    is_over: bool
    """Whether the last container has ended, and none will start."""
    events: tuple[LifeEvent, ...] = ()


def advance(life: PodLife, pod: Pod, place: PodPlace, now: float) -> LifeStep:
    """Return the life of a pod at that moment, in seconds since the epoch."""
    moment = _Moment(life, pod, place, now)
    current = moment.settle()
    return moment.step(current)


def adopted(pod: Pod) -> PodLife:
    """Return the life of a pod as its status tells it: an earlier process has begun it."""
    status = pod.status
    if not status.startTime or not status.podIPs:
        return PodLife()
    meta = pod.metadata
    sandbox = PodSandbox(
        id=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        ready=status.phase not in TERMINAL_PHASES,
        ips=[each.ip for each in status.podIPs],
    )
    specs = {each.name: each for each in (*pod.spec.initContainers, *pod.spec.containers)}
    statuses = (*status.initContainerStatuses, *status.containerStatuses)
    records = [
        record
        for each in statuses
        if each.name in specs and (record := _adopted_container(pod, specs[each.name], each))
    ]
    failures = {each.name: each.restartCount for each in statuses if each.restartCount}
    return PodLife(pod_runtime_state([sandbox], records), status, failures=failures)


def _adopted_container(
    pod: Pod, container: Container, status: ContainerStatus
) -> RuntimeContainer | None:
    ended = status.state.terminated or status.lastState.terminated
    if status.state.running is not None:
        state, started, finished = RunState.RUNNING, status.state.running.startedAt, ""
    elif ended is not None:
        state, started, finished = RunState.EXITED, ended.startedAt, ended.finishedAt
    else:
        return None
    return RuntimeContainer(
        id=container_id(pod.metadata.uid, status.name, status.restartCount),
        sandbox=pod.metadata.uid,
        name=status.name,
        state=state,
        attempt=status.restartCount,
        created_at=_nanoseconds(started),
        started_at=_nanoseconds(started),
        finished_at=_nanoseconds(finished),
        exit_code=ended.exitCode if ended is not None else 0,
        reason=ended.reason if ended is not None else "",
        message=ended.message if ended is not None else "",
        annotations=_record_annotations(container.name, container.image),
    )


def _nanoseconds(time: str) -> int:
    return int(parse_time(time).timestamp() * SECOND) if time else 0


def container_id(uid: str, name: str, attempt: int) -> str:
    """Return the id of one run of a container."""
    return hashlib.sha256(f"{uid}/{name}/{attempt}".encode()).hexdigest()


def _record_annotations(name: str, image: str) -> Mapping[str, str]:
    """Return the annotations by which a plan knows the image, one mapping for all pods. A cache
    would keep a long image after its pod is gone."""
    short = len(image) <= LONGEST_CACHED_IMAGE
    return (_cached_annotations if short else _cached_annotations.__wrapped__)(name, image)


@lru_cache(4096)
def _cached_annotations(name: str, image: str) -> Mapping[str, str]:
    return {labels.HASH: labels.spec_hash(Container(name=name, image=image))}


def scripts_of(pod: Pod, of_node: Annotations) -> dict[str, ContainerScript]:
    """Return the behaviour of each container of a pod."""
    own = simulation.own(pod.metadata.annotations)
    is_of_job = any(each.kind == "Job" for each in pod.metadata.ownerReferences)
    return simulation.scripts_of(
        own,
        of_node,
        (
            *((each.name, not is_sidecar(each), False) for each in pod.spec.initContainers),
            *((each.name, False, is_of_job) for each in pod.spec.containers),
        ),
    )


def _started(status: PodStatus, now: float) -> PodStatus:
    """Return a status with the time at which the node saw the pod first: a deadline counts from
    there."""
    if status.startTime:
        return status
    return replace(status, startTime=format_time(datetime.fromtimestamp(now, UTC)))


class _Moment:
    """A life while it is carried on."""

    def __init__(self, life: PodLife, pod: Pod, place: PodPlace, now: float) -> None:
        self._pod = pod
        self._place = place
        self._now = now
        self._scripts = scripts_of(pod, place.node_annotations)
        # A fixed share of each delay that is a range, different for each pod.
        self._fraction = crc32(pod.metadata.uid.encode()) / (1 << 32)
        self._previous = _started(life.status or pod.status, now)
        self._sandboxes = {each.id: each for each in life.observed.sandboxes}
        self._records = {each.id: each for each in life.observed.containers}
        self._known: PodRuntimeState | None = life.observed
        """None if records have changed since it was made."""
        self._starts = dict(life.starts)
        self._stops = dict(life.stops)
        self._crash_delays = dict(life.crash_delays)
        self._step_failures = dict(life.step_failures)
        self._failures = dict(life.failures)
        self._events: list[LifeEvent] = []
        self._wakes: list[float] = []
        self._not_before = now

    # The loop.

    def settle(self) -> PodPlan:
        """Carry out plans until there is nothing to do at this moment."""
        for _ in range(ROUNDS):
            self._end_due()
            current = plan(self._plan_input())
            self._wakes = [] if current.wake is None else [current.wake]
            # Not `any` of a generator: every action is carried out.
            changes = [self._do(action) for action in current.actions]
            if True not in changes:
                return current
        self._not_before = self._now + PAUSE_SECONDS
        return current

    def step(self, current: PodPlan) -> LifeStep:
        """Return the result."""
        is_over = current.termination is not None and not current.actions
        status = self._status(current, is_over)
        life = PodLife(
            self._observed,
            status,
            self._starts or _NOTHING,
            self._stops or _NOTHING,
            self._crash_delays or _NOTHING,
            self._step_failures or _NOTHING,
            self._failures or _NOTHING,
        )
        wakes = [] if is_over else [*self._wakes, *self._ends(), *self._readiness_changes()]
        wake = max(min(wakes), self._not_before) if wakes else None
        return LifeStep(life, status, current, wake, is_over, tuple(self._events))

    def _plan_input(self) -> PlanInput:
        pod = self._pod
        if not pod.status.startTime:
            pod = replace(pod, status=replace(pod.status, startTime=self._previous.startTime))
        return PlanInput(
            pod=pod,
            now=self._now,
            observed=self._observed,
            verdicts=ProbeVerdicts(startup={each.id: True for each in self._observed.running}),
            crash_delays=self._crash_delays,
            failures=self._step_failures,
        )

    def _observe(self) -> None:
        self._known = None

    @property
    def _observed(self) -> PodRuntimeState:
        # Once for many changes: a pod may have thousands of containers.
        if self._known is None:
            self._known = pod_runtime_state(self._sandboxes.values(), self._records.values())
        return self._known

    def _script(self, name: str) -> ContainerScript:
        script = self._scripts.get(name) or ContainerScript()
        return script.after(self._failures.get(name, 0))

    # Containers that end by themselves, or after they were asked to.

    def _end_of(self, record: RuntimeContainer) -> float | None:
        """Return when a running container ends by itself."""
        run_for = self._script(record.name).run_for
        if run_for is None:
            return None
        return record.started_at / SECOND + run_for.at(self._fraction)

    def _ends(self) -> Iterable[float]:
        for record in self._observed.running:
            if (stop := self._stops.get(record.id)) is not None:
                yield stop.end
            if (end := self._end_of(record)) is not None:
                yield end

    def _end_due(self) -> None:
        for record in self._observed.running:
            stop, end = self._stops.get(record.id), self._end_of(record)
            if stop is not None and stop.end <= self._now:
                self._end_stopped(record, stop)
            elif end is not None and end <= self._now:
                self._end_by_itself(record, end)

    def _end_by_itself(self, record: RuntimeContainer, at: float) -> None:
        script = self._script(record.name)
        self._put_ended(record, at, script.exit_code, script.exit_reason, script.exit_message)
        if script.fails:
            self._failures[record.name] = self._failures.get(record.name, 0) + 1

    def _end_stopped(self, record: RuntimeContainer, stop: ContainerStop) -> None:
        is_killed = stop.end < stop.begun + self._stop_delay(record)
        self._put_ended(record, stop.end, simulation.KILLED if is_killed else 0, "", "")

    def _stop_delay(self, record: RuntimeContainer) -> float:
        return self._script(record.name).stop_delay.at(self._fraction)

    def _put_ended(
        self, record: RuntimeContainer, at: float, code: int, reason: str, message: str
    ) -> None:
        self._records[record.id] = replace(
            record,
            state=RunState.EXITED,
            finished_at=int(at * SECOND),
            exit_code=code,
            reason=reason,
            message=message,
        )
        self._starts.pop(record.name, None)
        self._stops.pop(record.id, None)
        self._observe()

    # Actions.

    def _do(self, action: Action) -> bool:
        """Carry out an action; return whether it changed anything."""
        match action:
            case RunSandbox(attempt):
                self._run_sandbox(attempt)
            case StartContainer():
                return self._start(action)
            case StopContainer():
                return self._stop(action)
            case StopContainers(stops):
                return True in [self._stop(each) for each in stops]
            case RemoveContainer(container):
                self._records.pop(container, None)
            case StopSandbox(sandbox):
                self._sandboxes[sandbox] = replace(self._sandboxes[sandbox], ready=False)
            case RemoveSandbox(sandbox):
                self._sandboxes.pop(sandbox, None)
            case ResizeContainers():
                return False
        self._observe()
        return True

    def _run_sandbox(self, attempt: int) -> None:
        meta = self._pod.metadata
        made = PodSandbox(
            id=f"{meta.uid}-{attempt}" if attempt else meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            attempt=attempt,
            created_at=int(self._now * SECOND),
            ips=() if self._pod.spec.hostNetwork else [self._place.pod_address],
        )
        self._sandboxes[made.id] = made

    def _start(self, action: StartContainer) -> bool:
        name, script = action.name, self._script(action.name)
        # A restart finds the image that the first start has pulled.
        delay = 0.0 if action.attempt else script.start_delay.at(self._fraction)
        due = self._starts.setdefault(name, self._now + delay)
        if due > self._now:
            self._wakes.append(due)
            return False
        del self._starts[name]
        if action.delay is not None:
            self._crash_delays[name] = action.delay
        if script.image_error:
            self._fail_to_pull(name, script.image_error)
        else:
            self._step_failures.pop(name, None)
            self._run(name, action.attempt)
        return True

    def _run(self, name: str, attempt: int) -> None:
        moment = int(self._now * SECOND)
        sandbox = next(each for each in reversed(self._sandboxes.values()) if each.ready)
        image = self._image(name)
        made = RuntimeContainer(
            id=container_id(self._pod.metadata.uid, name, attempt),
            sandbox=sandbox.id,
            name=name,
            state=RunState.RUNNING,
            attempt=attempt,
            created_at=moment,
            started_at=moment,
            annotations=_record_annotations(name, image),
        )
        self._records[made.id] = made
        self._observe()

    def _image(self, name: str) -> str:
        return self._images.get(name, "")

    @cached_property
    def _images(self) -> Mapping[str, str]:
        spec = self._pod.spec
        containers = (*spec.ephemeralContainers, *spec.initContainers, *spec.containers)
        return {each.name: each.image for each in containers}

    def _fail_to_pull(self, name: str, why: str) -> None:
        image, before = self._image(name), self._step_failures.get(name)
        known = before.delay if before is not None and before.image == image else None
        delay = IMAGE_PULL.after(known, self._now, self._now)
        self._step_failures[name] = StepFailure(
            "ErrImagePull", why, self._now, delay, is_pull=True, image=image
        )
        self._failures[name] = self._failures.get(name, 0) + 1
        message = f'Failed to pull image "{image}": {why}'
        self._events.append(LifeEvent(name, WARNING, "Failed", message))
        self._events.append(LifeEvent(name, WARNING, "Failed", "Error: ErrImagePull"))

    def _stop(self, action: StopContainer) -> bool:
        record = self._records.get(action.container)
        if record is None or record.state is not RunState.RUNNING:
            return False
        if action.after and action.after & {each.name for each in self._observed.running}:
            return False
        known = self._stops.get(record.id)
        begun = known.begun if known is not None else self._now
        # A later request may shorten the grace period.
        end = min(begun + self._stop_delay(record), self._now + action.grace)
        end = min(end, known.end) if known is not None else end
        stop = self._stops[record.id] = ContainerStop(begun, end)
        if end > self._now:
            return False
        self._end_stopped(record, stop)
        return True

    # The status.

    def _status(self, current: PodPlan, is_over: bool) -> PodStatus:
        place, pod = self._place, self._pod
        given = StatusInput(
            now=datetime.fromtimestamp(self._now, UTC),
            observed=self._observed,
            previous=self._previous,
            waiting=current.waiting,
            verdicts=ProbeVerdicts(
                startup={each.id: True for each in self._observed.running},
                readiness={each.id: self._is_ready(each) for each in self._observed.running},
            ),
            host_ips=[place.node_address],
            shared_ips=[place.node_address] if pod.spec.hostNetwork else [],
            terminal=is_over,
            termination=current.termination,
        )
        status = pod_status(pod, given)
        return final_status(pod, status) if is_over else status

    def _ready_from(self, record: RuntimeContainer) -> float | None:
        """Return when a running container is ready; None for never."""
        delay = self._script(record.name).ready_delay
        if delay is None:
            return None
        return record.started_at / SECOND + delay.at(self._fraction)

    def _is_ready(self, record: RuntimeContainer) -> bool:
        due = self._ready_from(record)
        return due is not None and due <= self._now

    def _readiness_changes(self) -> Iterable[float]:
        for record in self._observed.running:
            due = self._ready_from(record)
            if due is not None and due > self._now:
                yield due
