"""WebSocket (RFC 6455), either side of it: a parser of frames, and a shell around a connection."""

import asyncio
import base64
import codecs
import contextlib
import hashlib
import os
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from kedge.web.duplex import ByteStream, turn
from kedge.web.message import asks_upgrade

MOST: Final = 1 << 20
"""Bytes of a message that is received whole; more is refused."""
_FRAMES_PER_TURN: Final = 64
"""Frames of one peer that are handled per turn."""
GOODBYE_SECONDS: Final = 2.0
"""How long a peer may take to answer a CLOSE frame."""
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTROL_BYTES: Final = 125


class Opcode(IntEnum):
    """The type of a frame."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """The reason for closing a connection."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NO_STATUS = 1005
    INVALID_DATA = 1007
    TOO_BIG = 1009
    INTERNAL = 1011


class WebSocketError(Exception):
    """The peer does not keep to the protocol; the code says in which way."""

    def __init__(self, code: CloseCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class FramePiece(NamedTuple):
    """A control frame, or a received piece of a message."""

    opcode: Opcode
    payload: bytes
    begins: bool = True
    """Whether a message begins with it."""
    ends: bool = True


@lru_cache(maxsize=256)
def _xor_table(byte: int) -> bytes:
    return bytes(each ^ byte for each in range(256))


def mask(payload: bytes, key: bytes) -> bytes:
    """Masked or, since that is its own reverse, unmasked."""
    masked = bytearray(payload)
    for lane in range(4):
        masked[lane::4] = masked[lane::4].translate(_xor_table(key[lane]))
    return bytes(masked)


def frame(opcode: Opcode, payload: bytes, key: bytes = b"") -> bytes:
    """One frame that is a message of its own; clients must give a key of four random bytes."""
    masked = 0x80 if key else 0
    size = len(payload)
    if size <= _CONTROL_BYTES:
        head = bytes((0x80 | opcode, masked | size))
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, masked | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, masked | 127, size)
    return head + key + mask(payload, key) if key else head + payload


class FrameParser:
    """Bytes in, frames out. Messages are not collected: they may have any length, and each
    received piece is passed on. So no more than one read is buffered."""

    def __init__(self, *, masked: bool) -> None:
        self._masked = masked
        """Whether frames must be: those of clients are, those of servers are not."""
        self._buffer = bytearray()
        self._kind: Opcode | None = None
        """Of the message that is coming in."""
        self._begun = False
        """Whether a piece of that was handed on."""
        self._final = False
        """Whether the frame that is coming in is its last."""
        self._left = 0
        """Bytes of that frame that have not come yet."""
        self._key = b""
        self._text = _strict_text()
        self.is_exhausted = True
        """Whether there is nothing to take before more is added."""

    def add(self, data: bytes) -> None:
        self._buffer += data
        self.is_exhausted = False

    def take(self, most: int) -> list[FramePiece]:
        """Return the content of at most so many frames or parts of frames; raises Violation."""
        found = []
        for _ in range(most):
            if self._left:
                received = self._piece() if self._buffer else None
                self.is_exhausted = received is None
            else:
                received = self._frame()
            if self.is_exhausted:
                break
            if received is not None:
                found.append(received)
        return found

    def _frame(self) -> FramePiece | None:
        """Begin the next frame; control frames are waited for whole."""
        buffer = self._buffer
        self.is_exhausted = True
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        final, opcode = bool(first & 0x80), self._opcode(first)
        if bool(second & 0x80) is not self._masked:
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, "wrongly masked")
        size, at = second & 0x7F, 2
        if opcode >= Opcode.CLOSE and (size > _CONTROL_BYTES or not final):
            raise WebSocketError(
                CloseCode.PROTOCOL_ERROR, "a control frame is too long or in pieces"
            )
        if size >= 126:
            at = 4 if size == 126 else 10
            if len(buffer) < at:
                return None
            size = int.from_bytes(buffer[2:at], "big")
        start = at + (4 if self._masked else 0)
        if len(buffer) < start + (size if opcode >= Opcode.CLOSE else 0):
            return None
        self._key = bytes(buffer[at:start])
        del buffer[:start]
        self.is_exhausted = False
        if opcode >= Opcode.CLOSE:
            return FramePiece(opcode, self._unmasked(size))
        return self._begin(opcode, size, final=final)

    def _begin(self, opcode: Opcode, size: int, *, final: bool) -> FramePiece | None:
        if (opcode is Opcode.CONTINUATION) is (self._kind is None):
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, "fragments are out of order")
        if self._kind is None:
            self._kind, self._begun, self._text = opcode, False, _strict_text()
        self._left, self._final = size, final
        # An empty frame is passed on only if it is the last.
        return self._piece() if final and not size else None

    def _piece(self) -> FramePiece:
        assert self._kind is not None
        payload = self._unmasked(min(self._left, len(self._buffer)))
        self._left -= len(payload)
        ends = self._final and not self._left
        if self._kind is Opcode.TEXT:
            _check_text(self._text, payload, final=ends)
        piece = FramePiece(self._kind, payload, not self._begun, ends)
        self._begun = True
        if ends:
            self._kind = None
        return piece

    def _unmasked(self, size: int) -> bytes:
        payload = bytes(self._buffer[:size])
        del self._buffer[:size]
        if not self._masked:
            return payload
        payload, by = mask(payload, self._key), size % 4
        self._key = self._key[by:] + self._key[:by]
        return payload

    def _opcode(self, first: int) -> Opcode:
        if first & 0x70:
            raise WebSocketError(
                CloseCode.PROTOCOL_ERROR, "an extension is used that was not agreed on"
            )
        try:
            return Opcode(first & 0x0F)
        except ValueError:
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, "a frame of no known kind") from None


_strict_text: Final = codecs.getincrementaldecoder("utf-8")


def _check_text(decoder: codecs.IncrementalDecoder, payload: bytes, *, final: bool) -> None:
    try:
        decoder.decode(payload, final)
    except UnicodeDecodeError:
        raise WebSocketError(CloseCode.INVALID_DATA, "text that is not UTF-8") from None


def closing(payload: bytes) -> tuple[int, str]:
    """Return code and reason of a CLOSE frame."""
    if len(payload) < 2:
        return CloseCode.NO_STATUS, ""
    return int.from_bytes(payload[:2], "big"), payload[2:].decode(errors="replace")


class WebSocket:
    """One side of a connection. Texts and binary messages are both received as bytes."""

    def __init__(self, stream: ByteStream, *, client: bool = False) -> None:
        self._stream = stream
        self._client = client
        self._parser = FrameParser(masked=not client)
        self._pieces: deque[FramePiece] = deque()
        self._said_goodbye = False
        self._ended = False
        self.close_code = 0
        """With which the peer has closed."""

    async def receive(self) -> bytes | None:
        """Return the next message; None when the peer has closed. For trusted peers or short
        messages; use `piece` for others."""
        message = b""
        while (piece := await self.piece()) is not None:
            message += piece.payload
            if len(message) > MOST:
                self._violated(
                    WebSocketError(CloseCode.TOO_BIG, f"a message is longer than {MOST} bytes")
                )
            elif piece.ends:
                return message
        return None

    async def piece(self) -> FramePiece | None:
        """Return the next piece of a message; None when the peer has closed.

        Pings are answered here. As long as the peer does not read what it gets for them, nothing
        more is read from it: else the answers would pile up here (gorilla/websocket, which
        kubelets use, writes them with a deadline of a second, and golang.org/x/net blocks).
        """
        while not self._pieces and not self._ended:
            try:
                ping = self._take(self._parser.take(_FRAMES_PER_TURN))
                if ping is not None:
                    self._send(Opcode.PONG, ping)
                    await self._stream.drain()
                if not self._parser.is_exhausted:
                    await turn()
                elif not self._pieces and not self._ended:
                    await self._read()
            except WebSocketError as violation:
                self._violated(violation)
            except ConnectionError:
                self._ended = True
        return self._pieces.popleft() if self._pieces else None

    async def _read(self) -> None:
        data = await self._stream.read()
        if data:
            self._parser.add(data)
        else:
            self._ended = True

    def _violated(self, violation: WebSocketError) -> None:
        self._ended = True
        self._pieces.clear()
        self.say_goodbye(violation.code, str(violation))

    def _take(self, received: list[FramePiece]) -> bytes | None:
        """Take the received frames; returns the payload of the last ping, which is the one to
        answer (RFC 6455, 5.5.3)."""
        ping = None
        for each in received:
            if each.opcode is Opcode.PING:
                ping = each.payload
            elif each.opcode is Opcode.CLOSE:
                self._ended = True
                self.close_code, _ = closing(each.payload)
                self.say_goodbye(CloseCode.NORMAL)
                break
            elif each.opcode is not Opcode.PONG:
                self._pieces.append(each)
        return ping

    def send(self, payload: bytes, *, text: bool = False) -> None:
        self._send(Opcode.TEXT if text else Opcode.BINARY, payload)

    def ping(self) -> None:
        self._send(Opcode.PING, b"")

    async def drain(self) -> None:
        await self._stream.drain()

    def say_goodbye(self, code: CloseCode, reason: str = "") -> None:
        """Nothing is sent after this."""
        if not self._said_goodbye:
            content = code.to_bytes(2, "big") + reason.encode()[: _CONTROL_BYTES - 2]
            self._send(Opcode.CLOSE, content)
            self._said_goodbye = True

    async def close(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> None:
        """Send a CLOSE frame, wait a moment for the answer, and disconnect. Without the wait, a
        reset could discard data that a peer that still sends has not read yet."""
        self.say_goodbye(code, reason)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                while await self.piece() is not None:
                    pass
        self._stream.close()

    def _send(self, opcode: Opcode, payload: bytes) -> None:
        if not self._said_goodbye:
            self._stream.write(frame(opcode, payload, os.urandom(4) if self._client else b""))


class WebSocketTunnel:
    """Fulfils ByteStream: what is read are the contents of messages, one after the other."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while (piece := await self._socket.piece()) is not None:
            if piece.payload:
                return piece.payload
        return b""

    def write(self, data: bytes) -> None:
        self._socket.send(data)

    async def drain(self) -> None:
        await self._socket.drain()

    def write_eof(self) -> None:
        self._socket.say_goodbye(CloseCode.NORMAL)

    def close(self) -> None:
        self._socket.say_goodbye(CloseCode.NORMAL)


# How a connection becomes one.


def is_wanted(headers: Mapping[str, str]) -> bool:
    """Whether a request asks for a WebSocket."""
    return asks_upgrade(headers, "websocket")


def protocols(headers: Mapping[str, str]) -> list[str]:
    """The subprotocols that a request offers."""
    offered = headers.get("sec-websocket-protocol", "").split(",")
    return [each.strip() for each in offered if each.strip()]


def refusal(headers: Mapping[str, str]) -> str:
    """Return what is wrong with a request for a WebSocket; empty if it is valid."""
    if headers.get("sec-websocket-version") != "13":
        return "only version 13 of the WebSocket protocol is spoken here"
    try:
        key = base64.b64decode(headers.get("sec-websocket-key", ""), validate=True)
    except ValueError:
        key = b""
    return "" if len(key) == 16 else "the header Sec-WebSocket-Key is missing or broken"


def accepting(headers: Mapping[str, str], protocol: str) -> list[tuple[str, str]]:
    """The headers of the answer that makes a connection a WebSocket."""
    answer = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", accept_key(headers["sec-websocket-key"])),
    ]
    return [*answer, ("Sec-WebSocket-Protocol", protocol)] if protocol else answer


def accept_key(key: str) -> str:
    """The proof that a key has been understood."""
    return base64.b64encode(hashlib.sha1(key.strip().encode() + _GUID).digest()).decode()


def offering(key: str, offered: Sequence[str]) -> list[tuple[str, str]]:
    """The headers of a request for a WebSocket, the key being `new_key()`."""
    return [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Protocol", ", ".join(offered)),
    ]


def new_key() -> str:
    return base64.b64encode(os.urandom(16)).decode()
