"""FakeRuntime: containers that exist only in memory and do what a test says."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from kedge.machinery.clock import Clock
from kedge.node.runtime.runtime import (
    ContainerConfig,
    ContainerEvent,
    ContainerLimits,
    ContainerStream,
    ExecResult,
    NotFoundError,
    PodSandbox,
    RunState,
    RuntimeContainer,
    RuntimeFailure,
    RuntimeFeatures,
    SandboxConfig,
)
from kedge.supervisor.machine_capabilities import FULL, of_level

KILLED = 137
TERMINATED = 143


@dataclass(frozen=True)
class ContainerRun:
    """The script of one run of a container."""

    exit_code: int = 0
    after: float | None = None
    """Seconds until it ends by itself; None runs until it is stopped."""
    reason: str = ""
    obeys_after: float | None = 0.0
    """Seconds from the signal to its end; None does not obey and has to be killed."""


FOREVER = ContainerRun()


class FakeRuntime:
    """A Runtime for tests. `lives` scripts the runs of a container by its name, `failures` what
    the next calls of a method raise, `commands` what execute answers."""

    name = "fake"
    version = "1"
    capabilities = of_level(FULL)
    no_user_namespaces = ""
    features = RuntimeFeatures(strict_groups=True, recursive_read_only=True, stop_signals=True)

    def __init__(self, clock: Clock) -> None:
        self.calls: list[tuple[str, ...]] = []
        """Everything that was asked to change something, with names instead of ids."""
        self.lives: dict[str, list[ContainerRun]] = {}
        self.failures: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self.commands: dict[tuple[str, ...], ExecResult | Exception] = {}
        self.executed: list[tuple[str, tuple[str, ...]]] = []
        self.specs: dict[str, ContainerConfig] = {}
        """By id of the container."""
        self.sandbox_specs: dict[str, SandboxConfig] = {}
        self.updates: list[tuple[str, ContainerLimits]] = []
        self.interrupt: Callable[[str, str], None] | None = None
        """Called with `before` or `after`, and the method, around every change; may raise."""
        self._clock = clock
        self._ids = count(1)
        self._sandboxes: dict[str, PodSandbox] = {}
        self._containers: dict[str, RuntimeContainer] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._watchers: list[asyncio.Queue[ContainerEvent | None]] = []

    # Methods for tests.

    def of(self, name: str) -> list[RuntimeContainer]:
        """All containers of a name, the eldest first."""
        return [c for c in self._containers.values() if c.name == name]

    def newest(self, name: str) -> RuntimeContainer:
        return self.of(name)[-1]

    def running(self) -> list[str]:
        """Names of what runs."""
        return [c.name for c in self._containers.values() if c.state is RunState.RUNNING]

    def started(self) -> list[tuple[str, int]]:
        """(name, attempt) of every start there was, in order."""
        return [(call[1], int(call[2])) for call in self.calls if call[0] == "start_container"]

    def end(self, name: str, exit_code: int = 0, reason: str = "") -> None:
        """Let the running container of a name end."""
        self._end(self.newest(name).id, exit_code, reason)

    def lose_everything(self) -> None:
        """As if the supervisor had been killed: nothing runs any more, and watches end."""
        watchers, self._watchers = self._watchers, []
        for container in list(self._containers.values()):
            if container.state is not RunState.EXITED:
                self._end(container.id, KILLED, "ContainerStatusUnknown")
        for identity, sandbox in self._sandboxes.items():
            self._sandboxes[identity] = replace(sandbox, ready=False)
        for watcher in watchers:
            watcher.put_nowait(None)

    def disconnect(self) -> None:
        """End all watches."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher.put_nowait(None)

    # Methods of the runtime protocol.

    async def sandboxes(self) -> list[PodSandbox]:
        return list(self._sandboxes.values())

    async def containers(self) -> list[RuntimeContainer]:
        return list(self._containers.values())

    async def container(self, container: str) -> RuntimeContainer:
        return self._container(container)

    async def run_sandbox(self, spec: SandboxConfig) -> PodSandbox:
        self._begin("run_sandbox", spec.name, str(spec.attempt))
        number = next(self._ids)
        sandbox = PodSandbox(
            id=f"sandbox-{number}",
            namespace=spec.namespace,
            name=spec.name,
            uid=spec.uid,
            attempt=spec.attempt,
            created_at=self._nanoseconds(),
            ips=() if spec.host_network else (f"10.0.0.{number}",),
            labels=spec.labels,
            annotations=spec.annotations,
        )
        self._sandboxes[sandbox.id] = sandbox
        self.sandbox_specs[sandbox.id] = spec
        self._done("run_sandbox")
        return sandbox

    async def stop_sandbox(self, sandbox: str) -> None:
        known = self._sandboxes.get(sandbox)
        if known is None:
            return
        self._begin("stop_sandbox", known.name, str(known.attempt))
        for container in list(self._containers.values()):
            if container.sandbox == sandbox and container.state is RunState.RUNNING:
                self._end(container.id, KILLED, "Error")
        self._sandboxes[sandbox] = replace(known, ready=False)
        self._done("stop_sandbox")

    async def remove_sandbox(self, sandbox: str) -> None:
        known = self._sandboxes.get(sandbox)
        if known is None:
            return
        self._begin("remove_sandbox", known.name, str(known.attempt))
        for container in [c for c in self._containers.values() if c.sandbox == sandbox]:
            self._cancel(container.id)
            del self._containers[container.id]
        del self._sandboxes[sandbox]
        self._done("remove_sandbox")

    async def create_container(self, sandbox: str, spec: ContainerConfig) -> str:
        if sandbox not in self._sandboxes:
            raise NotFoundError(sandbox)
        if not self._sandboxes[sandbox].ready:
            raise RuntimeFailure(f"sandbox {sandbox} is not ready")
        self._begin("create_container", spec.name, str(spec.attempt))
        container = RuntimeContainer(
            id=f"container-{next(self._ids)}",
            sandbox=sandbox,
            name=spec.name,
            attempt=spec.attempt,
            state=RunState.CREATED,
            created_at=self._nanoseconds(),
            image=spec.image,
            image_name=spec.image_name,
            log_path=f"{self.sandbox_specs[sandbox].log_directory}/{spec.log_path}",
            labels=spec.labels,
            annotations=spec.annotations,
        )
        self._containers[container.id] = container
        self.specs[container.id] = spec
        self._done("create_container")
        return container.id

    async def start_container(self, container: str) -> None:
        known = self._container(container)
        if known.state is not RunState.CREATED:
            raise RuntimeFailure(f"container {known.name} was started already: it is {known.state}")
        try:
            self._begin("start_container", known.name, str(known.attempt))
            self._see_mounts(container)
        except RuntimeFailure as error:
            now = self._nanoseconds()
            self._containers[container] = replace(
                known,
                state=RunState.EXITED,
                exit_code=128,
                reason="StartError",
                message=str(error),
                started_at=now,
                finished_at=now,
            )
            raise
        self._containers[container] = replace(
            known, state=RunState.RUNNING, started_at=self._nanoseconds(), pid=1000
        )
        self._happened(container, "started")
        life = self._life(known)
        if life.after is not None:
            self._later(container, life.after, life.exit_code, life.reason)
        self._done("start_container")

    def _see_mounts(self, container: str) -> None:
        """As any runtime that mounts: what is not there cannot be seen in the container."""
        for mount in self.specs[container].mounts:
            if not Path(mount.host_path).exists():
                what = f'failed to mount "{mount.host_path}" at "{mount.container_path}"'
                raise RuntimeFailure(f"{what}: no such file or directory")

    async def stop_container(self, container: str, grace: float) -> None:
        known = self._containers.get(container)
        if known is None or known.state is not RunState.RUNNING:
            return
        self._begin("stop_container", known.name, f"{grace:g}")
        takes = self._life(known).obeys_after
        if takes is not None and takes <= grace:
            if takes:
                await self._clock.sleep(takes)
            self._end(container, TERMINATED, "Error")
        else:
            await self._clock.sleep(grace)
            self._end(container, KILLED, "Error")
        self._done("stop_container")

    async def remove_container(self, container: str) -> None:
        known = self._containers.get(container)
        if known is None:
            return
        self._begin("remove_container", known.name, str(known.attempt))
        self._cancel(container)
        happened = self._event(container, "removed")
        del self._containers[container]
        self._tell(happened)
        self._done("remove_container")

    async def update_container(self, container: str, resources: ContainerLimits) -> None:
        known = self._container(container)
        self._begin("update_container", known.name)
        self.updates.append((known.name, resources))
        self._done("update_container")

    async def execute(self, container: str, argv: Sequence[str], patience: float) -> ExecResult:
        known = self._container(container)
        if known.state is not RunState.RUNNING:
            raise RuntimeFailure(f"container {known.name} is not running")
        self.executed.append((known.name, tuple(argv)))
        answer = self.commands.get(tuple(argv), ExecResult(exit_code=0))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def exec_stream(
        self, container: str, argv: Sequence[str], *, tty: bool, stdin: bool
    ) -> ContainerStream:
        raise RuntimeFailure("streams cannot be faked")

    async def attach(self, container: str, *, stdin: bool) -> ContainerStream:
        raise RuntimeFailure("streams cannot be faked")

    async def dial(self, sandbox: str, port: int) -> int:
        raise RuntimeFailure("connections cannot be faked")

    async def watch(self) -> AsyncIterator[ContainerEvent]:
        queue: asyncio.Queue[ContainerEvent | None] = asyncio.Queue()
        self._watchers.append(queue)
        while (happened := await queue.get()) is not None:
            yield happened

    async def close(self) -> None:
        self.disconnect()

    def cancel_timers(self) -> None:
        """Let nothing end by itself any more; for the end of a test."""
        for identity in list(self._timers):
            self._cancel(identity)

    # How it works.

    def _container(self, container: str) -> RuntimeContainer:
        try:
            return self._containers[container]
        except KeyError:
            raise NotFoundError(container) from None

    def _life(self, container: RuntimeContainer) -> ContainerRun:
        """The script's run of this attempt; its last one goes on for ever."""
        lives = self.lives.get(container.name)
        return lives[min(container.attempt, len(lives) - 1)] if lives else FOREVER

    def _begin(self, method: str, *words: str) -> None:
        if self.interrupt is not None:
            self.interrupt("before", method)
        if self.failures[method]:
            raise self.failures[method].popleft()
        self.calls.append((method, *words))

    def _done(self, method: str) -> None:
        if self.interrupt is not None:
            self.interrupt("after", method)

    def _later(self, container: str, seconds: float, exit_code: int, reason: str) -> None:
        async def end() -> None:
            await self._clock.sleep(seconds)
            self._end(container, exit_code, reason)

        # The runtime owns the task: it ends with the container.
        self._timers[container] = asyncio.get_running_loop().create_task(end())

    def _cancel(self, container: str) -> None:
        timer = self._timers.pop(container, None)
        if timer is not None and timer is not asyncio.current_task():
            timer.cancel()

    def _end(self, container: str, exit_code: int, reason: str) -> None:
        known = self._containers.get(container)
        if known is None or known.state is RunState.EXITED:
            return
        self._cancel(container)
        self._containers[container] = replace(
            known,
            state=RunState.EXITED,
            exit_code=exit_code,
            reason=reason or ("Error" if exit_code else "Completed"),
            finished_at=self._nanoseconds(),
            pid=0,
        )
        self._happened(container, "exited")

    def _happened(self, container: str, type_: str) -> None:
        self._tell(self._event(container, type_))

    def _event(self, container: str, type_: str) -> ContainerEvent:
        known = self._containers[container]
        uid = self._sandboxes[known.sandbox].uid
        return ContainerEvent(container=container, sandbox=known.sandbox, pod_uid=uid, type=type_)

    def _tell(self, happened: ContainerEvent) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(happened)

    def _nanoseconds(self) -> int:
        return int(self._clock.now().timestamp() * 1000) * 10**6
