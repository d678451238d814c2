"""PluginBench: a fake kubelet that a plugin registers with."""

import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from kedge.deviceplugin import library, methods
from kedge.deviceplugin import messages as m
from kedge.deviceplugin.check.program import CheckedProgram
from kedge.deviceplugin.sockets import answers, reachable
from kedge.machinery.clock import Clock

Q = TypeVar("Q")
A = TypeVar("A")

CALL_SECONDS: Final = 30.0
_STEP: Final = 0.02
_OPTIONS: Final = [
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_receive_message_length", 64 * 2**20),
]


class CallRejected(Exception):
    """The plugin answered a call with an error."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}" if details else code)
        self.code = code


class DirectoryInUse(Exception):
    """Another process serves the directory."""


class PluginRegistration(msgspec.Struct):
    """A plugin has registered."""

    request: m.RegisterRequest
    at: float
    listening: bool
    """Whether it listened by then."""
    called_back: str = ""
    """Why it could not be called while it waited for the answer."""
    options: m.DevicePluginOptions | None = None


class PluginBench(msgspec.Struct):
    """A directory with a registration socket, and the plugin that registered."""

    directory: Path
    clock: Clock
    patience: float
    """Seconds in which a plugin must have registered."""
    resource: str = ""
    """Which one is wanted, if several come; empty for the first."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables that a container may have, if the plugin is particular about them."""
    command: Sequence[str] = ()
    """The command that starts the plugin; empty if it is started by hand."""
    arrivals: list[PluginRegistration] = msgspec.field(default_factory=list)
    devices: list[m.Device] = msgspec.field(default_factory=list)
    restart_seconds: float = 0.0
    """How long the plugin took to register again."""
    _server: Any = None
    _program: CheckedProgram = msgspec.field(default_factory=CheckedProgram)

    # The kubelet.

    async def open(self) -> None:
        """Begin to serve. Raises DirectoryInUse or OSError."""
        await asyncio.to_thread(library.load)
        self.directory.mkdir(parents=True, exist_ok=True)
        if answers(self.socket):
            raise DirectoryInUse(
                f"another process serves {self.socket}: stop it, or choose another directory"
            )
        await self.serve()

    async def serve(self) -> None:
        """Make the registration socket."""
        grpc = library.load()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        self._server = grpc.aio.server()
        methods.offer(grpc, self._server, {methods.REGISTER: self._register})
        where, held = reachable(self.socket)
        self._server.add_insecure_port(f"unix:{where}")
        await self._server.start()
        held.close()

    async def vanish(self) -> None:
        """Be gone, socket and all."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)

    def clear(self) -> None:
        """Remove every socket, as a kubelet does that begins."""
        for entry in os.scandir(self.directory):
            if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                os.unlink(entry.path)

    @property
    def socket(self) -> Path:
        return self.directory / m.SOCKET

    async def close(self) -> None:
        await self.stop()
        await self.vanish()

    async def _register(self, request: m.RegisterRequest, context: Any) -> m.Empty:
        path = self.directory / request.endpoint
        arrival = PluginRegistration(request, self.clock.monotonic(), answers(path))
        if arrival.listening:
            try:
                async with self.connected(path) as channel:
                    call = methods.caller(channel, methods.OPTIONS)
                    arrival.options = await call(m.Empty(), timeout=5)
            except library.load().aio.AioRpcError as error:
                arrival.called_back = f"{error.code().name}: {error.details()}"
        self.arrivals.append(arrival)
        return m.Empty()

    # The plugin.

    async def start(self) -> None:
        """Start the plugin, if that is ours to do."""
        await self._program.start(self.command)

    async def stop(self, number: int = signal.SIGTERM, seconds: float = 5.0) -> bool:
        """Stop what was started; whether it ended in time."""
        return await self._program.stop(number, seconds)

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as we can know."""
        return self._program.alive

    def chosen(self) -> list[PluginRegistration]:
        """The registrations of the plugin in question, in order."""
        name = self.resource or (self.arrivals[0].request.resource_name if self.arrivals else "")
        return [each for each in self.arrivals if each.request.resource_name == name]

    @property
    def plugin(self) -> PluginRegistration:
        return self.chosen()[-1]

    @property
    def options(self) -> m.DevicePluginOptions:
        return self.plugin.options or m.DevicePluginOptions()

    @property
    def path(self) -> Path:
        """The plugin's own socket."""
        return self.directory / self.plugin.request.endpoint

    async def arrives(self, number: int, seconds: float) -> bool:
        """Whether the plugin has registered that many times, within so many seconds."""
        until = self.clock.monotonic() + seconds
        while len(self.chosen()) < number:
            if self.clock.monotonic() > until or not self.alive:
                return False
            await self.clock.sleep(_STEP)
        return True

    async def listens(self, seconds: float) -> bool:
        until = self.clock.monotonic() + seconds
        while not answers(self.path):
            if self.clock.monotonic() > until:
                return False
            await self.clock.sleep(_STEP)
        return True

    # Calls.

    def connected(self, path: Path | None = None) -> contextlib.AbstractAsyncContextManager[Any]:
        return connected(path or self.path)

    async def call(
        self, method: methods.Method[Q, A], request: Q, seconds: float = CALL_SECONDS
    ) -> A:
        """Raises CallRejected."""
        return await call(self.path, method, request, seconds)

    async def first_list(self, seconds: float = 5.0) -> list[m.Device]:
        """Return the first response of ListAndWatch. Raises CallRejected."""
        grpc = library.load()
        async with self.connected() as channel:
            stream = methods.streamer(channel, methods.LIST_AND_WATCH)(m.Empty())
            try:
                answer = await asyncio.wait_for(stream.read(), seconds)
            except TimeoutError:
                raise CallRejected("DEADLINE_EXCEEDED", f"no list within {seconds:g} s") from None
            except grpc.aio.AioRpcError as error:
                raise CallRejected(error.code().name, error.details() or "") from error
            finally:
                stream.cancel()
        if answer is grpc.aio.EOF:
            raise CallRejected("OK", "the stream ended without a list")
        return list(answer.devices)

    async def allocate(self, *groups: Sequence[str]) -> Sequence[m.ContainerAllocateResponse]:
        """Devices for containers, one group each. Raises Rejected."""
        requests = [
            m.ContainerAllocateRequest(devices_ids=ids, owner=owner(i))
            for i, ids in enumerate(groups)
        ]
        answer = await self.call(methods.ALLOCATE, m.AllocateRequest(container_requests=requests))
        return answer.container_responses

    async def pre_start(self, ids: Sequence[str], env: dict[str, str]) -> None:
        """Raises Rejected."""
        request = m.PreStartContainerRequest(devices_ids=ids, env=env, owner=owner())
        await self.call(methods.PRE_START, request)

    @property
    def healthy(self) -> list[str]:
        return [each.id for each in self.devices if each.health == m.HEALTHY]


@contextlib.asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Any]:
    """A channel to a socket."""
    grpc = library.load()
    where, held = reachable(path)
    try:
        async with grpc.aio.insecure_channel(f"unix:{where}", options=_OPTIONS) as channel:
            yield channel
    finally:
        held.close()


async def call(
    path: Path, method: methods.Method[Q, A], request: Q, seconds: float = CALL_SECONDS
) -> A:
    """Call a method of the program behind a socket. Raises CallRejected."""
    async with connected(path) as channel:
        try:
            return await methods.caller(channel, method)(request, timeout=seconds)
        except library.load().aio.AioRpcError as error:
            raise CallRejected(error.code().name, error.details() or "") from error


def owner(number: int = 0) -> m.Owner:
    return m.Owner(
        pod_name="checked",
        pod_namespace="default",
        pod_uid="00000000-0000-0000-0000-000000000000",
        container_name=f"c{number}",
    )
