"""Duplex: a connection that carries bytes both ways, with back-pressure each way."""

import asyncio
import contextlib
import socket
import ssl
import struct
import types
from collections.abc import Callable, Generator
from typing import Final, Protocol, cast

AHEAD: Final = 64 << 10
"""Bytes that may wait to be read before the peer is asked to pause."""
CLOSE_SECONDS: Final = 20.0
"""How long a connection that is closed may take to send what is left. The event loop itself would
close a TLS connection after 30 seconds, and not reset it."""
_DISCARD: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: the kernel discards what it has not sent, and resets the connection."""
_PROBE_AFTER: Final = 60
"""Seconds of silence after which the kernel asks whether the peer is still there."""


@types.coroutine
def turn() -> Generator[None, None, None]:
    """Wait one turn of the event loop. Reading buffered data never blocks, so a peer that sends
    many small pieces would otherwise keep the loop."""
    yield


class ByteStream(Protocol):
    """Bytes both ways, whatever carries them."""

    async def read(self) -> bytes:
        """Return received bytes as soon as there are any; empty at the end."""
        ...

    def write(self, data: bytes) -> None:
        """Send at once; never waits, so `drain` now and then."""
        ...

    async def drain(self) -> None:
        """Return when the peer has caught up, or raise ConnectionError if it has gone."""
        ...

    def write_eof(self) -> None:
        """Send nothing more; what the peer sends can still be read, if the connection allows."""
        ...

    def close(self) -> None:
        """Send what has been written, then hang up."""
        ...


class Duplex(asyncio.Protocol):
    """Fulfils ByteStream over a transport."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._pieces: list[bytes] = []
        self._size = 0
        self._ended = False
        self._lost = False
        self._holding = False
        """Whether the peer has been asked to pause."""
        self._arrival: asyncio.Future[None] | None = None
        self._paused = False
        self._drained: list[asyncio.Future[None]] = []
        self._when_lost: Callable[[Exception | None], None] | None = None

    @classmethod
    def over(
        cls,
        transport: asyncio.Transport,
        first: bytes,
        when_lost: Callable[[Exception | None], None],
    ) -> "Duplex":
        """Take over a connection from another protocol; `first` are bytes that it has received."""
        duplex = cls()
        duplex._when_lost = when_lost
        duplex.connection_made(transport)
        if first:
            duplex.data_received(first)
        transport.set_protocol(duplex)
        if not duplex._holding:
            transport.resume_reading()
        return duplex

    @classmethod
    def ended(cls, transport: asyncio.Transport, last: bytes) -> "Duplex":
        """Return a duplex of a connection that was lost; `last` can still be read."""
        duplex = cls()
        duplex._transport = transport
        duplex._pieces = [last] if last else []
        duplex._ended = duplex._lost = True
        return duplex

    async def read(self) -> bytes:
        while not self._pieces:
            if self._ended:
                return b""
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._holding:
            self._holding = False
            if not self._lost:
                self._transport.resume_reading()
        return data

    def write(self, data: bytes) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def paused(self) -> bool:
        """Whether the peer reads more slowly than is written."""
        return self._paused

    async def drain(self) -> None:
        if self._paused and not self._lost:
            drained = asyncio.get_running_loop().create_future()
            self._drained.append(drained)
            await drained
        if self._transport.is_closing():
            raise ConnectionResetError("the peer has gone")

    def write_eof(self) -> None:
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):
                self._transport.write_eof()
        else:
            # TLS here knows no half-close.
            self.close()

    def close(self) -> None:
        if not self._transport.is_closing():
            self._transport.close()
            # For a peer that does not read, the rest and the descriptor would be kept for ever.
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, self.reset)

    @property
    def has_lost_its_peer(self) -> bool:
        """Return whether the peer has disconnected while data still waits to be read. While
        reading is paused the event loop does not notice, so this asks the kernel."""
        return self._holding and _has_hung_up(self._transport)

    def abort(self) -> None:
        """Hang up at once."""
        self._transport.abort()

    def reset(self) -> None:
        """Hang up so that a peer notices although it does not read: an ordinary end would wait in
        the kernel behind the bytes that the peer has no space for."""
        if self._lost:
            return
        connected: socket.socket | None = self._transport.get_extra_info("socket")
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        self._transport.abort()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transports behave like asyncio's but do not derive from them.
        self._transport = cast(asyncio.Transport, transport)
        probe_silent_peer(transport)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > AHEAD and not self._holding:
            self._holding = True
            self._transport.pause_reading()
        self._arrived()

    def eof_received(self) -> bool:
        self._ended = True
        self._arrived()
        return self._transport.can_write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = self._lost = True
        self._arrived()
        self.resume_writing()
        # It refers to the connection that has this duplex: both would wait for a search.
        when_lost, self._when_lost = self._when_lost, None
        if when_lost is not None:
            when_lost(error)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        waiting, self._drained = self._drained, []
        for drained in waiting:
            if not drained.done():
                drained.set_result(None)

    def _arrived(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


async def connect(
    host: str, port: int, tls: ssl.SSLContext | None = None, server_name: str | None = None
) -> Duplex:
    """Connect to a host; raises OSError."""
    loop = asyncio.get_running_loop()
    _, duplex = await loop.create_connection(
        Duplex, host, port, ssl=tls, server_hostname=server_name if tls else None
    )
    return duplex


async def adopt(connected: socket.socket) -> Duplex:
    """Return a duplex for a connected socket, which then belongs to it."""
    connected.setblocking(False)
    _, duplex = await asyncio.get_running_loop().create_connection(Duplex, sock=connected)
    return duplex


_CLOSED_BY_PEER: Final = frozenset((7, 8, 9, 11))
"""TCP_CLOSE, TCP_CLOSE_WAIT, TCP_LAST_ACK and TCP_CLOSING of the kernel's enumeration."""
_RESET_BY_PEER: Final = frozenset((7,))


def _has_hung_up(transport: asyncio.BaseTransport) -> bool:
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        state = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return True
    # Without TLS a peer may close its sending side and still read.
    secure = transport.get_extra_info("sslcontext") is not None
    return state in (_CLOSED_BY_PEER if secure else _RESET_BY_PEER)


def probe_silent_peer(transport: asyncio.BaseTransport) -> None:
    """Have the kernel detect a peer that vanishes: a stream may be silent for hours."""
    connected: socket.socket | None = transport.get_extra_info("socket")
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
