"""The embedded runtime: runs containers with kedge's own supervisor."""

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final, Protocol, Self

import msgspec

from kedge import __version__
from kedge.machinery.clock import Clock, SystemClock
from kedge.node.images.host import HostImage
from kedge.node.runtime import channel, supervisor_spec
from kedge.node.runtime.channel import SupervisorChannel, SupervisorLost
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
    RuntimeLevel,
    SandboxConfig,
)
from kedge.node.runtime.spawn import SupervisorStart
from kedge.node.runtime.supervisor_spec import ContainerImages, ContainerPlace
from kedge.restarter.decision import Failures, ProgramEnd, decide
from kedge.supervisor import machine_capabilities
from kedge.supervisor.kernel import cgroups
from kedge.supervisor.kernel.cgroups import Cgroups

Document = dict[str, Any]

PROTOCOL: Final = 1
_MOST_OUTPUT: Final = 256 << 10
"""Bytes of each stream that are kept of a probe, a hook or a command."""
_CHUNK: Final = 65_536
_NOTHING_HIDDEN: Final = HostImage()
_LONGEST_DELAY: Final = 10.0
"""Longest delay before a supervisor that keeps dying is restarted: all pods of the node wait for
it."""
_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


class PodNetwork(Protocol):
    """Attaches pods to a network (kedge.node.network)."""

    @property
    def ends_with_supervisor(self) -> bool:
        """Whether the network is lost with the supervisor, which holds its namespace."""
        ...

    async def attach(
        self, sandbox: str, spec: SandboxConfig, namespace: str, descriptor: int
    ) -> list[str]:
        """Attach a pod; return its addresses. The descriptor is a netlink socket in its network
        namespace, and is closed."""
        ...

    async def detach(self, sandbox: str) -> None:
        """Detach a pod. Idempotent."""
        ...

    async def adopt(self, sandbox: str, spec: SandboxConfig, address: str) -> None:
        """Take over a pod after a restart of the agent, and open its host ports."""
        ...

    async def detach_others(self, sandboxes: Set[str]) -> None:
        """Detach all pods but these."""
        ...

    def address_of(self, sandbox: str) -> str:
        """Return the address of a pod; empty if it has none."""
        ...

    def collisions(self, sandbox: str) -> list[str]:
        """Return, in words, the ports of a pod that another program may have."""
        ...


class EmbeddedRuntime:
    """Runs containers with a supervisor. Fulfils kedge.node.runtime.runtime.Runtime. A dead
    supervisor is restarted by the next request; its containers are then reported as ended."""

    name: str = "kedge"
    version: str = __version__

    def __init__(
        self,
        directory: Path,
        images: ContainerImages,
        *,
        network: PodNetwork | None = None,
        hidden: Sequence[Path] = (),
        host_image: HostImage = _NOTHING_HIDDEN,
        listed: Sequence[Path] = (),
        clock: Clock | None = None,
    ) -> None:
        self.capabilities = machine_capabilities.of_level(machine_capabilities.PLAIN)
        self.cgroups: Cgroups | None = None
        self.no_user_namespaces = ""
        self.features = RuntimeFeatures()
        self.supervisor = 0
        """The pid of the supervisor."""
        self._directory = directory
        self._images = images
        self._network = network
        self._hidden = hidden
        self._host_image = host_image
        self._listed = listed
        self._clock = clock or SystemClock()
        self._begun: SupervisorStart | None = None
        self._channel: SupervisorChannel | None = None
        self._connecting = asyncio.Lock()
        self._connected_at = 0.0
        self._failures = Failures()
        """The number of recent deaths of the supervisor."""
        self._restarts: asyncio.Queue[str] = asyncio.Queue()
        self._specs: dict[str, SandboxConfig] = {}
        self._kept: dict[str, Sequence[int]] = {}
        """Descriptors that each supervisor keeps, by name."""
        self._is_network_lost = False

    @classmethod
    async def open(
        cls,
        directory: Path,
        images: ContainerImages,
        *,
        network: PodNetwork | None = None,
        hidden: Sequence[Path] = (),
        host_image: HostImage = _NOTHING_HIDDEN,
        listed: Sequence[Path] = (),
        clock: Clock | None = None,
        begun: SupervisorStart | None = None,
    ) -> Self:
        """Connect to the supervisor of a directory, or start one if none has `begun`. `hidden` are
        paths that containers with the machine's files must not see; so are the targets of links in
        `listed` directories at the creation of a container."""
        runtime = cls(
            directory,
            images,
            network=network,
            hidden=hidden,
            host_image=host_image,
            listed=listed,
            clock=clock,
        )
        runtime._begun = begun
        await runtime._connected()
        return runtime

    @property
    def level(self) -> RuntimeLevel:
        return RuntimeLevel(self.capabilities.level)

    async def _connected(self) -> SupervisorChannel:
        async with self._connecting:
            if self._channel is None:
                self._channel = await self._connect()
            elif not self._channel.is_open:
                await self._back_off()
                self._channel = await self._connect()
            return self._channel

    async def _back_off(self) -> None:
        """Wait before restarting a supervisor that has died recently."""
        now = self._clock.monotonic()
        verdict = decide(self._failures, ProgramEnd(None, now - self._connected_at))
        self._failures, self._connected_at = verdict.failures, now
        await self._clock.sleep(min(verdict.delay or 0.0, _LONGEST_DELAY))

    async def _connect(self) -> SupervisorChannel:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        begun, self._begun = self._begun, None
        connected = await channel.connect(self._directory, self._clock, begun)
        hello = await connected.ask("hello")
        if hello["protocol"] != PROTOCOL:
            connected.close()
            raise RuntimeFailure("the supervisor is of another release: stop the node's pods first")
        await connected.ask("watch")
        self.capabilities = machine_capabilities.read(hello)
        self.cgroups = self._cgroups(hello)
        # A supervisor of an earlier release ignores the field, and the pod would get the
        # machine's users.
        self.no_user_namespaces = hello.get("no_user_namespaces", "the supervisor is too old")
        self.features = RuntimeFeatures(
            strict_groups=True,
            recursive_read_only=self.capabilities.is_root,
            stop_signals=True,
            user_namespaces=not self.no_user_namespaces,
        )
        before, self.supervisor = self.supervisor, int(hello["pid"])
        self._connected_at = self._clock.monotonic()
        listed = await connected.ask("list")
        if before not in (0, self.supervisor):
            self._restarts.put_nowait(_restart(before, self.supervisor, listed))
            self._is_network_lost = bool(self._network and self._network.ends_with_supervisor)
            if not self._is_network_lost:
                for name, descriptors in self._kept.items():
                    await connected.call("keep_sockets", descriptors, name=name)
        self._specs = {each["id"]: _spec(each) for each in listed["sandboxes"]}
        self._images.release_others({each["id"] for each in listed["containers"]})
        if self._network:
            # A sandbox ends with its supervisor, but its record stays as long as its containers'
            # states are needed. Its address and host ports are released here.
            ready = {each["id"] for each in listed["sandboxes"] if each["ready"]}
            await self._network.detach_others(ready)
        for each in listed["sandboxes"]:
            spec = self._specs[each["id"]]
            if self._network and each["ready"] and each["ips"]:
                await self._network.adopt(each["id"], spec, each["ips"][0])
        return connected

    def _cgroups(self, hello: Document) -> Cgroups | None:
        """Return the control groups that the supervisor uses; None if it uses none."""
        if not self.capabilities.has_cgroups:
            return None
        # A supervisor of an earlier release uses those of the machine.
        return Cgroups.of(hello["cgroups"]) if "cgroups" in hello else cgroups.here()

    async def _ask(self, do: str, **fields: object) -> Document:
        return await (await self._connected()).ask(do, **fields)

    async def _ask_idempotent(self, do: str, **fields: object) -> Document:
        """Send an idempotent request: if the supervisor dies, it is sent to the next one."""
        try:
            return await self._ask(do, **fields)
        except SupervisorLost:
            return await self._ask(do, **fields)

    async def keep_sockets(self, name: str, descriptors: Sequence[int]) -> None:
        """Have the supervisor keep sockets open while the agent restarts. They replace those of the
        same name, and must stay open as long as this runtime."""
        self._kept[name] = descriptors
        await (await self._connected()).call("keep_sockets", descriptors, name=name)

    async def kept_sockets(self, name: str) -> list[int]:
        """Return the sockets that an earlier agent had the supervisor keep. The caller owns the
        descriptors."""
        _, descriptors = await (await self._connected()).call("kept_sockets", name=name)
        return descriptors

    async def uplink_namespace(self) -> list[int]:
        """Have the supervisor make a network namespace for a program that carries packets; return
        descriptors of it and of a socket of rtnetlink in it. The caller owns them."""
        _, descriptors = await (await self._connected()).call("uplink_namespace")
        return descriptors

    @property
    def is_counted(self) -> bool:
        """Whether files in memory count for the memory limits of containers."""
        return self.capabilities.memory != machine_capabilities.ADVISORY

    async def mount_memory(self, place: Path, *, size: int, mode: int, group: int) -> None:
        """Have the supervisor mount a tmpfs for a volume, unless it is mounted. Idempotent."""
        await self._ask_idempotent(
            "mount_memory", place=str(place), size=size, mode=mode, group=group
        )

    async def restarted(self) -> str:
        """Wait until a dead supervisor was replaced; return the message for the event."""
        return await self._restarts.get()

    async def sandboxes(self) -> list[PodSandbox]:
        return [_sandbox(each) for each in (await self._ask_idempotent("list"))["sandboxes"]]

    async def containers(self) -> list[RuntimeContainer]:
        return [_container(each) for each in (await self._ask_idempotent("list"))["containers"]]

    async def container(self, container: str) -> RuntimeContainer:
        return _container(await self._ask_idempotent("get", container=container))

    async def run_sandbox(self, spec: SandboxConfig) -> PodSandbox:
        name = f"{spec.name}_{spec.namespace}_{spec.uid}_{spec.attempt}"
        about, shared = supervisor_spec.sandbox_document(spec), supervisor_spec.shared(spec)
        connected = await self._connected()
        made, descriptors = await connected.call(
            "run_sandbox", name=name, about=about, shared=shared
        )
        self._specs[made["id"]] = spec
        try:
            ips = await self._attach(made, spec, descriptors)
            settled = await connected.ask("settle_sandbox", sandbox=made["id"], ips=ips)
        except BaseException:
            await self.remove_sandbox(made["id"])
            raise
        return _sandbox(settled)

    async def _attach(
        self, made: Document, spec: SandboxConfig, descriptors: list[int]
    ) -> list[str]:
        if not descriptors:
            # The pod shares the machine's network: because it wants to, or because it must.
            if self._network is None or spec.host_network or self.capabilities.namespaces:
                return []
            return await self._network.attach(made["id"], spec, "", -1)
        if self._network is None or self._is_network_lost:
            os.close(descriptors[0])
            if self._is_network_lost:
                raise RuntimeFailure("the network of pods ended with the supervisor")
            return []
        return await self._network.attach(made["id"], spec, made["network"], descriptors[0])

    async def stop_sandbox(self, sandbox: str) -> None:
        await self._ask_idempotent("stop_sandbox", sandbox=sandbox)
        if self._network:
            await self._network.detach(sandbox)

    async def remove_sandbox(self, sandbox: str) -> None:
        removed = await self._ask_idempotent("remove_sandbox", sandbox=sandbox)
        self._specs.pop(sandbox, None)
        for container in removed.get("containers", ()):
            self._images.release(container)
        if self._network:
            await self._network.detach(sandbox)

    async def create_container(self, sandbox: str, spec: ContainerConfig) -> str:
        image = self._images.get(spec.image)
        if image is None:
            raise RuntimeFailure(f"there is no image {spec.image} on this machine")
        connected = await self._connected()
        of_sandbox = self._specs.get(sandbox)
        if of_sandbox is None:
            raise NotFoundError(f"there is no sandbox {sandbox}")
        place = ContainerPlace(
            capabilities=self.capabilities,
            log_directory=of_sandbox.log_directory,
            files=self._directory / "sandboxes" / sandbox,
            hostname=of_sandbox.hostname,
            first_id=of_sandbox.first_id,
            hidden=[*self._hidden, *supervisor_spec.linked(self._listed), self._directory],
            host_image=self._host_image,
        )
        for mount in spec.mounts:
            supervisor_spec.make_source(mount)
        plan = supervisor_spec.plan(spec, image, place)
        if self._network is not None:
            plan["shortfalls"] += self._network.collisions(sandbox)
        about = {
            **supervisor_spec.about_container(spec),
            "user": plan["user"],
            "group": plan["group"],
            "groups": plan["groups"],
            "log": plan["log"],
        }
        made = await connected.ask(
            "create", sandbox=sandbox, name=f"{spec.name}_{spec.attempt}", about=about, plan=plan
        )
        identity = str(made["id"])
        try:
            self._images.hold(spec.image, identity)
        except LookupError as error:
            # Nodes share their images, and another one has removed this image in between.
            await self.remove_container(identity)
            raise RuntimeFailure(f"image {spec.image} has just been removed") from error
        return identity

    async def start_container(self, container: str) -> None:
        await self._ask("start", container=container)

    async def stop_container(self, container: str, grace: float) -> None:
        await self._ask_idempotent("stop", container=container, grace=grace)

    async def remove_container(self, container: str) -> None:
        await self._ask_idempotent("remove", container=container)
        self._images.release(container)

    async def update_container(self, container: str, resources: ContainerLimits) -> None:
        await self._ask(
            "update", container=container, resources=supervisor_spec.resources(resources)
        )

    async def exceed_memory(self, container: str) -> None:
        """Kill a running container as if it had used up its memory, for tests."""
        await self._ask("exceed", container=container)

    async def execute(self, container: str, argv: Sequence[str], patience: float) -> ExecResult:
        stream = await self.exec_stream(container, argv, tty=False, stdin=False)
        try:
            async with asyncio.timeout(patience), asyncio.TaskGroup() as group:
                stdout = group.create_task(_read_all(stream.stdout))
                stderr = group.create_task(_read_all(stream.stderr))
                code = group.create_task(stream.wait())
        finally:
            await stream.close()
        return ExecResult(exit_code=code.result(), stdout=stdout.result(), stderr=stderr.result())

    async def exec_stream(
        self, container: str, argv: Sequence[str], *, tty: bool, stdin: bool
    ) -> ContainerStream:
        connected = await self._connected()
        made, descriptors = await connected.call(
            "exec", container=container, argv=list(argv), terminal=tty, stdin=stdin
        )
        return _CommandStream(connected, made["command"], _streams(descriptors, tty, stdin), tty)

    async def attach(self, container: str, *, stdin: bool) -> ContainerStream:
        connected = await self._connected()
        made, descriptors = await connected.call("attach", container=container, stdin=stdin)
        streams = _streams(descriptors, made["terminal"], made["stdin"])
        return _AttachedStream(connected, container, streams)

    async def dial(self, sandbox: str, port: int) -> int:
        failure: OSError | None = None
        for family, address in self._dialed(sandbox).items():
            _, descriptors = await (await self._connected()).call(
                "dial", sandbox=sandbox, family=int(family)
            )
            connecting = socket.socket(fileno=descriptors[0])
            connecting.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(connecting, (address, port))
                return connecting.detach()
            except OSError as error:
                failure = failure or error
            connecting.close()
        reason = os.strerror(failure.errno or 0) if failure else ""
        raise RuntimeFailure(f"failed to connect to localhost:{port} inside the pod: {reason}")

    def _dialed(self, sandbox: str) -> dict[socket.AddressFamily, str]:
        """Return the addresses at which the ports of a pod are tried. One that shares the machine's
        network has an address of its own."""
        if self._network is None or self.capabilities.namespaces:
            return _LOOPBACK
        own = self._network.address_of(sandbox)
        return {socket.AF_INET: own} if own else _LOOPBACK

    def watch(self) -> AsyncIterator[ContainerEvent]:
        queue: asyncio.Queue[Document | None] = asyncio.Queue()
        if self._channel is None:
            queue.put_nowait(None)
        else:
            self._channel.watch(queue)
        return self._events(queue, self._channel)

    async def _events(
        self, queue: asyncio.Queue[Document | None], connected: SupervisorChannel | None
    ) -> AsyncIterator[ContainerEvent]:
        try:
            while (event := await queue.get()) is not None:
                yield msgspec.convert(event, ContainerEvent)
        finally:
            if connected is not None:
                connected.unwatch(queue)

    async def shutdown(self) -> None:
        """End all containers and the supervisor; the next one still lists them."""
        await self._ask("shutdown")
        await self.close()

    async def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


class _StreamDescriptors:
    """The descriptors of a stream; a terminal has one for both directions."""

    def __init__(self, stdin: int, stdout: int, stderr: int) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr

    def let_go(self) -> None:
        for descriptor in {self.stdin, self.stdout, self.stderr} - {-1}:
            # The user of the stream may have closed one already to signal its end.
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.stdin = self.stdout = self.stderr = -1


class _CommandStream(_StreamDescriptors):
    """A command in a container, connected to a client."""

    def __init__(
        self, channel_: SupervisorChannel, command: int, streams: _StreamDescriptors, tty: bool
    ) -> None:
        super().__init__(streams.stdin, streams.stdout, streams.stderr)
        self._channel = channel_
        self._command = command
        self._terminal = os.dup(streams.stdin) if tty else -1
        self._exit: asyncio.Future[int] | None = None

    async def resize(self, width: int, height: int) -> None:
        if self._terminal >= 0:
            size = struct.pack("4H", height, width, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    async def wait(self) -> int:
        if self._exit is None:
            # Not needed for the start of a node.
            from kedge.node.runtime.owned_tasks import OwnedTasks

            # It must outlive a caller that is cancelled while it waits: `close` kills the process
            # and waits for its end.
            self._exit = OwnedTasks().start(self._ended())
        return await asyncio.shield(self._exit)

    async def _ended(self) -> int:
        return int((await self._channel.ask("wait_command", command=self._command))["exit_code"])

    async def close(self) -> None:
        self.let_go()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1
        if self._exit is None or not self._exit.done():
            with contextlib.suppress(NotFoundError, RuntimeFailure):
                await self._channel.ask("kill_command", command=self._command)
                await self.wait()


class _AttachedStream(_StreamDescriptors):
    """A container's own streams, connected to a client."""

    def __init__(
        self, channel_: SupervisorChannel, container: str, streams: _StreamDescriptors
    ) -> None:
        super().__init__(streams.stdin, streams.stdout, streams.stderr)
        self._channel = channel_
        self._container = container

    async def resize(self, width: int, height: int) -> None:
        await self._channel.ask("resize", container=self._container, width=width, height=height)

    async def wait(self) -> int:
        return int((await self._channel.ask("wait", container=self._container))["exit_code"])

    async def close(self) -> None:
        self.let_go()


def _streams(descriptors: list[int], terminal: bool, stdin: bool) -> _StreamDescriptors:
    if terminal:
        return _StreamDescriptors(descriptors[0], descriptors[0], -1)
    first = [] if stdin else [-1]
    return _StreamDescriptors(*first, *descriptors)


async def _read_all(descriptor: int) -> bytes:
    """Return the data until the end; data beyond the limit is read and dropped."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    os.set_blocking(descriptor, False)
    loop.add_reader(descriptor, readable.set)
    kept: list[bytes] = []
    size = 0
    try:
        while True:
            # Before every read, also while there is more: a command that never stops writing would
            # block the event loop, and its own timeout.
            readable.clear()
            await readable.wait()
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                continue
            if not data:
                return b"".join(kept)
            kept.append(data[: max(_MOST_OUTPUT - size, 0)])
            size += len(data)
    finally:
        loop.remove_reader(descriptor)


def _restart(before: int, now: int, listed: Document) -> str:
    """Return the message about a supervisor that died. Its exit code is unknown, because its parent
    is process 1."""
    pods = len({each["about"]["uid"] for each in listed["sandboxes"]})
    number = "1 pod" if pods == 1 else f"{pods} pods"
    told = f"the containers of {number} ended with it" if pods else "no container ran"
    return f"The supervisor, process {before}, ended and was restarted, process {now}; {told}"


def _spec(record: Document) -> SandboxConfig:
    return msgspec.convert(record["about"], SandboxConfig)


def _sandbox(record: Document) -> PodSandbox:
    about: Mapping[str, Any] = record["about"]
    return PodSandbox(
        id=record["id"],
        namespace=about["namespace"],
        name=about["name"],
        uid=about["uid"],
        attempt=about.get("attempt", 0),
        ready=record["ready"],
        created_at=record["created_at"],
        ips=record["ips"],
        labels=about.get("labels", {}),
        annotations=about.get("annotations", {}),
    )


def _container(record: Document) -> RuntimeContainer:
    about: Mapping[str, Any] = record["about"]
    return RuntimeContainer(
        id=record["id"],
        sandbox=record["sandbox"],
        name=about["name"],
        state=RunState(record["state"]),
        attempt=about.get("attempt", 0),
        created_at=record["created_at"],
        started_at=record["started_at"],
        finished_at=record["finished_at"],
        exit_code=record["exit_code"],
        reason=record["reason"],
        message=record["message"],
        image=about["image"],
        image_name=about.get("image_name", ""),
        log_path=about["log"],
        pid=record["pid"],
        cgroup=record["cgroup"],
        labels=about.get("labels", {}),
        annotations=about.get("annotations", {}),
        user=about["user"],
        group=about["group"],
        groups=about["groups"],
        shortfalls=record["shortfalls"],
    )
