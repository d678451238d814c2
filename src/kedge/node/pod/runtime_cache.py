"""The runtime's sandboxes and containers by pod, kept up to date by events instead of polling."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import msgspec
from msgspec.structs import replace

from kedge.machinery.clock import Clock, cluster_nanoseconds
from kedge.node.pod.backoff import RETRIES, BackoffDelay
from kedge.node.runtime.runtime import (
    ContainerEvent,
    NotFoundError,
    PodSandbox,
    RunState,
    Runtime,
    RuntimeContainer,
    RuntimeFailure,
)

log = logging.getLogger(__name__)


class PodRuntimeState(msgspec.Struct, frozen=True, dict=True):
    """The sandboxes and containers of one pod, newest first."""

    sandboxes: tuple[PodSandbox, ...] = ()
    containers: tuple[RuntimeContainer, ...] = ()

    @property
    def sandbox(self) -> PodSandbox | None:
        """The newest sandbox; older ones only wait for their removal."""
        return self.sandboxes[0] if self.sandboxes else None

    @property
    def ready_sandbox(self) -> PodSandbox | None:
        sandbox = self.sandbox
        return sandbox if sandbox is not None and sandbox.ready else None

    @cached_property
    def by_name(self) -> Mapping[str, tuple[RuntimeContainer, ...]]:
        found: dict[str, tuple[RuntimeContainer, ...]] = {}
        for container in self.containers:
            found[container.name] = (*found.get(container.name, ()), container)
        return found

    def newest(self, name: str) -> RuntimeContainer | None:
        """Return the latest container of a name, in any sandbox."""
        found = self.by_name.get(name)
        return found[0] if found else None

    def current(self, name: str) -> RuntimeContainer | None:
        """Return the latest container of a name, if it is in the newest sandbox."""
        newest, sandbox = self.newest(name), self.sandbox
        if newest is None or sandbox is None or newest.sandbox != sandbox.id:
            return None
        return newest

    @property
    def running(self) -> tuple[RuntimeContainer, ...]:
        return tuple(c for c in self.containers if c.state is RunState.RUNNING)


def pod_runtime_state(
    sandboxes: Iterable[PodSandbox], containers: Iterable[RuntimeContainer]
) -> PodRuntimeState:
    """Return the state of one pod, in order."""
    return PodRuntimeState(
        tuple(sorted(sandboxes, key=lambda s: (s.attempt, s.created_at), reverse=True)),
        tuple(sorted(containers, key=lambda c: (c.attempt, c.created_at), reverse=True)),
    )


EMPTY = PodRuntimeState()


class ClusterTimes:
    """Converts the times of one pod's containers.

    The runtime takes them from the machine's clock. In a cluster for tests the agent compares them
    with another one: a container that crashed before a skipped hour crashed an hour ago, and one
    that crashed after it did so just now.
    """

    def __init__(self, clock: Clock) -> None:
        self._convert = cluster_nanoseconds(clock)
        self._last = EMPTY, EMPTY

    def of(self, observed: PodRuntimeState) -> PodRuntimeState:
        """Return the state of the pod with its times in cluster time."""
        convert = self._convert
        if convert is None:
            return observed
        if self._last[0] is not observed:
            sandboxes = [
                replace(each, created_at=convert(each.created_at)) for each in observed.sandboxes
            ]
            containers = [
                replace(
                    each,
                    created_at=convert(each.created_at),
                    started_at=convert(each.started_at),
                    finished_at=convert(each.finished_at),
                )
                for each in observed.containers
            ]
            self._last = observed, PodRuntimeState(tuple(sandboxes), tuple(containers))
        return self._last[1]


class RuntimeCache:
    """The runtime's state by pod.

    The worker that changes something puts the result here itself, since it knows the result before
    the event arrives. All other changes come from events.
    """

    def __init__(self, runtime: Runtime, clock: Clock, changed: Callable[[str], None]) -> None:
        self._runtime = runtime
        self._clock = clock
        self._changed = changed
        """Called with the uid of a pod whose containers or sandboxes changed by themselves."""
        self._sandboxes: dict[str, PodSandbox] = {}
        self._containers: dict[str, RuntimeContainer] = {}
        self._states: dict[str, PodRuntimeState] = {}
        self.changes = 0
        """Counts the changes of sandboxes and containers."""

    def of(self, uid: str) -> PodRuntimeState:
        """Return the state of a pod; empty if the runtime does not know the pod."""
        known = self._states.get(uid)
        if known is not None:
            return known
        mine = {s.id: s for s in self._sandboxes.values() if s.uid == uid}
        if not mine:
            return EMPTY
        theirs = (c for c in self._containers.values() if c.sandbox in mine)
        state = self._states[uid] = pod_runtime_state(mine.values(), theirs)
        return state

    def uids(self) -> set[str]:
        """Return the uids of all pods with a sandbox."""
        return {sandbox.uid for sandbox in self._sandboxes.values()}

    async def relist(self) -> None:
        """Read the lists of the runtime anew."""
        while True:
            changes = self.changes
            sandboxes = {s.id: s for s in await self._runtime.sandboxes()}
            containers = {c.id: c for c in await self._runtime.containers()}
            if changes == self.changes:
                # Otherwise a worker or an event has put something here meanwhile, and the lists
                # may be older than that.
                break
        before = {uid: self.of(uid) for uid in self.uids()}
        self._sandboxes, self._containers, self._states = sandboxes, containers, {}
        self.changes += 1
        for uid in before.keys() | self.uids():
            if before.get(uid, EMPTY) != self.of(uid):
                self._changed(uid)

    def put_sandbox(self, sandbox: PodSandbox) -> None:
        self._sandboxes[sandbox.id] = sandbox
        self._invalidate_pod(sandbox.uid)

    def remove_sandbox(self, sandbox: str) -> None:
        """Forget a removed sandbox and its containers."""
        gone = self._sandboxes.pop(sandbox, None)
        if gone is not None:
            inside = [c.id for c in self._containers.values() if c.sandbox == sandbox]
            for container in inside:
                del self._containers[container]
            self._invalidate_pod(gone.uid)

    def remove_container(self, container: str) -> None:
        gone = self._containers.pop(container, None)
        if gone is not None:
            self._invalidate_pod_of(gone)

    async def refresh(self, container: str) -> RuntimeContainer | None:
        """Read one container anew; return None if it is gone."""
        try:
            seen = await self._runtime.container(container)
        except NotFoundError:
            self.remove_container(container)
            return None
        self._containers[container] = seen
        self._invalidate_pod_of(seen)
        return seen

    def mark_sandbox_stopped(self, sandbox: str) -> None:
        """Mark a sandbox as stopped."""
        known = self._sandboxes.get(sandbox)
        if known is not None:
            self.put_sandbox(replace(known, ready=False))

    async def run(self) -> None:
        """Follow the runtime's events until cancelled."""
        delay: BackoffDelay | None = None
        while True:
            begun = self._clock.monotonic()
            try:
                await self._follow()
            except (OSError, RuntimeFailure) as error:
                log.warning("cannot watch the runtime error=%r; retrying", str(error))
            # A restarted supervisor answers at once; the delay grows for one that keeps failing.
            now = self._clock.monotonic()
            delay = RETRIES.after(delay, begun, now) if now - begun < 1 else None
            await self._clock.sleep(delay.seconds if delay is not None else 0.05)

    async def _follow(self) -> None:
        events = aiter(self._runtime.watch())
        # This method owns the task. A TaskGroup would wrap an error of the runtime, which `run`
        # handles, in an ExceptionGroup.
        first = asyncio.ensure_future(anext(events, None))
        try:
            # Subscribe first, list second: the watch begins when its first event is awaited, so a
            # change is in the lists, in the events, or in both, but never in neither.
            await asyncio.wait({first}, timeout=0)
            await self.relist()
            event = await first
            while event is not None:
                await self._apply(event)
                event = await anext(events, None)
        finally:
            first.cancel()

    async def _apply(self, event: ContainerEvent) -> None:
        known = self._containers.get(event.container)
        if event.type == "removed":
            self.remove_container(event.container)
        elif event.sandbox not in self._sandboxes or not event.container:
            # About the sandbox itself, or about a sandbox that is not in the cache.
            await self.relist()
            return
        elif event.type == "started" and known is not None and known.state is not RunState.CREATED:
            # The worker that started it has read it already.
            return
        else:
            await self.refresh(event.container)
        if known != self._containers.get(event.container):
            self._changed(event.pod_uid)

    def _invalidate_pod_of(self, container: RuntimeContainer) -> None:
        sandbox = self._sandboxes.get(container.sandbox)
        if sandbox is not None:
            self._invalidate_pod(sandbox.uid)

    def _invalidate_pod(self, uid: str) -> None:
        """Invalidate the state of a pod."""
        self.changes += 1
        self._states.pop(uid, None)
