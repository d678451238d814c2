"""SPDY/3.1, as much of it as Kubernetes uses: streams of bytes that share one connection."""

import asyncio
import contextlib
import struct
import zlib
from collections.abc import AsyncIterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from kedge.web.duplex import AHEAD, ByteStream, turn

NAME: Final = "SPDY/3.1"
_MOST_CONTROL: Final = 16 << 10
"""Bytes of one control frame, which has to be waited for whole."""
_MOST_HEADERS: Final = 8 << 10
"""Bytes of the headers of one stream, unpacked: a hundred packed ones can become this many."""
_HEADERS: Final = 32
"""Headers of one stream; Kubernetes sends three."""
_STREAMS: Final = 512
"""Streams that may be open at once on one connection. A forwarded connection takes two."""
_FRAMES_PER_TURN: Final = 64
"""Frames of one peer that are handled per turn."""
_UNREAD: Final = 4 * AHEAD
"""Bytes of all streams of one connection that may wait to be read."""
_PIECE: Final = 32 << 10
_FIN: Final = 1
_CONTROL: Final = 0x8003
"""The first two bytes of a control frame of this version."""
GOODBYE_SECONDS: Final = 2.0


class FrameKind(IntEnum):
    """Control frames that mean something here; others are passed over."""

    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    PING = 6
    GOAWAY = 7


class ResetCode(IntEnum):
    """Why a stream is broken off."""

    PROTOCOL_ERROR = 1
    INVALID_STREAM = 2
    REFUSED_STREAM = 3
    CANCEL = 5


class SpdyError(Exception):
    """The peer does not keep to the protocol."""


_WORDS: Final = """
options head post put delete trace accept accept-charset accept-encoding accept-language
accept-ranges age allow authorization cache-control connection content-base content-encoding
content-language content-length content-location content-md5 content-range content-type date etag
expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer
retry-after server te trailer transfer-encoding upgrade user-agent vary via warning
www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin
"""
# As the protocol has it, to the letter: both sides must compress with the same words.
_REST: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, "
    "Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    "sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    words = [word.replace("_", " ").encode() for word in _WORDS.split()]
    return b"".join(struct.pack("!I", len(word)) + word for word in words) + _REST.encode()


DICTIONARY: Final = _dictionary()
"""The dictionary with which both sides begin to compress headers."""

Headers = Mapping[str, str]


class SynStream(NamedTuple):
    """The peer has opened a stream."""

    stream: int
    headers: Headers
    final: bool


class DataFrame(NamedTuple):
    """More of a stream."""

    stream: int
    content: bytes
    final: bool


class SynReply(NamedTuple):
    """The peer has accepted a stream of ours."""

    stream: int
    final: bool


class RstStream(NamedTuple):
    """The peer has given a stream up."""

    stream: int
    status: int


class PingFrame(NamedTuple):
    number: int


class GoAway(NamedTuple):
    """The peer will open no more streams."""


Event = SynStream | DataFrame | SynReply | RstStream | PingFrame | GoAway


class SpdyParser:
    """Bytes in, events out. Data is passed on as it arrives, so that no more than one read is
    buffered, independently of a frame's length."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._stream = 0
        """Of the data that is coming in."""
        self._final = False
        self._left = 0
        """Bytes of its frame that have not come yet."""
        self.is_exhausted = True
        """Whether there is nothing to take before more is added."""

    def add(self, data: bytes) -> None:
        self._buffer += data
        self.is_exhausted = False

    def take(self, most: int) -> list[Event]:
        """Return the content of at most so many frames or parts of frames; raises Violation."""
        found = []
        for _ in range(most):
            event = self._next()
            if self.is_exhausted:
                break
            if event is not None:
                found.append(event)
        return found

    def _next(self) -> Event | None:
        buffer = self._buffer
        if self._left:
            self.is_exhausted = not buffer
            return None if self.is_exhausted else self._data()
        self.is_exhausted = True
        if len(buffer) < 8:
            return None
        head = bytes(buffer[:8])
        size = int.from_bytes(head[5:8], "big")
        if not head[0] & 0x80:
            del buffer[:8]
            self.is_exhausted = False
            self._stream, self._final = int.from_bytes(head[:4], "big"), bool(head[4] & _FIN)
            self._left = size
            return None if size else self._data()
        if size > _MOST_CONTROL:
            raise SpdyError("a control frame is too long")
        if len(buffer) < 8 + size:
            return None
        body = bytes(buffer[8 : 8 + size])
        del buffer[: 8 + size]
        self.is_exhausted = False
        return self._event(head, body)

    def _data(self) -> DataFrame:
        content = bytes(self._buffer[: self._left])
        del self._buffer[: len(content)]
        self._left -= len(content)
        return DataFrame(self._stream, content, self._final and not self._left)

    def _event(self, head: bytes, body: bytes) -> Event | None:
        version, kind = struct.unpack("!HH", head[:4])
        if version != _CONTROL:
            raise SpdyError(f"version {version & 0x7FFF} of SPDY")
        try:
            return self._control(kind, body, bool(head[4] & _FIN))
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SpdyError(f"a broken frame: {error}") from error

    def _control(self, kind: int, body: bytes, final: bool) -> Event | None:
        match kind:
            case FrameKind.SYN_STREAM:
                (stream,) = struct.unpack_from("!I", body)
                return SynStream(stream & 0x7FFFFFFF, self._headers(body[10:]), final)
            case FrameKind.SYN_REPLY:
                (stream,) = struct.unpack_from("!I", body)
                # Read even though nothing in it counts: what follows is compressed on its base.
                self._headers(body[4:])
                return SynReply(stream & 0x7FFFFFFF, final)
            case FrameKind.RST_STREAM:
                stream, status = struct.unpack("!II", body)
                return RstStream(stream & 0x7FFFFFFF, status)
            case FrameKind.PING:
                return PingFrame(*struct.unpack("!I", body))
            case FrameKind.GOAWAY:
                return GoAway()
            case _:
                return None

    def _headers(self, packed: bytes) -> Headers:
        block = self._inflate.decompress(packed, _MOST_HEADERS)
        if self._inflate.unconsumed_tail:
            raise SpdyError("the headers of a stream are too long")
        (count,) = struct.unpack_from("!I", block)
        if count > _HEADERS:
            raise SpdyError("a stream has too many headers")
        at = 4
        texts = []
        for _ in range(2 * count):
            (size,) = struct.unpack_from("!I", block, at)
            at += 4 + size
            if at > len(block):
                raise SpdyError("the headers of a stream are cut off")
            texts.append(block[at - size : at].decode())
        return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}


class SpdyFramer:
    """Frames as bytes."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def syn_stream(self, stream: int, headers: Headers, *, final: bool = False) -> bytes:
        body = struct.pack("!IIBB", stream, 0, 0, 0) + self._block(headers)
        return _control_frame(FrameKind.SYN_STREAM, body, final)

    def syn_reply(self, stream: int, *, final: bool = False) -> bytes:
        return _control_frame(
            FrameKind.SYN_REPLY, struct.pack("!I", stream) + self._block({}), final
        )

    def _block(self, headers: Headers) -> bytes:
        parts = [struct.pack("!I", len(headers))]
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                parts += (struct.pack("!I", len(text)), text)
        block = self._deflate.compress(b"".join(parts))
        return block + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def data(stream: int, content: bytes, *, final: bool = False) -> bytes:
    flags_and_size = (_FIN if final else 0) << 24 | len(content)
    return struct.pack("!II", stream, flags_and_size) + content


def reset(stream: int, status: ResetCode) -> bytes:
    return _control_frame(FrameKind.RST_STREAM, struct.pack("!II", stream, status))


def ping(number: int) -> bytes:
    return _control_frame(FrameKind.PING, struct.pack("!I", number))


def goaway(last: int) -> bytes:
    return _control_frame(FrameKind.GOAWAY, struct.pack("!II", last, 0))


def _control_frame(kind: FrameKind, body: bytes, final: bool = False) -> bytes:
    return struct.pack("!HHI", _CONTROL, kind, (_FIN if final else 0) << 24 | len(body)) + body


class SpdyStream:
    """One of the streams of a connection. Fulfils ByteStream."""

    def __init__(self, connection: "SpdyConnection", number: int, headers: Headers) -> None:
        self.number = number
        self.headers = headers
        self._connection = connection
        self._pieces: list[bytes] = []
        self._arrival: asyncio.Future[None] | None = None
        self._size = 0
        """Bytes that wait to be read."""
        self.ended = False
        """Whether the peer sends nothing more."""
        self.finished = False
        """Whether we send nothing more."""
        self._unwanted = False
        """Whether what still comes is thrown away."""

    async def read(self) -> bytes:
        while not self._pieces:
            if self.ended:
                return b""
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        content = b"".join(self._pieces)
        self._drop()
        return content

    def write(self, data: bytes) -> None:
        self._connection.send_data(self, data)

    async def drain(self) -> None:
        await self._connection.drain()
        if self.finished:
            raise ConnectionResetError("the stream is closed")

    def write_eof(self) -> None:
        self._connection.finish(self)

    def close(self) -> None:
        self._unwanted = True
        self._connection.finish(self)
        self._drop()

    def forget(self) -> None:
        """Drop the stream's unread data, since its reader is gone."""
        self._unwanted = True
        self._drop()

    def _drop(self) -> None:
        self._pieces.clear()
        size, self._size = self._size, 0
        self._connection.was_read(size)

    def reset(self, status: ResetCode = ResetCode.CANCEL) -> None:
        """Give it up."""
        self._connection.reset(self, status)

    def arrived(self, content: bytes, *, final: bool) -> None:
        if content and not self.ended and not self._unwanted:
            self._pieces.append(content)
            self._size += len(content)
            self._connection.unread += len(content)
        self.ended = self.ended or final
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


class SpdyConnection:
    """The streams that a client opens: either side of them. Its owner must `run` it."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._parser = SpdyParser()
        self._framer = SpdyFramer()
        self._streams: dict[int, SpdyStream] = {}
        self._last = 0
        self._opened: asyncio.Queue[SpdyStream | None] = asyncio.Queue()
        self._room: asyncio.Future[None] | None = None
        self._answers: list[bytes] = []
        """Answers to the peer's own frames that are sent at the end of the turn. They are sent
        together, because over TLS a write of each would cost ten times as much as its frame."""
        self.unread = 0
        """Bytes of all streams that wait to be read."""

    async def run(self) -> None:
        """Read until the peer has gone, or breaks the rules."""
        try:
            while content := await self._stream.read():
                self._parser.add(content)
                while not self._parser.is_exhausted:
                    for event in self._parser.take(_FRAMES_PER_TURN):
                        self._take(event)
                    await self._breathe()
                    await turn()
        except (SpdyError, ConnectionError):
            pass
        finally:
            for stream in list(self._streams.values()):
                stream.finished = True
                stream.arrived(b"", final=True)
            self._streams.clear()
            self._opened.put_nowait(None)

    async def opened(self) -> AsyncIterator[SpdyStream]:
        """The streams that the peer opens, until it has gone. `accept` or `reset` each."""
        while (stream := await self._opened.get()) is not None:
            yield stream

    def open(self, headers: Headers) -> SpdyStream:
        """Open a stream, as the client of a server."""
        self._last = self._last + 2 if self._last else 1
        stream = self._streams[self._last] = SpdyStream(self, self._last, headers)
        self._stream.write(self._framer.syn_stream(stream.number, headers))
        return stream

    def accept(self, stream: SpdyStream) -> None:
        self._stream.write(self._framer.syn_reply(stream.number))

    async def close(self) -> None:
        """Say that this is the end, give the peer a moment to hang up, then do so. `run` goes on
        meanwhile: what the peer still sends must be taken, or it may lose what we have sent."""
        self._stream.write(goaway(self._last))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                while await self._opened.get() is not None:
                    pass
        self._stream.close()

    # Methods of streams.

    def send_data(self, stream: SpdyStream, content: bytes) -> None:
        if stream.finished:
            return
        for at in range(0, len(content), _PIECE):
            self._stream.write(data(stream.number, content[at : at + _PIECE]))

    async def drain(self) -> None:
        await self._stream.drain()

    def finish(self, stream: SpdyStream) -> None:
        if not stream.finished:
            stream.finished = True
            self._stream.write(data(stream.number, b"", final=True))
            self._forget(stream)

    def reset(self, stream: SpdyStream, status: ResetCode) -> None:
        if self._streams.pop(stream.number, None) is not None:
            self._stream.write(reset(stream.number, status))
        stream.finished = True
        stream.arrived(b"", final=True)
        stream.forget()

    def was_read(self, size: int) -> None:
        self.unread -= size
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # Frames from the peer.

    def _take(self, event: Event) -> None:
        match event:
            case SynStream():
                self._open(event)
            case DataFrame(number, content, final):
                stream = self._streams.get(number)
                if stream is not None:
                    stream.arrived(content, final=final)
                    self._forget(stream)
            case RstStream(number, _):
                stream = self._streams.pop(number, None)
                if stream is not None:
                    stream.finished = True
                    stream.arrived(b"", final=True)
            case PingFrame(number):
                self._answer(ping(number))

    def _open(self, event: SynStream) -> None:
        number = event.stream
        if number <= self._last or number % 2 == 0:
            raise SpdyError(f"stream {number} cannot be opened")
        self._last = number
        if len(self._streams) >= _STREAMS:
            self._answer(reset(number, ResetCode.REFUSED_STREAM))
            return
        stream = self._streams[number] = SpdyStream(self, number, event.headers)
        if event.final:
            stream.arrived(b"", final=True)
        self._opened.put_nowait(stream)

    def _forget(self, stream: SpdyStream) -> None:
        if stream.finished and stream.ended:
            self._streams.pop(stream.number, None)

    def _answer(self, frame: bytes) -> None:
        self._answers.append(frame)

    async def _breathe(self) -> None:
        """Continue reading only while the data is consumed and the peer reads its answers. There
        is no other flow control, so one stream without a reader blocks all others."""
        if self._answers:
            self._stream.write(b"".join(self._answers))
            self._answers.clear()
            await self._stream.drain()
        while self.unread > _UNREAD:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
