"""Observed: what the runtime has of each pod, kept up to date by events instead of by asking."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from kedge.machinery.clock import Clock
from kedge.node.pod.backoff import TRIALS, BackoffDelay
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


@dataclass(frozen=True)
class PodRuntimeState:
    """The sandboxes and containers of one pod, the newest first."""

    sandboxes: tuple[PodSandbox, ...] = ()
    containers: tuple[RuntimeContainer, ...] = ()

    @property
    def sandbox(self) -> PodSandbox | None:
        """The one that counts."""
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
        """The latest container of a name, of whichever sandbox."""
        found = self.by_name.get(name)
        return found[0] if found else None

    def current(self, name: str) -> RuntimeContainer | None:
        """The latest container of a name, if it is in the sandbox that counts."""
        newest, sandbox = self.newest(name), self.sandbox
        if newest is None or sandbox is None or newest.sandbox != sandbox.id:
            return None
        return newest

    @property
    def running(self) -> tuple[RuntimeContainer, ...]:
        return tuple(c for c in self.containers if c.state is RunState.RUNNING)


def observed(
    sandboxes: Iterable[PodSandbox], containers: Iterable[RuntimeContainer]
) -> PodRuntimeState:
    """Put what belongs to one pod in order."""
    return PodRuntimeState(
        tuple(sorted(sandboxes, key=lambda s: (s.attempt, s.created_at), reverse=True)),
        tuple(sorted(containers, key=lambda c: (c.attempt, c.created_at), reverse=True)),
    )


NOTHING = PodRuntimeState()


class RuntimeCache:
    """What the runtime has, by pod. Whoever changes something says so; the rest are events."""

    def __init__(self, runtime: Runtime, clock: Clock, changed: Callable[[str], None]) -> None:
        self._runtime = runtime
        self._clock = clock
        self._changed = changed
        """Told the uid of a pod of which something has changed by itself."""
        self._sandboxes: dict[str, PodSandbox] = {}
        self._containers: dict[str, RuntimeContainer] = {}
        self._seen: dict[str, PodRuntimeState] = {}
        self.changes = 0
        """How often something of the above has changed."""

    def of(self, uid: str) -> PodRuntimeState:
        """What there is of a pod."""
        known = self._seen.get(uid)
        if known is not None:
            return known
        mine = {s.id: s for s in self._sandboxes.values() if s.uid == uid}
        if not mine:
            return NOTHING
        theirs = (c for c in self._containers.values() if c.sandbox in mine)
        seen = self._seen[uid] = observed(mine.values(), theirs)
        return seen

    def uids(self) -> set[str]:
        """Every pod of which there is something."""
        return {sandbox.uid for sandbox in self._sandboxes.values()}

    async def relist(self) -> None:
        """Ask for everything there is."""
        while True:
            changes = self.changes
            sandboxes = {s.id: s for s in await self._runtime.sandboxes()}
            containers = {c.id: c for c in await self._runtime.containers()}
            if changes == self.changes:
                # What somebody has put here meanwhile may be newer than the lists.
                break
        before = {uid: self.of(uid) for uid in self.uids()}
        self._sandboxes, self._containers, self._seen = sandboxes, containers, {}
        self.changes += 1
        for uid in before.keys() | self.uids():
            if before.get(uid, NOTHING) != self.of(uid):
                self._changed(uid)

    def put_sandbox(self, sandbox: PodSandbox) -> None:
        self._sandboxes[sandbox.id] = sandbox
        self._forget_pod(sandbox.uid)

    def drop_sandbox(self, sandbox: str) -> None:
        """A sandbox is gone, and its containers."""
        gone = self._sandboxes.pop(sandbox, None)
        if gone is not None:
            inside = [c.id for c in self._containers.values() if c.sandbox == sandbox]
            for container in inside:
                del self._containers[container]
            self._forget_pod(gone.uid)

    def drop_container(self, container: str) -> None:
        gone = self._containers.pop(container, None)
        if gone is not None:
            self._forget_pod_of(gone)

    async def refresh(self, container: str) -> RuntimeContainer | None:
        """Look at one container again; None if it is gone."""
        try:
            seen = await self._runtime.container(container)
        except NotFoundError:
            self.drop_container(container)
            return None
        self._containers[container] = seen
        self._forget_pod_of(seen)
        return seen

    def stopped_sandbox(self, sandbox: str) -> None:
        """A sandbox has been taken down."""
        known = self._sandboxes.get(sandbox)
        if known is not None:
            self.put_sandbox(replace(known, ready=False))

    async def run(self) -> None:
        """Follow the runtime's events for ever."""
        delay: BackoffDelay | None = None
        while True:
            begun = self._clock.monotonic()
            try:
                await self._follow()
            except (OSError, RuntimeFailure) as error:
                log.warning("cannot follow the runtime error=%r; trying again", str(error))
            # A supervisor that was just started again comes back at once; a broken one does not.
            now = self._clock.monotonic()
            delay = TRIALS.after(delay, begun, now) if now - begun < 1 else None
            await self._clock.sleep(delay.seconds if delay is not None else 0.05)

    async def _follow(self) -> None:
        events = aiter(self._runtime.watch())
        first = asyncio.ensure_future(anext(events, None))
        try:
            # The watch begins when its first event is waited for: what happens from then on is in
            # the events, what happened before is in the lists.
            await asyncio.wait({first}, timeout=0)
            await self.relist()
            happened = await first
            while happened is not None:
                await self._learn(happened)
                happened = await anext(events, None)
        finally:
            first.cancel()

    async def _learn(self, happened: ContainerEvent) -> None:
        known = self._containers.get(happened.container)
        if happened.type == "removed":
            self.drop_container(happened.container)
        elif happened.sandbox not in self._sandboxes or not happened.container:
            # Something about the sandbox itself, or about one that we have not heard of.
            await self.relist()
            return
        else:
            await self.refresh(happened.container)
        if known != self._containers.get(happened.container):
            self._changed(happened.pod_uid)

    def _forget_pod_of(self, container: RuntimeContainer) -> None:
        sandbox = self._sandboxes.get(container.sandbox)
        if sandbox is not None:
            self._forget_pod(sandbox.uid)

    def _forget_pod(self, uid: str) -> None:
        """What was made of the lists for a pod is old."""
        self.changes += 1
        self._seen.pop(uid, None)
