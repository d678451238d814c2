"""The streams of exec and attach: from the streaming server of a runtime to file descriptors.

A runtime answers Exec and Attach with a URL. There it speaks SPDY, which can end standard input
alone; its WebSockets cannot.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from kedge.node.runtime.owned_tasks import OwnedTasks
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.web import spdy
from kedge.web.exchange import OutgoingRequest, ServerAddress, ask
from kedge.web.spdy import SpdyConnection, SpdyStream

PROTOCOL: Final = "v4.channel.k8s.io"
_CHUNK: Final = 65_536
_MOST_SAID: Final = 4096


class RemoteStreams:
    """A command or a container's own streams at the runtime. Fulfils
    kedge.node.runtime.runtime.ContainerStream."""

    def __init__(
        self, connection: SpdyConnection, exit_code: Callable[[], Awaitable[int]] | None
    ) -> None:
        """`exit_code` waits for that of the container; without it, the runtime sends that of the
        command."""
        self.stdin = self.stdout = self.stderr = -1
        self._connection = connection
        self._exit_code = exit_code
        self._tasks = OwnedTasks()
        self._tasks.start(connection.run())
        self._outputs: list[asyncio.Future[None]] = []
        self._error = connection.open({"streamtype": "error"})
        self._resize: SpdyStream | None = None
        self._end: asyncio.Future[int] | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, *, stdin: bool, stdout: bool, stderr: bool, tty: bool) -> None:
        """Open the streams that were asked for. A failure closes all."""
        try:
            await self._open(stdin=stdin, stdout=stdout, stderr=stderr, tty=tty)
        except BaseException:
            await self.close()
            raise

    async def _open(self, *, stdin: bool, stdout: bool, stderr: bool, tty: bool) -> None:
        # In the order of the kubelet's client.
        opened = {
            name: self._connection.open({"streamtype": name})
            for name, is_wanted in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr))
            if is_wanted
        }
        if tty:
            self._resize = self._connection.open({"streamtype": "resize"})
            self.stdin = self.stdout = await self._both(opened.get("stdin"), opened["stdout"])
            return
        if stdin:
            self.stdin = await self._both(opened["stdin"], None)
        if stdout:
            self.stdout = await self._both(None, opened["stdout"])
        if stderr:
            self.stderr = await self._both(None, opened["stderr"])

    async def _both(self, taken: SpdyStream | None, given: SpdyStream | None) -> int:
        """Return a descriptor to which input is written and from which output is read."""
        ours, theirs = socket.socketpair()
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        self._writers.append(writer)
        if taken is not None:
            self._tasks.start(_send(reader, taken))
        if given is not None:
            self._outputs.append(self._tasks.start(_receive(given, writer)))
        return theirs.detach()

    async def resize(self, width: int, height: int) -> None:
        if self._resize is not None:
            self._resize.write(msgspec.json.encode({"Width": width, "Height": height}) + b"\n")
            await self._resize.drain()

    async def wait(self) -> int:
        if self._end is None:
            self._end = self._tasks.start(self._ended())
        return await asyncio.shield(self._end)

    async def _ended(self) -> int:
        said = b""
        while piece := await self._error.read():
            said += piece
        await asyncio.gather(*self._outputs, return_exceptions=True)
        if self._exit_code is not None:
            return await self._exit_code()
        return exit_code(said)

    async def close(self) -> None:
        for descriptor in {self.stdin, self.stdout, self.stderr} - {-1}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.stdin = self.stdout = self.stderr = -1
        await self._connection.close()
        await self._tasks.close()
        for writer in self._writers:
            writer.close()


def exit_code(said: bytes) -> int:
    """Return the exit code in the status that ends a command. Raises RuntimeFailure if the command
    did not run."""
    try:
        status: dict[str, Any] = msgspec.json.decode(said or b"{}")
    except msgspec.DecodeError:
        raise RuntimeFailure(said.decode(errors="replace")) from None
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause.get("message") or 1)
    raise RuntimeFailure(
        status.get("message") or "the container runtime ended the connection without an exit code"
    )


async def connect(url: str, exit_code: Callable[[], Awaitable[int]] | None = None) -> RemoteStreams:
    """Connect to the address that the runtime has given. Raises RuntimeFailure."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise RuntimeFailure(
            f"the container runtime offers streams by {parts.scheme or 'no protocol'}, and kedge"
            " speaks http to it: switch off TLS for streams in its configuration (containerd:"
            " enable_tls_streaming = false, CRI-O: stream_enable_tls = false)"
        )
    address = ServerAddress(parts.hostname or "", parts.port or 80, None, None)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", spdy.NAME),
        ("X-Stream-Protocol-Version", PROTOCOL),
    ]
    try:
        exchange = await ask(address, OutgoingRequest("POST", target, headers))
        if exchange.status != 101:
            said = (await exchange.whole(_MOST_SAID)).decode(errors="replace").strip()
            raise RuntimeFailure(f"the container runtime refuses streams: {said}")
    except OSError as error:
        raise RuntimeFailure(
            f"cannot connect to the container runtime's streams: {error}"
        ) from error
    return RemoteStreams(SpdyConnection(exchange.upgraded()), exit_code)


async def _send(reader: asyncio.StreamReader, stream: SpdyStream) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            stream.write(data)
            await stream.drain()
    stream.write_eof()


async def _receive(stream: SpdyStream, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await stream.read():
            writer.write(data)
            await writer.drain()
    except OSError:
        stream.forget()
    finally:
        writer.close()
