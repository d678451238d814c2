"""WebSocket (RFC 6455), either side of it: a parser of frames, and a shell around a connection."""

import asyncio
import base64
import contextlib
import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kedge.web.duplex import ByteStream
from kedge.web.message import asks_upgrade

MOST: Final = 32 << 20
"""Bytes of one message; more is refused."""
GOODBYE_SECONDS: Final = 2.0
"""How long a peer may take to answer a goodbye."""
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTROL_BYTES: Final = 125
_XOR: Final = tuple(bytes(a ^ b for a in range(256)) for b in range(256))


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Code(IntEnum):
    """Why a connection is closed."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NO_STATUS = 1005
    INVALID_DATA = 1007
    TOO_BIG = 1009
    INTERNAL = 1011


class Violation(Exception):
    """The peer does not keep to the protocol; the code says in which way."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


class Received(NamedTuple):
    """A whole message, or a control frame."""

    opcode: Opcode
    payload: bytes


def mask(payload: bytes, key: bytes) -> bytes:
    """Masked or, since that is its own reverse, unmasked."""
    masked = bytearray(payload)
    for lane in range(4):
        masked[lane::4] = masked[lane::4].translate(_XOR[key[lane]])
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


class Parser:
    """Bytes in, messages out; joins fragments, and keeps what is not complete."""

    def __init__(self, *, masked: bool, most: int = MOST) -> None:
        self._masked = masked
        """Whether frames must be: those of clients are, those of servers are not."""
        self._most = most
        self._buffer = bytearray()
        self._kind: Opcode | None = None
        """Of the message whose fragments are coming in."""
        self._fragments: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Received]:
        """What has become complete; raises Violation."""
        self._buffer += data
        found = []
        while (received := self._frame()) is not None:
            if (message := self._joined(*received)) is not None:
                found.append(message)
        return found

    def _frame(self) -> tuple[bool, Opcode, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        final, opcode = bool(first & 0x80), self._opcode(first)
        if bool(second & 0x80) is not self._masked:
            raise Violation(Code.PROTOCOL_ERROR, "wrongly masked")
        size, at = second & 0x7F, 2
        if opcode >= Opcode.CLOSE and (size > _CONTROL_BYTES or not final):
            raise Violation(Code.PROTOCOL_ERROR, "a control frame is too long or in pieces")
        if size >= 126:
            at = 4 if size == 126 else 10
            if len(buffer) < at:
                return None
            size = int.from_bytes(buffer[2:at], "big")
        if self._size + size > self._most:
            raise Violation(Code.TOO_BIG, f"a message is longer than {self._most} bytes")
        start = at + (4 if self._masked else 0)
        if len(buffer) < start + size:
            return None
        payload = bytes(buffer[start : start + size])
        if self._masked:
            payload = mask(payload, bytes(buffer[at:start]))
        del buffer[: start + size]
        return final, opcode, payload

    def _opcode(self, first: int) -> Opcode:
        if first & 0x70:
            raise Violation(Code.PROTOCOL_ERROR, "an extension is used that was not agreed on")
        try:
            return Opcode(first & 0x0F)
        except ValueError:
            raise Violation(Code.PROTOCOL_ERROR, "a frame of no known kind") from None

    def _joined(self, final: bool, opcode: Opcode, payload: bytes) -> Received | None:
        if opcode >= Opcode.CLOSE:
            return Received(opcode, payload)
        if (opcode is Opcode.CONTINUATION) is (self._kind is None):
            raise Violation(Code.PROTOCOL_ERROR, "fragments are out of order")
        if self._kind is None:
            self._kind = opcode
        self._fragments.append(payload)
        self._size += len(payload)
        if not final:
            return None
        message = Received(self._kind, b"".join(self._fragments))
        self._kind, self._fragments, self._size = None, [], 0
        if message.opcode is Opcode.TEXT:
            _check_text(message.payload)
        return message


def _check_text(payload: bytes) -> None:
    try:
        payload.decode()
    except UnicodeDecodeError:
        raise Violation(Code.INVALID_DATA, "text that is not UTF-8") from None


def closing(payload: bytes) -> tuple[int, str]:
    """What a CLOSE frame says: code and reason."""
    if len(payload) < 2:
        return Code.NO_STATUS, ""
    return int.from_bytes(payload[:2], "big"), payload[2:].decode(errors="replace")


class WebSocket:
    """One side of a connection. Texts and binary messages are both received as bytes."""

    def __init__(self, stream: ByteStream, *, client: bool = False, most: int = MOST) -> None:
        self._stream = stream
        self._client = client
        self._parser = Parser(masked=not client, most=most)
        self._messages: list[bytes] = []
        """Those not yet given out, the next one last."""
        self._said_goodbye = False
        self._ended = False
        self.close_code = 0
        """With which the peer has closed."""

    async def receive(self) -> bytes | None:
        """The next message; None when the peer has closed or gone. Pings are answered here."""
        while not self._messages:
            if self._ended:
                return None
            data = await self._stream.read()
            if not data:
                self._ended = True
                return None
            try:
                self._take(self._parser.feed(data))
            except Violation as violation:
                self._ended = True
                self.say_goodbye(violation.code, str(violation))
        return self._messages.pop()

    def _take(self, received: list[Received]) -> None:
        messages = []
        for opcode, payload in received:
            if opcode is Opcode.PING:
                self._send(Opcode.PONG, payload)
            elif opcode is Opcode.CLOSE:
                self._ended = True
                self.close_code, _ = closing(payload)
                self.say_goodbye(Code.NORMAL)
                break
            elif opcode is not Opcode.PONG:
                messages.append(payload)
        self._messages = messages[::-1]

    def send(self, payload: bytes, *, text: bool = False) -> None:
        self._send(Opcode.TEXT if text else Opcode.BINARY, payload)

    def ping(self) -> None:
        self._send(Opcode.PING, b"")

    async def drain(self) -> None:
        await self._stream.drain()

    def say_goodbye(self, code: Code, reason: str = "") -> None:
        """Nothing is sent after this."""
        if not self._said_goodbye:
            content = code.to_bytes(2, "big") + reason.encode()[: _CONTROL_BYTES - 2]
            self._send(Opcode.CLOSE, content)
            self._said_goodbye = True

    async def close(self, code: Code = Code.NORMAL, reason: str = "") -> None:
        """Say goodbye, give the peer a moment to answer, and hang up. Who hangs up on a peer that
        still talks takes back what it has not read yet."""
        self.say_goodbye(code, reason)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                while await self.receive() is not None:
                    pass
        self._stream.close()

    def _send(self, opcode: Opcode, payload: bytes) -> None:
        if not self._said_goodbye:
            self._stream.write(frame(opcode, payload, os.urandom(4) if self._client else b""))


class Tunnel:
    """Fulfils ByteStream: what is read are the contents of messages, one after the other."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while (data := await self._socket.receive()) is not None:
            if data:
                return data
        return b""

    def write(self, data: bytes) -> None:
        self._socket.send(data)

    async def drain(self) -> None:
        await self._socket.drain()

    def write_eof(self) -> None:
        self._socket.say_goodbye(Code.NORMAL)

    def close(self) -> None:
        self._socket.say_goodbye(Code.NORMAL)


# How a connection becomes one.


def is_wanted(headers: Mapping[str, str]) -> bool:
    """Whether a request asks for a WebSocket."""
    return asks_upgrade(headers, "websocket")


def protocols(headers: Mapping[str, str]) -> list[str]:
    """The subprotocols that a request offers."""
    offered = headers.get("sec-websocket-protocol", "").split(",")
    return [each.strip() for each in offered if each.strip()]


def refusal(headers: Mapping[str, str]) -> str:
    """What is wrong with a request for a WebSocket; empty if nothing."""
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
