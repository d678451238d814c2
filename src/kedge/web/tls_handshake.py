"""TLS handshakes of accepted sockets, a few per turn of the event loop."""

import asyncio
import socket
import ssl
from typing import Final, cast

from kedge.machinery.sockets import BoundedReads, limit_buffers
from kedge.machinery.turns import StepTurns

_BUFFER: Final = 4 << 10
"""Bytes that are read of a peer before it waits for its turn: a usual message is shorter."""


class TlsHandshake(asyncio.BufferedProtocol):
    """Stands between a socket and its TLS protocol until the handshake is over.

    At the end it forgets both. They refer to it, and TLS has buffers of 100 KB and more: cycles
    of many that failed would fill the memory before a search for garbage finds them.
    """

    def __init__(self, turns: StepTurns) -> None:
        self._turns = turns
        self._socket: asyncio.Transport | None = None
        self._tls: asyncio.BufferedProtocol | None = None
        self._has_begun = False
        # uvloop reads once before TLS is set up, and `start_tls` lets it read once more.
        self._buffer = bytearray(2 * _BUFFER)
        self._filled = 0
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave like asyncio's but do not derive from them.
        self._socket = cast(asyncio.Transport, transport)

    def stand_between(self) -> None:
        """Take the place of the TLS protocol that `start_tls` gave to the socket's transport."""
        if self._socket is None:
            return
        self._tls = cast(asyncio.BufferedProtocol, self._socket.get_protocol())
        self._socket.set_protocol(self)
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._has_begun = True
        if self._filled:
            self._turns.wait(self)

    def pause(self) -> None:
        """Read no more before `step_aside`."""
        self._is_paused = True
        if self._socket is not None:
            self._socket.pause_reading()

    def step_aside(self) -> None:
        """Leave the connection to its TLS protocol."""
        if self._tls is not None and self._socket is not None:
            self._pass_on(self._tls)
            self._socket.set_protocol(BoundedReads(self._tls))
            self._is_paused = False
            self._read_on()
            # uvloop's transports refer to their first protocol as long as they live.
            self._buffer = bytearray()
            self._socket = self._tls = None

    def abort(self) -> None:
        plain, self._socket = self._socket, None
        if plain is not None:
            plain.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled : self._filled + _BUFFER]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._tls is not None and self._has_begun and self._turns.is_free():
            self._pass_on(self._tls)
            return
        if self._socket is not None:
            self._socket.pause_reading()
        if self._has_begun:
            self._turns.wait(self)

    def advance(self) -> None:
        if self._tls is not None and self._filled:
            self._pass_on(self._tls)
            self._read_on()

    def _read_on(self) -> None:
        plain = self._socket
        if plain is not None and not self._is_paused and not plain.is_closing():
            plain.resume_reading()

    def _pass_on(self, tls: asyncio.BufferedProtocol) -> None:
        size, self._filled = self._filled, 0
        if size:
            memoryview(tls.get_buffer(size))[:size] = memoryview(self._buffer)[:size]
            tls.buffer_updated(size)

    def eof_received(self) -> bool | None:
        return None if self._tls is None else self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        tls, self._socket, self._tls = self._tls, None, None
        if tls is not None:
            tls.connection_lost(exc)


class EarlyInput(asyncio.Protocol):
    """Input after the handshake, before the connection has its own protocol."""

    def __init__(self, handshake: TlsHandshake) -> None:
        self._handshake = handshake
        self.content = b""
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.content += data
        self._handshake.pause()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


async def secured(
    accepted: socket.socket, tls: ssl.SSLContext, seconds: float, turns: StepTurns
) -> tuple[asyncio.Transport, bytes]:
    """Do the handshake of an accepted socket; returns its transport and input that has arrived.

    Raises OSError if there is no handshake within the seconds.
    """
    loop = asyncio.get_running_loop()
    handshake = TlsHandshake(turns)
    early = EarlyInput(handshake)
    try:
        # TLS has a timeout of its own, but does not see the end of a transport that is closed
        # before it begins.
        async with asyncio.timeout(seconds):
            plain, _ = await loop.connect_accepted_socket(lambda: handshake, accepted)
            # It runs after `start_tls` has set the protocol, and before anything is read.
            loop.call_soon(handshake.stand_between)
            transport = await loop.start_tls(plain, early, tls, server_side=True)
    except BaseException:
        handshake.abort()
        raise
    if transport is None or early.is_lost:
        raise ConnectionResetError("the peer has disconnected")
    handshake.step_aside()
    limit_buffers(transport)
    return transport, early.content
