"""Forwarding of requests to another server: upgraded connections, streams and plain responses."""

import asyncio
import base64
import os
import ssl
from collections.abc import Mapping
from typing import Final

from kedge.machinery.errors import StatusError, bad_request
from kedge.web import tunnel, websocket
from kedge.web.duplex import Duplex
from kedge.web.exchange import Exchange, OutgoingRequest, ServerAddress, ask
from kedge.web.message import HttpRequest, Response, Sink
from kedge.web.response_head import BODILESS
from kedge.web.websocket import WebSocket

HOP_BY_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
_OWN: Final = frozenset(("host", "content-length", "expect", "date"))
"""Headers that this server writes itself."""
_BODIES: Final = {"": True, "binary.k8s.io": True, "base64.binary.k8s.io": False}
"""Subprotocols in which a body is sent as messages, and whether these are binary."""


def passed_headers(headers: Mapping[str, str], *, upgrading: bool) -> dict[str, str]:
    """Return the headers that are forwarded to the other server."""
    one_hop = HOP_BY_HOP.union(_tokens(headers.get("connection", "")))
    kept = {name: headers[name] for name in headers if name not in one_hop and name not in _OWN}
    if upgrading:
        kept |= {"connection": "Upgrade", "upgrade": headers.get("upgrade", "")}
    return kept


def _tokens(connection: str) -> set[str]:
    """Return the headers that `Connection` declares to be for the next hop only."""
    return {token.strip() for token in connection.lower().split(",")}


def forwarded_for(http: HttpRequest) -> dict[str, str]:
    """Return X-Forwarded-For with the peer appended to the proxies that are listed already."""
    before = http.headers.get("x-forwarded-for", "")
    return {"x-forwarded-for": f"{before}, {http.peer}" if before else http.peer}


async def reach(
    address: ServerAddress, asking: OutgoingRequest, patience: float | None = None
) -> Exchange:
    """Return the other server's response; 500 if there is none."""
    try:
        async with asyncio.timeout(patience):
            return await ask(address, asking)
    except (OSError, TimeoutError) as error:
        why = dial_failure(address, error)
        raise StatusError(500, "", f"error dialing backend: {why}") from error


def dial_failure(address: ServerAddress, error: Exception) -> str:
    """Return why there is no response, in the words of Kubernetes."""
    if isinstance(error, TimeoutError):
        return f"dial tcp {address.authority}: i/o timeout"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return f"dial tcp {address.authority}: connect: {os.strerror(error.errno).lower()}"
    return f"{address.authority}: {error}"


def joined(exchange: Exchange) -> Response:
    """Connect a client that wants another protocol with the other server, byte for byte."""
    if exchange.status != 101:
        if exchange.status < 400:
            exchange.close()
            raise StatusError(500, "", f"invalid upgrade response: status code {exchange.status}")
        return streamed_response(exchange)

    async def take_over(duplex: Duplex) -> None:
        other = exchange.upgraded()
        try:
            await tunnel.join(duplex, other)
        except asyncio.CancelledError:
            # The client has disconnected, so the rest of its request is not forwarded. The other
            # server must notice that, also while it reads nothing because a program does not.
            other.reset()
            exchange.close()
            raise

    agreed = [(name.title(), value) for name, value in exchange.headers if name not in _OWN]
    return Response(101, headers=agreed, take_over=take_over)


def answered(exchange: Exchange) -> list[tuple[str, str]]:
    """Return the headers of a response for the client, without its content type."""
    one_hop = HOP_BY_HOP.union(_tokens(exchange.header("connection")))
    return [
        (name.title(), value)
        for name, value in exchange.headers
        if name not in one_hop and name not in _OWN and name != "content-type"
    ]


def streamed_response(exchange: Exchange, *, is_head: bool = False) -> Response:
    """Return the response with its headers; its body is forwarded as it arrives."""

    async def pour(sink: Sink) -> None:
        try:
            async for piece in exchange.pieces():
                await tunnel.take_turn()
                sink.write(piece)
                await sink.drain()
        finally:
            exchange.close()

    response = Response(exchange.status, pour, exchange.header("content-type"), answered(exchange))
    response.length = exchange.length
    if is_head or exchange.status in BODILESS:
        exchange.close()
        response.body = b""
    return response


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
        from kedge.machinery.task_group import TaskGroup

        socket = WebSocket(duplex)
        try:
            async with TaskGroup() as tasks:
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
            await tunnel.take_turn()
            socket.send(piece if binary else base64.b64encode(piece), text=not binary)
            await socket.drain()
    except ConnectionError:
        return


async def _left(socket: WebSocket, exchange: Exchange) -> None:
    """Close the exchange when the client leaves; messages from the client are ignored."""
    while await socket.piece() is not None:
        pass
    exchange.close()
