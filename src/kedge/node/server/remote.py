"""Clients of remote commands: the same channels over WebSocket and over SPDY, in all versions."""

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from kedge.machinery.errors import StatusError, bad_request
from kedge.node.server.channels import ChannelReader
from kedge.node.server.status import Status, in_words
from kedge.web import spdy, websocket
from kedge.web.duplex import Duplex
from kedge.web.message import HttpRequest, Query, Response, asks_upgrade
from kedge.web.websocket import WebSocket

CREATION_SECONDS: Final = 30.0
"""How long a client may take to open the streams it said it would."""
_CLOSE: Final = 255


class Channel(IntEnum):
    """What a piece of data belongs to."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


Take = Callable[[Channel, bytes], Awaitable[None]]
"""Gets what a client sends; empty data is the end of a channel."""


class Client(Protocol):
    """Whoever uses a remote command."""

    async def listen(self, take: Take) -> None:
        """Hand on what the client sends, until it has gone."""
        ...

    def send(self, channel: Channel, data: bytes) -> None: ...

    async def drain(self) -> None:
        """Return when the client has caught up; ConnectionError if it has gone."""
        ...

    async def end(self, status: Status) -> None:
        """Tell how it went, and hang up."""
        ...


Serve = Callable[[Client], Awaitable[None]]


@dataclass(frozen=True)
class Wanted:
    """Which streams a client wants."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @classmethod
    def read(cls, query: Query) -> "Wanted":
        tty = _is_on(query, "tty")
        wanted = cls(
            stdin=_is_on(query, "input"),
            stdout=_is_on(query, "output"),
            # A terminal has one output for everything.
            stderr=_is_on(query, "error") and not tty,
            tty=tty,
        )
        if not (wanted.stdin or wanted.stdout or wanted.stderr):
            raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
        return wanted

    def channels(self, *, resizable: bool) -> set[Channel]:
        """Those that a client opens itself where channels have to be opened."""
        asked = {
            Channel.STDIN: self.stdin,
            Channel.STDOUT: self.stdout,
            Channel.STDERR: self.stderr,
            Channel.RESIZE: self.tty and resizable,
        }
        return {Channel.ERROR, *(channel for channel, wanted in asked.items() if wanted)}


def _is_on(query: Query, name: str) -> bool:
    return query.get(name) in ("1", "true")


def answer(request: HttpRequest, wanted: Wanted, serve: Serve) -> Response:
    """The answer that makes the connection one for a remote command."""
    if websocket.is_wanted(request.headers):
        return _over_websocket(request, wanted, serve)
    if asks_upgrade(request.headers, spdy.NAME):
        return _over_spdy(request, wanted, serve)
    raise bad_request("Upgrade request required")


# WebSocket.


class Version(msgspec.Struct, frozen=True):
    """What a subprotocol can do."""

    binary: bool = True
    documents: bool = False
    """Whether the end is told as a document."""
    closing: bool = False
    """Whether a client can end its input and go on listening."""


VERSIONS: Final[Mapping[str, Version]] = {
    "": Version(),
    "channel.k8s.io": Version(),
    "base64.channel.k8s.io": Version(binary=False),
    "v4.channel.k8s.io": Version(documents=True),
    "v4.base64.channel.k8s.io": Version(binary=False, documents=True),
    "v5.channel.k8s.io": Version(documents=True, closing=True),
}


def negotiated(request: HttpRequest, spoken: Mapping[str, object]) -> str:
    """The first of the subprotocols that are offered and spoken; raises 400 and 403."""
    if broken := websocket.refusal(request.headers):
        raise bad_request(broken)
    offered = websocket.protocols(request.headers) or [""]
    for each in offered:
        if each in spoken:
            return each
    raise StatusError(
        403,
        "Forbidden",
        f"requested protocol(s) are not supported: {offered}; supports {list(spoken)}",
    )


def _over_websocket(request: HttpRequest, wanted: Wanted, serve: Serve) -> Response:
    protocol = negotiated(request, VERSIONS)

    async def take_over(duplex: Duplex) -> None:
        client = WebSocketClient(WebSocket(duplex), VERSIONS[protocol])
        client.greet(wanted)
        await serve(client)

    return Response(
        101, headers=websocket.accepting(request.headers, protocol), take_over=take_over
    )


class WebSocketClient:
    """Fulfils Client: the first byte of a message says which channel it belongs to."""

    def __init__(self, socket: WebSocket, version: Version) -> None:
        self._socket = socket
        self._version = version

    def greet(self, wanted: Wanted) -> None:
        """Let the client know that it is connected, by an empty message."""
        if wanted.stdout:
            self.send(Channel.STDOUT, b"")
        else:
            self.send(Channel.STDERR if wanted.stderr else Channel.ERROR, b"")

    async def listen(self, take: Take) -> None:
        reader = ChannelReader(binary=self._version.binary)
        while (piece := await self._socket.piece()) is not None:
            number, data = reader.read(piece)
            if self._version.closing and number == _CLOSE:
                if data == bytes((Channel.STDIN,)):
                    await take(Channel.STDIN, b"")
            elif data and number in (Channel.STDIN, Channel.RESIZE):
                await take(Channel(number), data)

    def send(self, channel: Channel, data: bytes) -> None:
        if self._version.binary:
            self._socket.send(bytes((channel,)) + data)
        else:
            self._socket.send(b"%d%b" % (channel, base64.b64encode(data)), text=True)

    async def drain(self) -> None:
        await self._socket.drain()

    async def end(self, status: Status) -> None:
        if self._version.documents:
            self.send(Channel.ERROR, msgspec.json.encode(status))
        elif said := in_words(status):
            self.send(Channel.ERROR, said.encode())
        await self._socket.close()


# SPDY.

SPDY_VERSIONS: Final = (
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
)


def spdy_version(request: HttpRequest, spoken: tuple[str, ...]) -> str:
    """The first version that the client offers and we speak; empty if it offers none."""
    header = request.headers.get("x-stream-protocol-version", "")
    offered = [each.strip() for each in header.split(",") if each.strip()]
    if not offered:
        return ""
    for each in offered:
        if each in spoken:
            return each
    raise NoCommonVersion(offered, spoken)


class NoCommonVersion(Exception):
    """The client speaks no version of a protocol that we do."""

    def __init__(self, offered: list[str], spoken: tuple[str, ...]) -> None:
        super().__init__(
            f"unable to upgrade: unable to negotiate protocol: client supports {offered},"
            f" server accepts {list(spoken)}"
        )
        self.spoken = spoken

    def response(self) -> Response:
        headers = [("X-Accepted-Stream-Protocol-Versions", each) for each in self.spoken]
        return Response(403, str(self).encode(), "text/plain; charset=utf-8", headers)


def spdy_headers(version: str) -> list[tuple[str, str]]:
    """The headers of the answer after which SPDY is spoken."""
    headers = [("Connection", "Upgrade"), ("Upgrade", spdy.NAME)]
    return [*headers, ("X-Stream-Protocol-Version", version)] if version else headers


def _over_spdy(request: HttpRequest, wanted: Wanted, serve: Serve) -> Response:
    try:
        version = spdy_version(request, SPDY_VERSIONS)
    except NoCommonVersion as none:
        return none.response()

    async def take_over(duplex: Duplex) -> None:
        connection = spdy.SpdyConnection(duplex)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(connection.run())
            expected = wanted.channels(resizable=version[:2] in ("v3", "v4"))
            streams = await _opened(connection, expected)
            if streams is None:
                await connection.close()
            else:
                documents = version.startswith("v4")
                await serve(SpdyClient(connection, streams, documents=documents))
            reading.cancel()

    return Response(101, headers=spdy_headers(version), take_over=take_over)


async def _opened(
    connection: spdy.SpdyConnection, expected: set[Channel]
) -> dict[Channel, spdy.SpdyStream] | None:
    """The streams that the client opens, when they are complete; None if they never are."""
    streams: dict[Channel, spdy.SpdyStream] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CREATION_SECONDS):
            async for stream in connection.opened():
                channel = _channel(stream)
                if channel is None or channel in streams:
                    stream.reset(spdy.ResetCode.PROTOCOL_ERROR)
                    continue
                connection.accept(stream)
                streams[channel] = stream
                if expected <= streams.keys():
                    return streams
    return None


def _channel(stream: spdy.SpdyStream) -> Channel | None:
    return Channel.__members__.get(stream.headers.get("streamtype", "").upper())


class SpdyClient:
    """Fulfils Client: every channel is a stream of its own."""

    def __init__(
        self,
        connection: spdy.SpdyConnection,
        streams: Mapping[Channel, spdy.SpdyStream],
        *,
        documents: bool,
    ) -> None:
        self._connection = connection
        self._streams = streams
        self._documents = documents

    async def listen(self, take: Take) -> None:
        async with asyncio.TaskGroup() as tasks:
            inputs = [
                tasks.create_task(self._hand_on(channel, take))
                for channel in (Channel.STDIN, Channel.RESIZE)
                if channel in self._streams
            ]
            # Further streams mean nothing; but when there are no more, the client has gone.
            async for stream in self._connection.opened():
                stream.reset(spdy.ResetCode.REFUSED_STREAM)
            for task in inputs:
                task.cancel()

    async def _hand_on(self, channel: Channel, take: Take) -> None:
        stream = self._streams[channel]
        while data := await stream.read():
            await take(channel, data)
        await take(channel, b"")

    def send(self, channel: Channel, data: bytes) -> None:
        stream = self._streams.get(channel)
        if stream is not None:
            stream.write(data)

    async def drain(self) -> None:
        await self._connection.drain()

    async def end(self, status: Status) -> None:
        if self._documents:
            self.send(Channel.ERROR, msgspec.json.encode(status))
        elif said := in_words(status):
            self.send(Channel.ERROR, said.encode())
        for stream in self._streams.values():
            stream.close()
        await self._connection.close()
