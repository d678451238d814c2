"""Port forwarding: TCP connections into a pod over one connection of a client."""

import asyncio
import base64
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from kedge.machinery.errors import StatusError, bad_request
from kedge.node.runtime.runtime import NotFoundError, RuntimeFailure
from kedge.node.server import remote
from kedge.node.server.channels import ChannelReader
from kedge.web import spdy, tunnel, websocket
from kedge.web.duplex import ByteStream, Duplex, adopt
from kedge.web.message import HttpRequest, Query, Response, asks_upgrade
from kedge.web.websocket import WebSocket

PROTOCOL: Final = "portforward.k8s.io"
TUNNEL: Final = f"{spdy.NAME}+{PROTOCOL}"
"""The subprotocol of a WebSocket that carries SPDY."""
CHANNELS: Final[Mapping[str, bool]] = {
    "": True,
    "v4.channel.k8s.io": True,
    "v4.base64.channel.k8s.io": False,
}
"""Subprotocols in which ports are channels, and whether they are binary."""
_MOST_HALVES: Final = 64
"""Forwarded connections with only one of their two streams open."""
_MOST_PORTS: Final = 120
"""Two channels for each port must fit into a byte, which also has reserved values."""


class PortForwardTarget(msgspec.Struct, frozen=True):
    """The pod whose ports are forwarded."""

    name: str
    uid: str
    dial: Callable[[int], Awaitable[int]]
    """Returns a connected socket to a port. Raises RuntimeFailure if nothing listens there."""

    async def connect(self, port: int) -> Duplex:
        """Return a connection to a port. Raises PortUnreachable."""
        try:
            return await adopt(socket.socket(fileno=await self.dial(port)))
        except (RuntimeFailure, NotFoundError, OSError) as error:
            raise PortUnreachable(
                f"error forwarding port {port} to pod {self.name}, uid {self.uid}: {error}"
            ) from error


class PortUnreachable(Exception):
    """A port cannot be reached; the text is for the user."""


def answer(request: HttpRequest, pod: PortForwardTarget) -> Response:
    """Return the response that upgrades the connection to port forwarding."""
    headers = request.headers
    if websocket.is_wanted(headers):
        if TUNNEL in websocket.protocols(headers):
            return _tunnelled(request, pod)
        return _over_channels(request, pod)
    if not asks_upgrade(headers, spdy.NAME):
        raise bad_request("Upgrade request required")
    try:
        version = remote.spdy_version(request, (PROTOCOL,))
    except remote.NoCommonVersion as none:
        return none.response()
    return Response(
        101, headers=remote.spdy_headers(version), take_over=lambda duplex: forward(duplex, pod)
    )


def _tunnelled(request: HttpRequest, pod: PortForwardTarget) -> Response:
    remote.negotiated(request, {TUNNEL: None})

    async def take_over(duplex: Duplex) -> None:
        inside = WebSocket(duplex)
        await forward(websocket.WebSocketTunnel(inside), pod)
        await inside.close()

    return Response(101, headers=websocket.accepting(request.headers, TUNNEL), take_over=take_over)


# SPDY: a pair of streams for each connection.


class _PortStreams(msgspec.Struct):
    data: spdy.SpdyStream | None = None
    error: spdy.SpdyStream | None = None


async def forward(stream: ByteStream, pod: PortForwardTarget) -> None:
    """Serve the connections of a client until it disconnects."""
    connection = spdy.SpdyConnection(stream)
    pairs: dict[str, _PortStreams] = {}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(connection.run())
        async for opened in connection.opened():
            request = _request(opened)
            if request is None:
                opened.reset(spdy.ResetCode.PROTOCOL_ERROR)
                continue
            connection.accept(opened)
            _make_room(pairs)
            pair = pairs.setdefault(request, _PortStreams())
            if opened.headers["streamtype"] == "data":
                pair.data = opened
            else:
                pair.error = opened
            if pair.data is not None and pair.error is not None:
                del pairs[request]
                tasks.create_task(_carry(pair.data, pair.error, pod))


def _make_room(pairs: dict[str, _PortStreams]) -> None:
    """Close the oldest unpaired stream if there are too many."""
    if len(pairs) >= _MOST_HALVES:
        oldest = pairs.pop(next(iter(pairs)))
        for stream in (oldest.data, oldest.error):
            if stream is not None:
                stream.reset(spdy.ResetCode.REFUSED_STREAM)


def _request(stream: spdy.SpdyStream) -> str | None:
    """Return the connection that a stream belongs to; None if its headers are invalid."""
    headers = stream.headers
    kind = headers.get("streamtype", "")
    if kind not in ("data", "error") or _port(headers.get("port", "")) is None:
        return None
    # Old clients send no id: the error stream is the one opened before.
    before = stream.number if kind == "error" else stream.number - 2
    return headers.get("requestid") or f"stream {before}"


def _port(text: str) -> int | None:
    port = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    return port if 0 < port < 1 << 16 else None


async def _carry(data: spdy.SpdyStream, error: spdy.SpdyStream, pod: PortForwardTarget) -> None:
    try:
        inside = await pod.connect(int(data.headers["port"]))
    except PortUnreachable as failed:
        error.write(str(failed).encode())
        error.close()
        data.reset()
        return
    await tunnel.join(data, inside)
    error.close()


# WebSocket: two channels for each port, with one connection each.


def requested_ports(query: Query) -> list[int]:
    """Return the ports in a query. Raises 400."""
    given = query.all("ports") or query.all("port")
    if not given:
        raise bad_request('query parameter "port" is required')
    found = []
    for text in ",".join(given).split(","):
        port = _port(text)
        if port is None:
            raise bad_request(f'unable to parse "{text}" as a port')
        found.append(port)
    if len(found) > _MOST_PORTS:
        raise StatusError(400, "BadRequest", "too many ports")
    return found


def _over_channels(request: HttpRequest, pod: PortForwardTarget) -> Response:
    protocol = remote.negotiated(request, CHANNELS)
    ports = requested_ports(request.query)

    async def take_over(duplex: Duplex) -> None:
        await PortChannels(WebSocket(duplex), binary=CHANNELS[protocol]).serve(ports, pod)

    return Response(
        101, headers=websocket.accepting(request.headers, protocol), take_over=take_over
    )


class PortChannels:
    """Ports as channels of a WebSocket: for each port one for data and one for errors."""

    def __init__(self, inside: WebSocket, *, binary: bool) -> None:
        self._socket = inside
        self._binary = binary

    async def serve(self, ports: Sequence[int], pod: PortForwardTarget) -> None:
        """Serve until all connections have ended, or the client has disconnected."""
        for number, port in enumerate(ports):
            for channel in (2 * number, 2 * number + 1):
                self._send(channel, port.to_bytes(2, "little"))
        loop = asyncio.get_running_loop()
        # This function owns the tasks. All connections are opened in parallel; input for a port
        # waits for its connection.
        connecting = [loop.create_task(pod.connect(port)) for port in ports]
        carrying = loop.create_task(self._carry_all(connecting))
        listening = loop.create_task(self._listen(connecting))
        try:
            await asyncio.wait({carrying, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (listening, carrying, *connecting):
                task.cancel()
            await asyncio.gather(listening, carrying, *connecting, return_exceptions=True)
            for made in connecting:
                if not made.cancelled() and made.exception() is None:
                    made.result().close()
        await self._socket.close()

    async def _carry_all(self, connecting: "Sequence[asyncio.Task[Duplex]]") -> None:
        await asyncio.gather(*(self._carry(*each) for each in enumerate(connecting)))

    async def _carry(self, number: int, connecting: "asyncio.Task[Duplex]") -> None:
        try:
            inside = await asyncio.shield(connecting)
        except PortUnreachable as failed:
            self._send(2 * number + 1, str(failed).encode())
            return
        with contextlib.suppress(ConnectionError):
            while data := await inside.read():
                self._send(2 * number, data)
                await self._socket.drain()

    async def _listen(self, connecting: "Sequence[asyncio.Task[Duplex]]") -> None:
        reader = ChannelReader(binary=self._binary)
        while (piece := await self._socket.piece()) is not None:
            channel, data = reader.read(piece)
            number, is_error = divmod(channel, 2)
            if not data or is_error or not 0 <= number < len(connecting):
                continue
            with contextlib.suppress(PortUnreachable, ConnectionError):
                inside = await asyncio.shield(connecting[number])
                inside.write(data)
                await inside.drain()

    def _send(self, channel: int, data: bytes) -> None:
        if self._binary:
            self._socket.send(bytes((channel,)) + data)
        else:
            text = chr(ord("0") + channel).encode() + base64.b64encode(data)
            self._socket.send(text, text=True)
