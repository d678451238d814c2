"""The output of one server connection: writes that are joined, and back-pressure."""

import asyncio
import zlib
from collections.abc import Iterable
from typing import Final, Protocol

from kedge.machinery.turns import Turns, next_turn

_MAX_UNWRITTEN = 64 << 10
"""Bytes of responses that are written at once, so that a peer that does not read is noticed."""
_LONG: Final = 16 << 10
"""Bytes whose copy costs as much as a TLS record and a call of their own."""


class WriteQueue(Protocol):
    """Writes the outputs of all connections at the end of a turn of the event loop."""

    def write_soon(self, output: "Output") -> None: ...


class Output:
    """Responses on their way to one peer."""

    def __init__(self, transport: asyncio.Transport, queue: WriteQueue) -> None:
        self._transport = transport
        # Without TLS, asyncio's writelines never pauses in Python 3.12.0 to 3.12.8, 3.13.0 and
        # 3.13.1 (CVE-2024-12254).
        has_tls = transport.get_extra_info("sslcontext") is not None
        self._write_parts = transport.writelines if has_tls else self._write_each
        self._queue = queue
        self.paused = False
        """Whether the peer reads more slowly than this server writes."""
        self._drained: asyncio.Future[None] | None = None
        self._unwritten: list[bytes] = []
        """Responses and chunks that are written when the other requests of this turn are
        answered."""
        self._unwritten_size = 0
        self._stalled_from = 0.0
        self._unsent = 0

    def write_one(self, data: bytes) -> None:
        """Write a whole response, together with others, at the end of the turn."""
        if not self._unwritten:
            self._queue.write_soon(self)
        self._unwritten.append(data)
        self._unwritten_size += len(data)
        if self._unwritten_size > _MAX_UNWRITTEN:
            self.flush()

    def write(self, *parts: bytes) -> None:
        """Write a whole response or chunk, together with others, at the end of the turn."""
        if not self._unwritten:
            self._queue.write_soon(self)
        self._unwritten += parts
        self._unwritten_size += sum(map(len, parts))
        if self._unwritten_size > _MAX_UNWRITTEN:
            self.flush()

    def send(self, data: bytes) -> None:
        """Write at once, after the responses that still wait."""
        self._unwritten.append(data)
        self.flush()

    def flush(self) -> None:
        """Write the responses that wait."""
        if not self._unwritten:
            return
        parts, self._unwritten = self._unwritten, []
        size, self._unwritten_size = self._unwritten_size, 0
        if self._transport.is_closing():
            return
        if size > max(_MAX_UNWRITTEN, len(parts) * _LONG):
            # A copy of so much costs more than records of their own for the few short parts. They
            # are one write to the socket.
            self._write_parts(parts)
        else:
            self._transport.write(b"".join(parts))  # no copy if there is one

    def _write_each(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self._transport.write(part)

    def pause(self, now: float) -> None:
        """Note that the transport's buffer is full."""
        self.paused = True
        self._stalled_from = now
        self._unsent = self._transport.get_write_buffer_size()

    def resume(self) -> None:
        """Wake up the writer that waits in `drain`."""
        self.paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    async def drain(self) -> None:
        """Return when the peer has caught up; raises ConnectionResetError if it has gone."""
        if self.paused:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        if self._transport.is_closing():
            raise ConnectionResetError("the client has gone")

    def has_stalled(self, now: float, seconds: float) -> bool:
        """Whether the peer has read nothing for so long; call this regularly."""
        if not self.paused:
            return False
        unsent, before = self._transport.get_write_buffer_size(), self._unsent
        self._unsent = unsent
        if unsent < before:
            self._stalled_from = now
            return False
        return now > self._stalled_from + seconds


class Chunks:
    """A chunked body, piece by piece. HTTP/1.0 peers get the pieces without frames.

    Pieces are written at the end of the turn: a commit of thirty objects is one write for each of a
    hundred watchers, not thirty, and encryption and system call cost more than the copy.
    """

    __slots__ = ("_framed", "_output")

    def __init__(self, output: Output, *, framed: bool) -> None:
        self._output = output
        self._framed = framed

    @property
    def paused(self) -> bool:
        return self._output.paused

    def write(self, data: bytes) -> None:
        if not data:
            return
        if self._framed:
            self._output.write(b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self._output.write(data)

    async def drain(self) -> None:
        await self._output.drain()

    def end(self) -> None:
        """Write the end of the body."""
        if self._framed:
            self._output.send(b"0\r\n\r\n")
        else:
            self._output.flush()


async def write_pieces(
    chunks: Chunks, pieces: Iterable[bytes], turns: Turns, *, gzip: bool
) -> None:
    """Write a body as fast as the peer reads it; all bodies share `turns`."""
    packer = zlib.compressobj(1, wbits=31) if gzip else None
    loop = asyncio.get_running_loop()
    for piece in pieces:
        # Compressing releases the interpreter lock, so other requests go on meanwhile.
        data = await loop.run_in_executor(None, packer.compress, piece) if packer else piece
        chunks.write(data)
        await chunks.drain()
        # Pieces are made when they are sent, with a turn of the event loop between two.
        await next_turn()
        await turns.give_way()
    if packer:
        chunks.write(packer.flush())
    chunks.end()
