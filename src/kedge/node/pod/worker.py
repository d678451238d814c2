"""The worker of one pod: carries out plan after plan until the pod matches its spec, and reports
its status."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import all_containers
from kedge.api.core_v1.pod.status import PodStatus
from kedge.node.network.dns import hosts_file
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
from kedge.node.pod.admission import PodRejection
from kedge.node.pod.backoff import IMAGE_PULL, RETRIES, BackoffDelay
from kedge.node.pod.dependencies import (
    ClaimFailure,
    DeviceFailure,
    PodDependencies,
    VolumeFailure,
)
from kedge.node.pod.event_recorder import NORMAL, WARNING, PodEventRecorder
from kedge.node.pod.orphaned_resources import OrphanedResources
from kedge.node.pod.plan import PlanInput, PodPlan, plan
from kedge.node.pod.resize import ContainerResizer
from kedge.node.pod.resources import AllocatedResources
from kedge.node.pod.runtime_cache import ClusterTimes, PodRuntimeState, RuntimeCache
from kedge.node.pod.sandbox import SandboxStarter
from kedge.node.pod.start import ContainerStarter, ContainerStartFailure
from kedge.node.pod.status.reporter import StatusReporter
from kedge.node.pod.status.writer import StatusWriter
from kedge.node.pod.step_failures import StepFailures
from kedge.node.pod.stop import ContainerStopper
from kedge.node.pod.termination import TERMINAL_PHASES, PodTermination
from kedge.node.pod.timeouts import WorkInterrupted, unless_set, wait_until_set
from kedge.node.pod.worker_state import (
    EVICTED_REASON,
    EndAnnounced,
    EndStep,
    ObjectDeleted,
    ObjectRemoved,
    PodCleanedUp,
    PodEnded,
    PodEvicted,
    PodPrepared,
    PodRejected,
    PodReleased,
    PodStage,
    WorkerEvent,
    WorkerState,
    next_end_step,
    transition,
)
from kedge.node.probes.prober import Prober, targets
from kedge.node.runtime.runtime import NotFoundError, RuntimeFailure

log = logging.getLogger(__name__)

REFRESH_SECONDS = 600.0
"""Seconds after which volumes with API objects are updated even without a reported change."""


class PodWorker:
    """Runs one pod on this node.

    A single task (`run`) carries out all actions, so no two actions of a pod overlap. Other tasks
    only change the pod, the state and two events: `_changed` wakes the task, and `_forced_stop`
    also interrupts an action that is under way, such as a pull or a grace period.
    """

    def __init__(
        self,
        pod: Pod,
        dependencies: PodDependencies,
        *,
        cache: RuntimeCache,
        writer: StatusWriter,
        orphans: OrphanedResources,
        room: Callable[[Pod], Awaitable[None]],
        released: Callable[[], None],
        rejection: PodRejection | None = None,
    ) -> None:
        self._pod = pod
        self._dependencies = dependencies
        self._cache = cache
        self._times = ClusterTimes(dependencies.clock)
        self._orphans = orphans
        self._room = room
        """Returns when the resources of the node that the pod was admitted to are free."""
        self._released = released
        """Called when the pod uses no resources of the node any more."""
        self._state = WorkerState(rejection=rejection)
        self._plan = PodPlan()
        self._crash_delays: dict[str, BackoffDelay] = {}
        self._changed = asyncio.Event()
        self._forced_stop = asyncio.Event()
        self._refresh_at = 0.0
        file = dependencies.files.resize_state(pod.metadata.uid)
        self.resources = AllocatedResources.restore(pod, self._observed, file)
        self._failures = StepFailures(dependencies.clock)
        self._recorder = PodEventRecorder(dependencies.events, pod)
        self._sandboxes = SandboxStarter(
            dependencies, cache, self._recorder, self._failures, self._forced_stop
        )
        self._starter = ContainerStarter(dependencies, cache, self._recorder, self._forced_stop)
        self._stopper = ContainerStopper(dependencies, cache, self._recorder)
        self._resizer = ContainerResizer(
            dependencies, self._recorder, self._failures, self.resources
        )
        self._prober = Prober(
            dependencies.runtime,
            dependencies.clock,
            ip=self._ip,
            record=self._recorder.record_container,
            changed=self._verdict_changed,
            network=dependencies.network,
        )
        self._prober.restore(pod.status)
        self._status = StatusReporter(pod, dependencies, writer, self._prober, self.resources)

    # Interface to other tasks.

    @property
    def pod(self) -> Pod:
        """The pod with its latest status, which the API may not have yet."""
        return self._status.with_status(self._pod)

    @property
    def allocated_pod(self) -> Pod:
        """The pod with its allocated resources."""
        return self.resources.allocated_pod(self._pod)

    @property
    def is_active(self) -> bool:
        """Whether the pod uses resources of the node, or will."""
        return self._state.uses_resources

    @property
    def is_removed(self) -> bool:
        """Whether the pod's object is gone; its processes may run until they are stopped."""
        return self._state.is_removed

    def update(self, pod: Pod) -> None:
        """Take over a change of the pod's object."""
        before, self._pod = self._pod.metadata, pod
        after = pod.metadata
        self._recorder.pod = pod
        if _shortens(before.deletionGracePeriodSeconds, after.deletionGracePeriodSeconds):
            self._forced_stop.set()
        if (before.labels, before.annotations) != (after.labels, after.annotations):
            self._refresh_at = 0.0
        self._changed.set()

    def remove(self, pod: Pod) -> None:
        """End the pod, whose object is gone; `pod` is its last state."""
        self.update(pod)
        self._apply(ObjectRemoved())
        self._forced_stop.set()

    def evict(self, message: str) -> None:
        """End the pod because it exceeds a limit of the node."""
        if self._apply(PodEvicted(message)):
            self._recorder.record_pod(WARNING, EVICTED_REASON, message)
            self._forced_stop.set()
            self._changed.set()

    def wake(self) -> None:
        """Plan again."""
        self._changed.set()

    def refresh(self) -> None:
        """Update the pod's volumes: an API object in them has changed."""
        self._refresh_at = 0.0
        self._changed.set()

    def _apply(self, event: WorkerEvent) -> bool:
        """Change the state; return whether the event changed it."""
        before, self._state = self._state, transition(self._state, event)
        return self._state != before

    # The loop.

    async def run(self) -> None:
        """Run the pod; return when nothing is left of it on the node."""
        delay: BackoffDelay | None = None
        try:
            await self._take_resources()
            self._restore_cgroup()
            while not self._is_done:
                self._changed.clear()
                try:
                    wake = await self._settle()
                    delay = None
                except Exception as error:
                    now = self._now()
                    delay = RETRIES.after(delay, now, now)
                    await self._recover(error)
                    wake = now + delay.seconds
                await self._rest(wake)
        finally:
            await self._prober.close()

    @property
    def _is_done(self) -> bool:
        return self._state.stage is PodStage.CLEANED_UP

    async def _take_resources(self) -> None:
        """Wait for the resources of a pod that has no sandbox yet, and allocate its devices; reject
        the pod if that fails.

        A pod with a sandbox was admitted by a previous agent and has its devices: the device
        checkpoint outlives the agent.
        """
        pod = self._pod
        ended = pod.status.phase in TERMINAL_PHASES or pod.metadata.deletionTimestamp
        is_rejected = self._state.rejection is not None
        if ended or is_rejected or self._observed.ready_sandbox is not None:
            return
        try:
            await unless_set(self._forced_stop, self._room(pod))
            await unless_set(self._forced_stop, self._dependencies.devices.allocate(pod))
        except DeviceFailure as error:
            self._apply(PodRejected(PodRejection(error.reason, error.message)))
            self._recorder.record_pod(WARNING, error.reason, error.message)
            self._released()
        except WorkInterrupted:
            return

    def _restore_cgroup(self) -> None:
        """Count a pod that a previous agent started in the limits of its QoS class."""
        if self._observed.ready_sandbox is not None:
            with contextlib.suppress(OSError):
                self._dependencies.cgroups.update(self.allocated_pod)

    async def _rest(self, wake: float | None) -> None:
        if self._is_done:
            return
        if wake is None:
            await self._changed.wait()
        else:
            seconds = max(wake - self._now(), 0.0)
            await wait_until_set(self._changed, self._dependencies.clock, seconds)

    async def _recover(self, error: Exception) -> None:
        """Log an error that no action handles, and read the runtime's lists: the cache may be
        wrong after an action that failed midway."""
        meta = self._pod.metadata
        failures = RuntimeFailure | NotFoundError | VolumeFailure | ClaimFailure | OSError
        expected = isinstance(error, failures)
        message = "cannot sync pod pod=%s/%s error=%r; retrying"
        log.warning(
            message, meta.namespace, meta.name, str(error), exc_info=None if expected else error
        )
        try:
            await self._cache.relist()
        except (RuntimeFailure, OSError):
            log.warning("the runtime does not answer pod=%s/%s", meta.namespace, meta.name)

    async def _settle(self) -> float | None:
        """Carry out plans until there are no actions; return when to plan again.

        `_forced_stop` is cleared before each plan, so that one which arrives later interrupts the
        plan's actions and one which arrived earlier is part of the plan. After an interruption the
        remaining actions are dropped: they were planned for a pod that had more time.
        """
        while True:
            self._forced_stop.clear()
            current = self._plan = plan(self._plan_input())
            self._recorder.record_waiting(current)
            self._update_probes()
            if not current.actions:
                break
            self._report(urgent=False)
            try:
                for action in current.actions:
                    await self._do(action)
                    if self._forced_stop.is_set():
                        break
            except WorkInterrupted:
                continue
        if current.termination is not None:
            await self._end(current.termination)
            return None
        self._resizer.finish(self.allocated_pod)
        self._report(urgent=True)
        return await self._refresh_volumes(current.wake)

    def _plan_input(self) -> PlanInput:
        pod, status = self.allocated_pod, self._status.status
        if not pod.status.startTime and status.startTime:
            pod = replace(pod, status=replace(pod.status, startTime=status.startTime))
        return PlanInput(
            pod=pod,
            now=self._now(),
            state=self._state,
            observed=self._observed,
            verdicts=self._prober.verdicts,
            crash_delays=self._crash_delays,
            failures=self._failures.by_step,
            actuated=self.resources.actuated,
            restart_counts=_restart_counts(status),
        )

    async def _do(self, action: Action) -> None:
        runtime, cache = self._dependencies.runtime, self._cache
        match action:
            case RunSandbox():
                await self._run_sandbox(action)
            case StartContainer():
                await self._start(action)
            case StopContainer():
                await self._stop([action])
            case StopContainers(stops):
                await self._stop(stops)
            case RemoveContainer(container):
                await runtime.remove_container(container)
                self._status.remove_message(self._pod, self._observed, container)
                cache.remove_container(container)
            case StopSandbox(sandbox):
                await runtime.stop_sandbox(sandbox)
                cache.mark_sandbox_stopped(sandbox)
            case RemoveSandbox(sandbox):
                await runtime.remove_sandbox(sandbox)
                cache.remove_sandbox(sandbox)
            case ResizeContainers(names):
                await self._resizer.resize(self.allocated_pod, self._observed, names)

    # Start.

    async def _run_sandbox(self, action: RunSandbox) -> None:
        if action.attempt:
            self._sandboxes.record_change()
        cgroup = await self._prepare()
        if cgroup is not None:
            await self._sandboxes.start(self.allocated_pod, action.attempt, cgroup)

    async def _prepare(self) -> str | None:
        cgroup = await self._sandboxes.prepare(self.allocated_pod)
        if cgroup is not None:
            self._apply(PodPrepared())
            self._refresh_at = self._now() + REFRESH_SECONDS
        return cgroup

    def _write_hosts(self, pod: Pod) -> None:
        host = self._dependencies.host_hosts() if pod.spec.hostNetwork else ""
        self._dependencies.files.write_hosts(self._uid, hosts_file(pod, self._ips(), host))

    async def _start(self, action: StartContainer) -> None:
        pod, sandbox = self.allocated_pod, self._observed.ready_sandbox
        container = _container_spec(pod, action.name)
        if container is None or sandbox is None:
            return
        # A previous agent created the sandbox; its volumes may be unmounted or out of date.
        if self._state.stage is PodStage.NEW and await self._prepare() is None:
            return
        if action.delay is not None:
            self._crash_delays[action.name] = action.delay
        # Before each start: an agent that died after creating the sandbox did not write it.
        self._write_hosts(pod)
        try:
            await self._starter.start(pod, container, action.attempt, sandbox, self._ips())
        except ContainerStartFailure as error:
            await self._record_failure(container, error)
        else:
            self._failures.clear(action.name)
            self.resources.record_start(action.name)
        self._report(urgent=False)

    async def _record_failure(self, container: Container, error: ContainerStartFailure) -> None:
        if error.reason == "CreateContainerError":
            # The sandbox may be gone without an event.
            await self._cache.relist()
        policy = IMAGE_PULL if error.is_pull else RETRIES
        self._failures.record(container.name, error.reason, error.message, policy, container.image)

    # Stop.

    async def _stop(self, stops: Sequence[StopContainer]) -> None:
        specs = {container.name: container for _, container in all_containers(self._pod.spec)}
        try:
            await unless_set(self._forced_stop, self._stopper.stop(stops, specs, self._ips()))
        except RuntimeFailure as error:
            self._recorder.record_pod(WARNING, "FailedKillPod", f"error killing pod: {error}")
            raise

    async def _end(self, end: PodTermination) -> None:
        """Report the end of a pod without containers, and take the steps that are due."""
        if end.reason and not self._state.announced_reason:
            self._recorder.record_pod(NORMAL, end.reason, end.message)
            self._apply(EndAnnounced(end.reason))
        # Before the report: a client that reads the final phase finds devices and resources free,
        # and the controller of claims deallocates none that a driver still has prepared.
        await self._unprepare_claims()
        self._dependencies.devices.release(self._uid)
        if self._apply(PodEnded()):
            self._released()
        self._report(urgent=True, terminal=True)
        await self._prober.close()
        while step := next_end_step(self._state, is_terminating=self._is_terminating):
            await self._take_end_step(step)

    async def _unprepare_claims(self) -> None:
        """Raises ClaimFailure: the pod does not end before its claims are unprepared."""
        try:
            await self._dependencies.claims.unprepare(self._uid)
        except ClaimFailure as error:
            text = f"Failed to unprepare dynamic resources: {error}"
            self._recorder.record_pod(WARNING, "FailedUnprepareDynamicResources", text)
            raise

    @property
    def _is_terminating(self) -> bool:
        return bool(self._pod.metadata.deletionTimestamp)

    async def _take_end_step(self, step: EndStep) -> None:
        match step:
            case EndStep.RELEASE:
                await self._dependencies.volumes.unmount(self._uid)
                self._dependencies.cgroups.remove(self._uid)
                await self._dependencies.user_ids.release(self._uid)
                self._apply(PodReleased())
            case EndStep.DELETE_OBJECT:
                # The final status first: a client that watches the pod needs its exit codes.
                await self._status.flush(self._uid)
                await self._status.delete_object(self._pod)
                self._apply(ObjectDeleted())
            case EndStep.CLEAN_UP:
                await self._orphans.remove(self._uid)
                self._apply(PodCleanedUp())

    # Between start and stop.

    async def _refresh_volumes(self, wake: float | None) -> float | None:
        """Update volumes with API objects if that is due; return when to plan again."""
        if self._observed.ready_sandbox is None or not _has_api_volumes(self._pod):
            return wake
        if self._now() >= self._refresh_at:
            self._refresh_at = self._now() + REFRESH_SECONDS
            mount = self._dependencies.volumes.mount(self.allocated_pod)
            try:
                await unless_set(self._forced_stop, mount)
            except VolumeFailure as error:
                self._recorder.record_pod(WARNING, error.reason, error.message)
            except WorkInterrupted:
                return self._now()
        return self._refresh_at if wake is None else min(wake, self._refresh_at)

    def _update_probes(self) -> None:
        ends = self._plan.termination is not None
        self._prober.watch(targets(self._pod, self._observed.running), ending=ends)

    def _verdict_changed(self) -> None:
        """Plan again, and report now: an action in progress, such as the stop of a container with a
        long grace period, can delay the next plan by minutes."""
        self._changed.set()
        self._report(urgent=True)

    def _report(self, *, urgent: bool, terminal: bool = False) -> None:
        self._status.report(
            self._pod, self._state, self._plan, self._observed, urgent=urgent, terminal=terminal
        )

    # Values.

    @property
    def _uid(self) -> str:
        return self._pod.metadata.uid

    @property
    def _observed(self) -> PodRuntimeState:
        return self._times.of(self._cache.of(self._uid))

    def _now(self) -> float:
        return self._dependencies.clock.now().timestamp()

    def _ips(self) -> Sequence[str]:
        sandbox = self._observed.sandbox
        if sandbox is not None and sandbox.ips:
            return sandbox.ips
        return self._status.shared_ips(self._pod)

    def _ip(self) -> str:
        ips = self._ips()
        return ips[0] if ips else ""


def _shortens(before: int | None, after: int | None) -> bool:
    """Return whether a deletion starts, or its grace period is shortened."""
    return after is not None and (before is None or after < before)


def _container_spec(pod: Pod, name: str) -> Container | None:
    return next((c for _, c in all_containers(pod.spec) if c.name == name), None)


def _restart_counts(status: PodStatus) -> dict[str, int]:
    """Return the next attempt by container name, for containers that the runtime has lost."""
    statuses = (*status.containerStatuses, *status.initContainerStatuses)
    return {each.name: each.restartCount + bool(each.containerID) for each in statuses}


def _has_api_volumes(pod: Pod) -> bool:
    return any(
        volume.configMap or volume.secret or volume.projected or volume.downwardAPI
        for volume in pod.spec.volumes
    )
