"""Worker: drives one pod towards its spec, one plan after another, and tells how it is."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.machinery.durations import format_time
from kedge.node import marks
from kedge.node.admission import Rejection
from kedge.node.allotment import Allotment, summary
from kedge.node.backoff import PULLS, TRIALS, Backoff, Delay
from kedge.node.ending import EVICTED_REASON, TERMINAL, Ending
from kedge.node.hosts import dns_of, hosts_file
from kedge.node.last_words import last_words
from kedge.node.observed import Observations, Observed
from kedge.node.parts import DeviceFailure, Parts, VolumeFailure
from kedge.node.plan import (
    A_RESIZE,
    THE_POD,
    Action,
    Failure,
    Plan,
    Remove,
    RemoveSandbox,
    Resize,
    RunSandbox,
    Situation,
    Start,
    Stop,
    StopAll,
    StopSandbox,
    plan,
)
from kedge.node.probes.prober import Prober, targets
from kedge.node.remains import Remains
from kedge.node.runtime.runtime import Level, NotFoundError, RuntimeFailure, State
from kedge.node.specs import sandbox_spec
from kedge.node.starting import StartFailure, Starting
from kedge.node.status import Facts, final, pod_status, rejected
from kedge.node.status_writer import StatusWriter
from kedge.node.stopping import Stopping
from kedge.node.telling import NORMAL, WARNING, Telling
from kedge.node.waits import Interrupted, unless, woken

log = logging.getLogger(__name__)

REFRESH = 600.0
"""Seconds after which volumes that show objects of the API are looked after though nobody said
that something has changed."""


class Worker:
    """One pod's life on this node."""

    def __init__(
        self,
        pod: Pod,
        parts: Parts,
        *,
        observations: Observations,
        writer: StatusWriter,
        remains: Remains,
        released: Callable[[], None],
        rejection: Rejection | None = None,
    ) -> None:
        self._pod = pod
        self._parts = parts
        self._observations = observations
        self._writer = writer
        self._remains = remains
        self._released = released
        """Called when the pod has given back what it used of the node."""
        self._rejection = rejection
        self._status = pod.status
        """What was told last, or what an earlier agent told."""
        self._plan = Plan()
        self._crashes: dict[str, Delay] = {}
        self._failures: dict[str, Failure] = {}
        self._messages: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._hurried = asyncio.Event()
        self._removed = False
        self._prepared = False
        self._ended = False
        """Nothing runs any more, and what the pod used has been given back."""
        self._deleted = False
        self._gone = False
        self._refresh_at = 0.0
        self._deadline_told = False
        self._evicted = ""
        file = parts.files.resize_state(pod.metadata.uid)
        self.allotment = Allotment.taken_over(pod, self._seen, file)
        self._telling = Telling(parts.events, pod)
        self._starting = Starting(parts, observations, self._telling, self._hurried)
        self._stopping = Stopping(parts, observations, self._telling)
        self._prober = Prober(
            parts.runtime,
            parts.clock,
            ip=self._ip,
            tell=self._telling.of_container,
            changed=self._changed.set,
        )
        self._prober.take_over(pod.status)

    # What others see and say.

    @property
    def pod(self) -> Pod:
        """The pod with its latest status, whether or not the API knows it."""
        return replace(self._pod, status=self._status)

    @property
    def granted(self) -> Pod:
        """The pod, asking for what it has been granted."""
        return self.allotment.granted(self._pod)

    @property
    def active(self) -> bool:
        """Whether the pod uses anything of the node, or soon will."""
        return not self._ended and self._rejection is None

    def update(self, pod: Pod) -> None:
        """The pod's object has changed."""
        before, self._pod = self._pod.metadata, pod
        after = pod.metadata
        self._telling.pod = pod
        if _hurries(before.deletionGracePeriodSeconds, after.deletionGracePeriodSeconds):
            self._hurried.set()
        if (before.labels, before.annotations) != (after.labels, after.annotations):
            self._refresh_at = 0.0
        self._changed.set()

    def remove(self, pod: Pod) -> None:
        """The pod's object is gone; this was its last state."""
        self.update(pod)
        self._removed = True
        self._hurried.set()

    def evict(self, message: str) -> None:
        """The pod uses more than it may, and has to go."""
        if not self._evicted and not self._ended:
            self._evicted, self._deadline_told = message, True
            self._telling.of_pod(WARNING, EVICTED_REASON, message)
            self._hurried.set()
            self._changed.set()

    def wake(self) -> None:
        """Something of the pod has changed: look again."""
        self._changed.set()

    def refresh(self) -> None:
        """Something that the pod's volumes show has changed."""
        self._refresh_at = 0.0
        self._changed.set()

    # The life.

    async def run(self) -> None:
        """Returns when nothing is left of the pod."""
        delay: Delay | None = None
        try:
            await self._take_devices()
            self._count_limits()
            while not self._gone:
                self._changed.clear()
                try:
                    wake = await self._settle()
                    delay = None
                except Exception as error:
                    now = self._now()
                    delay = TRIALS.after(delay, now, now)
                    await self._trouble(error)
                    wake = now + delay.seconds
                await self._rest(wake)
        finally:
            await self._prober.close()

    async def _take_devices(self) -> None:
        """A pod that has nothing here yet gets its devices first, or is not taken at all."""
        pod = self._pod
        over = pod.status.phase in TERMINAL or pod.metadata.deletionTimestamp
        if over or self._rejection is not None or self._seen.ready_sandbox is not None:
            return
        try:
            await unless(self._hurried, self._parts.devices.allocate(pod))
        except DeviceFailure as error:
            self._rejection = Rejection(error.reason, error.message)
            self._telling.of_pod(WARNING, error.reason, error.message)
            self._released()
        except Interrupted:
            return

    def _count_limits(self) -> None:
        """What a pod asks for that runs since an earlier agent counts in its class as before."""
        if self._seen.ready_sandbox is not None:
            with contextlib.suppress(OSError):
                self._parts.cgroups.update(self.granted)

    async def _rest(self, wake: float | None) -> None:
        if self._gone:
            return
        if wake is None:
            await self._changed.wait()
        else:
            await woken(self._changed, self._parts.clock, max(wake - self._now(), 0.0))

    async def _trouble(self, error: Exception) -> None:
        """Something went wrong that no plan knows of. The runtime may know more than we do."""
        meta = self._pod.metadata
        known = isinstance(error, RuntimeFailure | NotFoundError | VolumeFailure | OSError)
        message = "pod in trouble pod=%s/%s error=%r; trying again"
        log.warning(
            message, meta.namespace, meta.name, str(error), exc_info=None if known else error
        )
        try:
            await self._observations.relist()
        except (RuntimeFailure, OSError):
            log.warning("the runtime does not answer pod=%s/%s", meta.namespace, meta.name)

    async def _settle(self) -> float | None:
        """Do all there is to do now; returns when to look again though nothing happens."""
        while True:
            self._hurried.clear()
            current = self._plan = self._next()
            self._telling.of_plan(current)
            self._probe(current.ending)
            if not current.actions:
                break
            self._publish(urgent=False)
            try:
                for action in current.actions:
                    await self._do(action)
                    if self._hurried.is_set():
                        break
            except Interrupted:
                continue
        if current.ending is not None:
            await self._end(current.ending)
            return None
        self._finish_resize()
        self._publish(urgent=True)
        return await self._refresh_volumes(current.wake)

    def _next(self) -> Plan:
        if self._rejection is not None:
            return Plan(ending=Ending(0))
        return plan(self._situation())

    def _situation(self) -> Situation:
        pod = self.granted
        if not pod.status.startTime and self._status.startTime:
            status = replace(pod.status, startTime=self._status.startTime)
            pod = replace(pod, status=status)
        return Situation(
            pod=pod,
            now=self._now(),
            observed=self._seen,
            health=self._prober.health,
            crashes=self._crashes,
            failures=self._failures,
            actual=self.allotment.actual,
            restart_counts=_restart_counts(self._status),
            removed=self._removed,
            evicted=self._evicted,
        )

    async def _do(self, action: Action) -> None:
        runtime, observations = self._parts.runtime, self._observations
        match action:
            case RunSandbox():
                await self._run_sandbox(action)
            case Start():
                await self._start(action)
            case Stop():
                await self._stop([action])
            case StopAll(stops):
                await self._stop(stops)
            case Remove(container):
                await runtime.remove_container(container)
                self._drop_last_words(container)
                observations.drop_container(container)
            case StopSandbox(sandbox):
                await runtime.stop_sandbox(sandbox)
                observations.stopped_sandbox(sandbox)
            case RemoveSandbox(sandbox):
                await runtime.remove_sandbox(sandbox)
                observations.drop_sandbox(sandbox)
            case Resize(names):
                await self._resize(names)

    # The start.

    async def _run_sandbox(self, action: RunSandbox) -> None:
        """What a pod needs before its containers: directories, limits, volumes, a sandbox."""
        parts, pod = self._parts, self.granted
        if action.attempt:
            text = "Pod sandbox changed, it will be killed and re-created."
            self._telling.of_pod(NORMAL, "SandboxChanged", text)
        cgroup = await self._prepare(pod)
        if cgroup is None:
            return
        try:
            await parts.classes.check(pod)
            spec = sandbox_spec(
                pod,
                action.attempt,
                logs=parts.files.logs(pod),
                cgroup=cgroup,
                dns=dns_of(pod, parts.dns()),
                first_id=await parts.user_ids.ensure(pod),
            )
            sandbox = await parts.runtime.run_sandbox(spec)
        except RuntimeFailure as error:
            text = f"Failed to create pod sandbox: {error}"
            self._failed(THE_POD, "FailedCreatePodSandBox", text)
            self._telling.of_pod(WARNING, "FailedCreatePodSandBox", text)
            return
        self._observations.put_sandbox(sandbox)
        self._failures.pop(THE_POD, None)

    async def _prepare(self, pod: Pod) -> str | None:
        """Limits and volumes; None if they cannot be had now."""
        parts = self._parts
        try:
            cgroup = parts.cgroups.ensure(pod)
            parts.files.make(pod)
        except OSError as error:
            text = f"unable to ensure pod container exists: {error}"
            self._failed(THE_POD, "FailedCreatePodContainer", text)
            self._telling.of_pod(WARNING, "FailedCreatePodContainer", text)
            return None
        try:
            await unless(self._hurried, parts.volumes.mount(pod))
        except VolumeFailure as error:
            self._failed(THE_POD, error.reason, error.message)
            self._telling.of_pod(WARNING, error.reason, error.message)
            return None
        self._prepared = True
        self._refresh_at = self._now() + REFRESH
        return cgroup

    def _write_hosts(self, pod: Pod) -> None:
        text = hosts_file(pod, self._ips(), self._parts.hosts() if pod.spec.hostNetwork else "")
        self._parts.files.write_hosts(self._uid, text)

    async def _start(self, action: Start) -> None:
        pod, sandbox = self.granted, self._seen.ready_sandbox
        container = _spec_of(pod, action.name)
        if container is None or sandbox is None:
            return
        if not self._prepared and await self._prepare(pod) is None:
            return
        if action.delay is not None:
            self._crashes[action.name] = action.delay
        # Before each start: the agent that made the sandbox may have died before it came to this.
        self._write_hosts(pod)
        try:
            await self._starting.start(pod, container, action.attempt, sandbox, self._ips())
        except StartFailure as error:
            if error.reason == "CreateContainerError":
                # The sandbox may be gone without anybody having told us.
                await self._observations.relist()
            how = PULLS if error.pull else TRIALS
            self._failed(action.name, error.reason, error.message, how, container.image)
        else:
            self._failures.pop(action.name, None)
            self.allotment.restarted(action.name)
        self._publish(urgent=False)

    def _failed(
        self, what: str, reason: str, message: str, how: Backoff = TRIALS, image: str = ""
    ) -> None:
        """Something did not work and will be tried again."""
        now, known = self._now(), self._failures.get(what)
        same = known is not None and known.image == image
        delay = how.after(known.delay if known is not None and same else None, now, now)
        pull = how is PULLS
        self._failures[what] = Failure(reason, message, now, delay, pull=pull, image=image)

    # The end.

    async def _stop(self, stops: Sequence[Stop]) -> None:
        specs = {container.name: container for container in _everybody(self._pod)}
        try:
            await unless(self._hurried, self._stopping.stop(stops, specs, self._ips()))
        except RuntimeFailure as error:
            self._telling.of_pod(WARNING, "FailedKillPod", f"error killing pod: {error}")
            raise

    async def _end(self, end: Ending) -> None:
        """Nothing runs any more: tell how it went, give everything back, let the object go."""
        if end.reason and not self._deadline_told:
            self._deadline_told = True
            self._telling.of_pod(NORMAL, end.reason, end.message)
        # First, so that whoever reads of the end finds the devices free.
        self._parts.devices.release(self._uid)
        self._publish(urgent=True, terminal=True)
        await self._prober.close()
        if not self._ended:
            await self._parts.volumes.unmount(self._uid)
            self._parts.cgroups.remove(self._uid)
            await self._parts.user_ids.release(self._uid)
            self._ended = True
            self._released()
        if self._removed:
            await self._remains.remove(self._uid)
            self._gone = True
        elif self._pod.metadata.deletionTimestamp and not self._deleted:
            # The last status is told before the object goes: somebody may wait for it.
            await self._writer.flush(self._uid)
            await self._writer.delete(self._pod)
            self._deleted = True

    # In the middle.

    async def _resize(self, names: Sequence[str]) -> None:
        """Containers that get less go first, and the pod's own limits last if they shrink."""
        pod, cgroups = self.granted, self._parts.cgroups
        shrinks = self._shrinks(pod, names)
        try:
            if not shrinks:
                cgroups.update(pod)
            for name in names:
                record, container = self._seen.newest(name), _spec_of(pod, name)
                if record is not None and container is not None:
                    resources = cgroups.resources(pod, container)
                    await self._parts.runtime.update_container(record.id, resources)
                    self.allotment.gave(container)
            if shrinks:
                cgroups.update(pod)
        except (RuntimeFailure, OSError) as error:
            self._failed(A_RESIZE, "Error", str(error))
            self.allotment.failed(pod, str(error), format_time(self._parts.clock.now()))
            text = summary("Pod resize error", pod, pod.metadata.generation, str(error))
            self._telling.of_pod(WARNING, "ResizeError", text)
        else:
            self._failures.pop(A_RESIZE, None)

    def _shrinks(self, pod: Pod, names: Sequence[str]) -> bool:
        """Whether the containers get less time of the processors, all in all."""
        before = after = 0
        for name in names:
            record, container = self._seen.newest(name), _spec_of(pod, name)
            if record is None or container is None:
                continue
            given = self.allotment.actual.get(name) or marks.started_with(record)
            limit = container.resources.limits.get("cpu")
            old = given.limits.get("cpu") if given is not None else None
            before += old.milli() if old is not None else 0
            after += limit.milli() if limit is not None else 0
        return after < before

    def _finish_resize(self) -> None:
        if self.allotment.under_way and A_RESIZE not in self._failures:
            generation = self.allotment.completed()
            text = summary("Pod resize completed", self.granted, generation or 0)
            self._telling.of_pod(NORMAL, "ResizeCompleted", text)

    async def _refresh_volumes(self, wake: float | None) -> float | None:
        """Bring volumes that show objects of the API up to date, now and then."""
        if self._seen.ready_sandbox is None or not _shows_objects(self._pod):
            return wake
        if self._now() >= self._refresh_at:
            self._refresh_at = self._now() + REFRESH
            try:
                await unless(self._hurried, self._parts.volumes.mount(self.granted))
            except VolumeFailure as error:
                self._telling.of_pod(WARNING, error.reason, error.message)
            except Interrupted:
                return self._now()
        return self._refresh_at if wake is None else min(wake, self._refresh_at)

    def _probe(self, end: Ending | None) -> None:
        running = self._seen.running
        self._prober.watch(targets(self._pod, running), ending=end is not None)

    # The status.

    def _publish(self, *, urgent: bool, terminal: bool = False) -> None:
        """Tell how the pod is, if that is news."""
        status = self._told(terminal)
        news = status != self._status or status != self._pod.status
        self._status = status
        if news and not self._removed:
            self._writer.write(self._pod, status, urgent=urgent)

    def _told(self, terminal: bool) -> PodStatus:
        now: datetime = self._parts.clock.now()
        pod = self.granted
        if self._rejection is not None:
            why = self._rejection
            return rejected(pod, why.reason, why.message, now)
        seen = self._seen
        self._hear_last_words(seen)
        facts = Facts(
            now=now,
            observed=seen,
            previous=self._status,
            waiting=self._plan.waiting,
            health=self._prober.health,
            messages=self._messages,
            actual=self.allotment.actual,
            resize=self.allotment.conditions,
            host_ips=self._parts.host_ips(),
            shared_ips=self._shared_ips(),
            terminal=terminal,
            ending=self._plan.ending,
            devices=self._parts.devices.health(self._uid),
        )
        status = pod_status(pod, facts)
        return final(pod, status) if terminal else status

    def _hear_last_words(self, seen: Observed) -> None:
        for record in seen.containers:
            if record.state is State.EXITED and record.id not in self._messages:
                file = self._parts.files.termination_log(self._uid, record.name, record.attempt)
                self._messages[record.id] = last_words(record, file)
        self._prober.forget({record.id for record in seen.running})

    def _drop_last_words(self, container: str) -> None:
        self._messages.pop(container, None)
        for record in self._seen.containers:
            if record.id == container:
                self._parts.files.drop_termination_log(self._uid, record.name, record.attempt)

    # Small facts.

    @property
    def _uid(self) -> str:
        return self._pod.metadata.uid

    @property
    def _seen(self) -> Observed:
        return self._observations.of(self._uid)

    def _now(self) -> float:
        return self._parts.clock.now().timestamp()

    def _ips(self) -> Sequence[str]:
        sandbox = self._seen.sandbox
        return sandbox.ips if sandbox is not None and sandbox.ips else self._shared_ips()

    def _shared_ips(self) -> Sequence[str]:
        """The machine's addresses, for a pod on its network; a pod with nothing but a loopback of
        its own has none, and is not said to."""
        shares = self.pod.spec.hostNetwork or self._parts.runtime.level is Level.PLAIN
        return self._parts.host_ips() if shares else ()

    def _ip(self) -> str:
        ips = self._ips()
        return ips[0] if ips else ""


def _hurries(before: int | None, after: int | None) -> bool:
    """Whether a pod is now to end sooner than we knew."""
    return after is not None and (before is None or after < before)


def _everybody(pod: Pod) -> list[Container]:
    spec = pod.spec
    return [*spec.containers, *spec.initContainers, *spec.ephemeralContainers]


def _spec_of(pod: Pod, name: str) -> Container | None:
    return next((container for container in _everybody(pod) if container.name == name), None)


def _restart_counts(status: PodStatus) -> dict[str, int]:
    """By name: which attempt comes next of a container that the runtime knows nothing of."""
    everybody = (*status.containerStatuses, *status.initContainerStatuses)
    return {each.name: each.restartCount + bool(each.containerID) for each in everybody}


def _shows_objects(pod: Pod) -> bool:
    return any(
        volume.configMap or volume.secret or volume.projected or volume.downwardAPI
        for volume in pod.spec.volumes
    )
