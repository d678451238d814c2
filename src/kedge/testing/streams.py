"""Streams for tests: two ends of a connection in memory, and a command made of pipes."""

import asyncio
import os
import socket
from collections.abc import Sequence

from kedge.machinery.clock import Clock
from kedge.node.runtime.runtime import ContainerStream, RuntimeFailure
from kedge.testing.runtime import FakeRuntime


class MemoryStream:
    """One end of a connection in memory. Fulfils kedge.web.duplex.ByteStream."""

    def __init__(self) -> None:
        self.other: MemoryStream
        self._arrived = bytearray()
        self._ended = False
        self._wake = asyncio.Event()
        self.closed = False

    async def read(self) -> bytes:
        while not self._arrived:
            if self._ended:
                return b""
            self._wake.clear()
            await self._wake.wait()
        data = bytes(self._arrived)
        self._arrived.clear()
        return data

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.other._arrived += data
            self.other._wake.set()

    async def drain(self) -> None:
        if self.closed or self.other.closed:
            raise ConnectionResetError("the peer has gone")

    def write_eof(self) -> None:
        self.other._ended = True
        self.other._wake.set()

    def close(self) -> None:
        self.closed = self._ended = True
        self._wake.set()
        self.write_eof()


def pair() -> tuple[MemoryStream, MemoryStream]:
    """Two ends of one connection."""
    one, other = MemoryStream(), MemoryStream()
    one.other, other.other = other, one
    return one, other


class FakeCommand:
    """A command as seen from inside: its input, its output, and its end.

    It implements kedge.node.runtime.runtime.ContainerStream for the other side.
    """

    def __init__(self, *, tty: bool = False, stdin: bool = True) -> None:
        self.told, self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, self._out = os.pipe2(os.O_CLOEXEC)
        self.stderr, self._err = (-1, -1) if tty else os.pipe2(os.O_CLOEXEC)
        if not stdin:
            os.close(self.stdin)
            self.stdin = -1
        self.sizes: list[tuple[int, int]] = []
        self.closed = False
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    # From inside.

    def say(self, text: bytes) -> None:
        os.write(self._out, text)

    def complain(self, text: bytes) -> None:
        os.write(self._err, text)

    def hear(self, size: int = 65_536) -> bytes:
        """Return up to `size` bytes of the input; blocks until there are some."""
        return os.read(self.told, size)

    def end(self, exit_code: int = 0) -> None:
        self.close_outputs()
        self._exit.set_result(exit_code)

    def close_outputs(self) -> None:
        for descriptor in {self._out, self._err} - {-1}:
            os.close(descriptor)
        self._out = self._err = -1

    def stop_listening(self) -> None:
        os.close(self.told)
        self.told = -1

    # From outside.

    async def resize(self, width: int, height: int) -> None:
        self.sizes.append((width, height))

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        self.closed = True
        self.close_outputs()
        for descriptor in {self.stdin, self.stdout, self.stderr, self.told} - {-1}:
            os.close(descriptor)
        self.stdin = self.stdout = self.stderr = self.told = -1


class StreamingRuntime(FakeRuntime):
    """A FakeRuntime with exec; `begun` holds the started commands."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.begun: asyncio.Queue[FakeCommand] = asyncio.Queue()
        """Commands and attachments, in order."""
        self.argv: list[tuple[str, ...]] = []
        self.ports: dict[int, tuple[str, int]] = {}
        """Where a port of any pod really is."""

    async def exec_stream(
        self, container: str, argv: Sequence[str], *, tty: bool, stdin: bool
    ) -> ContainerStream:
        if self.failures["exec_stream"]:
            raise self.failures["exec_stream"].popleft()
        self.argv.append(tuple(argv))
        return self._begun(tty=tty, stdin=stdin)

    async def attach(self, container: str, *, stdin: bool) -> ContainerStream:
        return self._begun(tty=False, stdin=stdin)

    def _begun(self, *, tty: bool, stdin: bool) -> FakeCommand:
        command = FakeCommand(tty=tty, stdin=stdin)
        self.begun.put_nowait(command)
        return command

    async def dial(self, sandbox: str, port: int) -> int:
        if port not in self.ports:
            why = f"failed to connect to localhost:{port} inside the pod: Connection refused"
            raise RuntimeFailure(why)
        made = socket.socket()
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, self.ports[port])
        return made.detach()
