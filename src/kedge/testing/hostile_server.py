"""An HTTPS server that answers as no honest server does."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from kedge.apiserver import pki
from kedge.machinery.clock import SystemClock
from kedge.machinery.turns import next_turn

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_CLOCK: Final = SystemClock()


class HostilePeer:
    """A client that asked something, and bytes for it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.sent = 0

    async def send(self, data: bytes) -> None:
        """Send bytes; raises OSError if the client is gone, and waits while it does not read."""
        await next_turn()
        if self._writer.is_closing():
            raise ConnectionResetError
        self._writer.write(data)
        await self._writer.drain()
        self.sent += len(data)

    async def flood(self, data: bytes) -> None:
        """Send the same bytes until the client is gone."""
        while True:
            await self.send(data)

    async def wait(self) -> None:
        """Say no more."""
        await _CLOCK.sleep(3600)


Attack = Callable[[HostilePeer], Awaitable[None]]


async def endless_body(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"\r\n")
    await peer.flood(b"x" * 65_536)


async def endless_small_chunks(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    await peer.flood(b"1\r\nx\r\n" * 5_000)


async def endless_chunk_extension(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;x=")
    await peer.flood(b"x" * 65_536)


async def endless_header(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"X-A: ")
    await peer.flood(b"x" * 65_536)


async def endless_headers(peer: HostilePeer) -> None:
    await peer.send(_HEAD)
    await peer.flood(b"X-A: b\r\n" * 5_000)


async def endless_interim_answers(peer: HostilePeer) -> None:
    await peer.flood(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)


async def endless_trailer(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
    await peer.flood(b"X-A: b\r\n" * 5_000)


async def huge_length(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Content-Length: 999999999999\r\n\r\n")
    await peer.flood(b"x" * 65_536)


async def impossible_length(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Content-Length: -1\r\n\r\n{}")


async def two_lengths(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x")


async def early_end(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Content-Length: 1000\r\n\r\n{}")


async def no_http(peer: HostilePeer) -> None:
    await peer.flood(b"\x16\x03\x01\x00" * 10_000)


async def deep_json(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Content-Length: 500000\r\n\r\n" + b'{"a":' * 100_000)


async def silence(peer: HostilePeer) -> None:
    await peer.wait()


async def body_that_stops(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Content-Length: 1000\r\n\r\n{")
    await peer.wait()


async def byte_after_byte(peer: HostilePeer) -> None:
    await peer.send(_HEAD + b"Content-Length: 500000\r\n\r\n")
    while True:
        await peer.send(b"x")
        await _CLOCK.sleep(0.02)


FLOODS: Final[tuple[Attack, ...]] = (
    *(endless_body, endless_small_chunks, endless_chunk_extension, endless_header),
    *(endless_headers, endless_interim_answers, endless_trailer, huge_length, impossible_length),
    *(two_lengths, early_end, no_http, deep_json),
)
"""Answers that are refused for their content."""
STALLS: Final[tuple[Attack, ...]] = (silence, body_that_stops, byte_after_byte)
"""Answers that are not complete in time."""


class HostileServer:
    """Answers every request with one attack."""

    def __init__(self, attack: Attack, ca_pem: bytes) -> None:
        self.port = 0
        self.ca_pem = ca_pem
        self.peers: list[HostilePeer] = []
        self._attack = attack
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def most_sent(self) -> int:
        """The most bytes that one client took."""
        return max(peer.sent for peer in self.peers)

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await reader.readuntil(b"\r\n\r\n")
                self.peers.append(HostilePeer(writer))
                await self._attack(self.peers[-1])
                await writer.drain()
                writer.close()
        finally:
            if not writer.is_closing():
                writer.transport.abort()


@asynccontextmanager
async def hostile_server(keys: Path, attack: Attack) -> AsyncIterator[HostileServer]:
    """Run the server on loopback, with a certificate of its own authority in the directory."""
    identity = pki.ensure(keys, ("127.0.0.1",))
    server = HostileServer(attack, identity.ca_pem)
    tls: ssl.SSLContext = identity.context
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        server.end()
        await listening.wait_closed()
