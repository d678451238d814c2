"""Clients of exec and attach, over WebSocket and SPDY, in all versions of the protocol."""

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Mapping
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
"""Seconds that a client has to open its streams."""
_CLOSE: Final = 255


class RemoteChannel(IntEnum):
    """The channels of a remote command."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


Take = Callable[[RemoteChannel, bytes], Awaitable[None]]
"""Receives the client's data; empty data is the end of a channel."""


class RemoteClient(Protocol):
    """The client of a remote command."""

    async def listen(self, take: Take) -> None:
        """Pass on the client's data until it disconnects."""
        ...

    def send(self, channel: RemoteChannel, data: bytes) -> None: ...

    async def drain(self) -> None:
        """Return when the client has read its data. Raises ConnectionError if it has
        disconnected."""
        ...

    async def end(self, status: Status) -> None:
        """Send the exit status and close the connection."""
        ...


Serve = Callable[[RemoteClient], Awaitable[None]]


class StreamOptions(msgspec.Struct, frozen=True):
    """The streams that a client requests."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @classmethod
    def read(cls, query: Query) -> "StreamOptions":
        tty = _is_on(query, "tty")
        wanted = cls(
            stdin=_is_on(query, "input"),
            stdout=_is_on(query, "output"),
            # A terminal has a single output.
            stderr=_is_on(query, "error") and not tty,
            tty=tty,
        )
        if not (wanted.stdin or wanted.stdout or wanted.stderr):
            raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
        return wanted

    def channels(self, *, resizable: bool) -> set[RemoteChannel]:
        """Return the channels that a SPDY client opens."""
        asked = {
            RemoteChannel.STDIN: self.stdin,
            RemoteChannel.STDOUT: self.stdout,
            RemoteChannel.STDERR: self.stderr,
            RemoteChannel.RESIZE: self.tty and resizable,
        }
        return {RemoteChannel.ERROR, *(channel for channel, wanted in asked.items() if wanted)}


def _is_on(query: Query, name: str) -> bool:
    return query.get(name) in ("1", "true")


def answer(request: HttpRequest, wanted: StreamOptions, serve: Serve) -> Response:
    """Return the response that upgrades the connection to a remote command."""
    if websocket.is_wanted(request.headers):
        return _over_websocket(request, wanted, serve)
    if asks_upgrade(request.headers, spdy.NAME):
        return _over_spdy(request, wanted, serve)
    raise bad_request("Upgrade request required")


# WebSocket.


class RemoteSubprotocol(msgspec.Struct, frozen=True):
    """The features of a subprotocol."""

    binary: bool = True
    documents: bool = False
    """Whether the exit status is a Status document."""
    closing: bool = False
    """Whether a client can close its input and still receive output."""


VERSIONS: Final[Mapping[str, RemoteSubprotocol]] = {
    "": RemoteSubprotocol(),
    "channel.k8s.io": RemoteSubprotocol(),
    "base64.channel.k8s.io": RemoteSubprotocol(binary=False),
    "v4.channel.k8s.io": RemoteSubprotocol(documents=True),
    "v4.base64.channel.k8s.io": RemoteSubprotocol(binary=False, documents=True),
    "v5.channel.k8s.io": RemoteSubprotocol(documents=True, closing=True),
}


def negotiated(request: HttpRequest, spoken: Mapping[str, object]) -> str:
    """Return the first supported subprotocol that the client offers. Raises 400 and 403."""
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


def _over_websocket(request: HttpRequest, wanted: StreamOptions, serve: Serve) -> Response:
    protocol = negotiated(request, VERSIONS)

    async def take_over(duplex: Duplex) -> None:
        client = WebSocketClient(WebSocket(duplex), VERSIONS[protocol])
        client.greet(wanted)
        await serve(client)

    return Response(
        101, headers=websocket.accepting(request.headers, protocol), take_over=take_over
    )


class WebSocketClient:
    """A WebSocket client: the first byte of a message is its channel. Fulfils RemoteClient."""

    def __init__(self, socket: WebSocket, version: RemoteSubprotocol) -> None:
        self._socket = socket
        self._version = version

    def greet(self, wanted: StreamOptions) -> None:
        """Send an empty message, by which the client knows that it is connected."""
        if wanted.stdout:
            self.send(RemoteChannel.STDOUT, b"")
        else:
            self.send(RemoteChannel.STDERR if wanted.stderr else RemoteChannel.ERROR, b"")

    async def listen(self, take: Take) -> None:
        reader = ChannelReader(binary=self._version.binary)
        while (piece := await self._socket.piece()) is not None:
            number, data = reader.read(piece)
            if self._version.closing and number == _CLOSE:
                if data == bytes((RemoteChannel.STDIN,)):
                    await take(RemoteChannel.STDIN, b"")
            elif data and number in (RemoteChannel.STDIN, RemoteChannel.RESIZE):
                await take(RemoteChannel(number), data)

    def send(self, channel: RemoteChannel, data: bytes) -> None:
        if self._version.binary:
            self._socket.send(bytes((channel,)) + data)
        else:
            self._socket.send(b"%d%b" % (channel, base64.b64encode(data)), text=True)

    async def drain(self) -> None:
        await self._socket.drain()

    async def end(self, status: Status) -> None:
        if self._version.documents:
            self.send(RemoteChannel.ERROR, msgspec.json.encode(status))
        elif said := in_words(status):
            self.send(RemoteChannel.ERROR, said.encode())
        await self._socket.close()


# SPDY.

SPDY_VERSIONS: Final = (
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
)


def spdy_version(request: HttpRequest, spoken: tuple[str, ...]) -> str:
    """Return the first supported version that the client offers; empty if it offers none."""
    header = request.headers.get("x-stream-protocol-version", "")
    offered = [each.strip() for each in header.split(",") if each.strip()]
    if not offered:
        return ""
    for each in offered:
        if each in spoken:
            return each
    raise NoCommonVersion(offered, spoken)


class NoCommonVersion(Exception):
    """The client and the node have no version of the protocol in common."""

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
    """Return the headers of the response that switches to SPDY."""
    headers = [("Connection", "Upgrade"), ("Upgrade", spdy.NAME)]
    return [*headers, ("X-Stream-Protocol-Version", version)] if version else headers


def _over_spdy(request: HttpRequest, wanted: StreamOptions, serve: Serve) -> Response:
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
    connection: spdy.SpdyConnection, expected: set[RemoteChannel]
) -> dict[RemoteChannel, spdy.SpdyStream] | None:
    """Return the client's streams when all are open; None if that takes too long."""
    streams: dict[RemoteChannel, spdy.SpdyStream] = {}
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


def _channel(stream: spdy.SpdyStream) -> RemoteChannel | None:
    return RemoteChannel.__members__.get(stream.headers.get("streamtype", "").upper())


class SpdyClient:
    """A SPDY client: each channel is a stream. Fulfils RemoteClient."""

    def __init__(
        self,
        connection: spdy.SpdyConnection,
        streams: Mapping[RemoteChannel, spdy.SpdyStream],
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
                for channel in (RemoteChannel.STDIN, RemoteChannel.RESIZE)
                if channel in self._streams
            ]
            # Further streams are ignored; their end shows that the client has disconnected.
            async for stream in self._connection.opened():
                stream.reset(spdy.ResetCode.REFUSED_STREAM)
            for task in inputs:
                task.cancel()

    async def _hand_on(self, channel: RemoteChannel, take: Take) -> None:
        stream = self._streams[channel]
        while data := await stream.read():
            await take(channel, data)
        await take(channel, b"")

    def send(self, channel: RemoteChannel, data: bytes) -> None:
        stream = self._streams.get(channel)
        if stream is not None:
            stream.write(data)

    async def drain(self) -> None:
        await self._connection.drain()

    async def end(self, status: Status) -> None:
        if self._documents:
            self.send(RemoteChannel.ERROR, msgspec.json.encode(status))
        elif said := in_words(status):
            self.send(RemoteChannel.ERROR, said.encode())
        for stream in self._streams.values():
            stream.close()
        await self._connection.close()
