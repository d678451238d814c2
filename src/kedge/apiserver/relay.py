"""Forwarding of requests to another server: upgraded connections, streams and plain responses."""

import asyncio
import base64
from collections.abc import Iterator, Mapping
from typing import Final

from kedge.machinery.errors import StatusError, bad_request, internal
from kedge.web import tunnel, websocket
from kedge.web.duplex import Duplex
from kedge.web.exchange import Exchange, OutgoingRequest, ServerAddress, ask
from kedge.web.message import HttpRequest, Response, Sink
from kedge.web.websocket import WebSocket

_HOP_BY_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
_OURS: Final = frozenset(("host", "content-length", "expect", "authorization", "date"))
"""Headers for this server alone, such as the client's credentials, or that it writes itself."""
AGENT_SECONDS: Final = 30.0
"""How long an agent may take to begin its response."""
_BODIES: Final = {"": True, "binary.k8s.io": True, "base64.binary.k8s.io": False}
"""Subprotocols in which a body is sent as messages, and whether these are binary."""
_OUR_PREFIXES: Final = ("impersonate-", "x-remote-")


def passed_headers(headers: Mapping[str, str], *, upgrading: bool) -> Iterator[tuple[str, str]]:
    """Return the headers that are forwarded to the other server."""
    for name, value in headers.items():
        if name in _OURS or name.startswith(_OUR_PREFIXES):
            continue
        if name not in _HOP_BY_HOP or (upgrading and name in ("connection", "upgrade")):
            yield name, value


async def reach(
    address: ServerAddress, asking: OutgoingRequest, patience: float | None = None
) -> Exchange:
    """Return the other server's response; 500 if there is none."""
    try:
        async with asyncio.timeout(patience):
            return await ask(address, asking)
    except (OSError, TimeoutError) as error:
        why = str(error) or "it does not answer"
        raise StatusError(500, "", f"error dialing backend: {address.authority}: {why}") from error


async def upgrade(
    http: HttpRequest, address: ServerAddress, target: str, patience: float | None = None
) -> Response:
    """Connect a client that wants another protocol with the other server, byte for byte."""
    headers = list(passed_headers(http.headers, upgrading=True))
    exchange = await reach(address, OutgoingRequest(http.method, target, headers), patience)
    if exchange.status != 101:
        if exchange.status < 400:
            exchange.close()
            raise internal(f"invalid upgrade response: status code {exchange.status}")
        return await _refused(exchange)

    async def take_over(duplex: Duplex) -> None:
        try:
            await tunnel.join(duplex, exchange.upgraded())
        except asyncio.CancelledError:
            # The client has disconnected, so the rest of its request is not forwarded.
            exchange.close()
            raise

    agreed = [(name.title(), value) for name, value in exchange.headers if name not in _OURS]
    return Response(101, headers=agreed, take_over=take_over)


async def _refused(exchange: Exchange) -> Response:
    """Return the other server's refusal for the client."""
    body = await exchange.whole(1 << 20)
    return Response(exchange.status, body, exchange.header("content-type"), answered(exchange))


def answered(exchange: Exchange) -> list[tuple[str, str]]:
    """Return the headers of a response for the client, without its content type."""
    return [
        (name.title(), value)
        for name, value in exchange.headers
        if name not in _HOP_BY_HOP and name not in _OURS and name != "content-type"
    ]


def poured(exchange: Exchange, content_type: str, headers: list[tuple[str, str]]) -> Response:
    """Return the response; its body is forwarded as it arrives."""

    async def pour(sink: Sink) -> None:
        try:
            async for piece in exchange.pieces():
                sink.write(piece)
                await sink.drain()
        finally:
            exchange.close()

    if exchange.status in (204, 304):
        exchange.close()
        return Response(exchange.status, b"", content_type, headers)
    return Response(exchange.status, pour, content_type, headers)


def in_messages(http: HttpRequest, exchange: Exchange) -> Response:
    """Return the body as messages of a WebSocket; raises 400 and 403."""
    if broken := websocket.refusal(http.headers):
        exchange.close()
        raise bad_request(broken)
    offered = websocket.protocols(http.headers) or [""]
    protocol = next((each for each in offered if each in _BODIES), None)
    if protocol is None:
        exchange.close()
        raise StatusError(403, "Forbidden", f"requested protocol(s) are not supported: {offered}")

    async def take_over(duplex: Duplex) -> None:
        socket = WebSocket(duplex)
        try:
            async with asyncio.TaskGroup() as tasks:
                leaving = tasks.create_task(_left(socket, exchange))
                await _send(socket, exchange, binary=_BODIES[protocol])
                leaving.cancel()
        finally:
            exchange.close()
        await socket.close()

    return Response(101, headers=websocket.accepting(http.headers, protocol), take_over=take_over)


async def _send(socket: WebSocket, exchange: Exchange, *, binary: bool) -> None:
    socket.send(b"", text=not binary)  # tells the client that it is connected
    try:
        async for piece in exchange.pieces():
            socket.send(piece if binary else base64.b64encode(piece), text=not binary)
            await socket.drain()
    except ConnectionError:
        return


async def _left(socket: WebSocket, exchange: Exchange) -> None:
    """Close the exchange when the client leaves; messages from the client are ignored."""
    while await socket.piece() is not None:
        pass
    exchange.close()
