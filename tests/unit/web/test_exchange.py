"""One request to another server, and whatever comes back, over loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kedge.client.transport import Unreachable
from kedge.testing.clock import FakeClock
from kedge.web.duplex import Duplex
from kedge.web.exchange import OutgoingRequest, ServerAddress, ask
from kedge.web.message import HttpRequest, Response, asks_upgrade
from kedge.web.server import HttpServer

UPGRADE = [("Connection", "Upgrade"), ("Upgrade", "echo")]


async def turns() -> None:
    """Let connections that were closed be gone."""
    for _ in range(10):
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)


async def echo(duplex: Duplex) -> None:
    while data := await duplex.read():
        duplex.write(data.upper())
        await duplex.drain()
    duplex.write(b"bye")


def site(request: HttpRequest) -> Response:
    if asks_upgrade(request.headers, "echo"):
        return Response(101, headers=UPGRADE, take_over=echo)
    if request.path == "/long":
        return Response(200, iter([b"x" * 100_000, b"y" * 100_000]))
    return Response(200, request.method.encode() + b" " + request.body, "text/plain")


@asynccontextmanager
async def served(
    handler: Callable[[HttpRequest], Response | Awaitable[Response]] = site,
) -> AsyncIterator[ServerAddress]:
    server = HttpServer(handler, FakeClock())
    port = await server.listen("127.0.0.1", 0, None)
    try:
        yield ServerAddress("127.0.0.1", port)
    finally:
        for connection in list(server.connections):
            connection.abort()
        server.stop_listening()
        await turns()


@asynccontextmanager
async def answering(raw: bytes) -> AsyncIterator[ServerAddress]:
    """A server that says just this."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        await turns()


async def test_a_plain_answer_is_read_whole() -> None:
    async with served() as address:
        exchange = await ask(address, OutgoingRequest("POST", "/x", body=b"hello"))
        assert exchange.status == 200
        assert exchange.header("content-type") == "text/plain"
        assert await exchange.whole(1000) == b"POST hello"


async def test_a_body_comes_in_pieces_and_no_more_of_it_than_wanted() -> None:
    async with served() as address:
        exchange = await ask(address, OutgoingRequest("GET", "/long"))
        assert len(b"".join([piece async for piece in exchange.pieces()])) == 200_000
        exchange = await ask(address, OutgoingRequest("GET", "/long"))
        assert await exchange.whole(5) == b"xxxxx"


async def test_a_connection_can_become_another_protocol() -> None:
    async with served() as address:
        exchange = await ask(address, OutgoingRequest("GET", "/", UPGRADE))
        assert exchange.status == 101
        duplex = exchange.upgraded()
        duplex.write(b"hello")
        assert await duplex.read() == b"HELLO"
        # Half a connection is closed: what the other side still has to say arrives.
        duplex.write_eof()
        assert await duplex.read() == b"bye"
        assert await duplex.read() == b""
        duplex.close()


async def test_what_comes_with_the_head_of_the_answer_is_not_lost() -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    async with answering(head + b"first words") as address:
        exchange = await ask(address, OutgoingRequest("GET", "/", UPGRADE))
        assert await exchange.upgraded().read() == b"first words"
        exchange.close()


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    async with answering(b"HTTP/1.0 200 OK\r\n\r\nall of it") as address:
        exchange = await ask(address, OutgoingRequest("GET", "/"))
        assert await exchange.whole(100) == b"all of it"


@pytest.mark.parametrize(
    "raw", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"]
)
async def test_a_server_that_breaks_off_or_speaks_no_http_is_an_error(raw: bytes) -> None:
    async with answering(raw) as address:
        with pytest.raises(Unreachable):
            await (await ask(address, OutgoingRequest("GET", "/"))).whole(100)


async def test_a_server_that_switches_protocols_unasked_is_not_believed() -> None:
    raw = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nx"
    async with answering(raw) as address:
        with pytest.raises(Unreachable, match="without being asked"):
            await ask(address, OutgoingRequest("GET", "/"))
    async with answering(raw) as address:
        exchange = await ask(address, OutgoingRequest("GET", "/", UPGRADE))
        assert exchange.status == 101
        exchange.close()
