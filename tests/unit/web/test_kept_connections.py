"""Connections that carry more than one request, over loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.web.test_exchange import turns

from kedge.web.exchange import Exchange, OutgoingRequest, ServerAddress
from kedge.web.kept_connections import KeptConnections

PATIENCE = 60


class Server:
    """Answers with the number of the connection; closes it if the path is /last."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[str] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.address = ServerAddress("127.0.0.1", 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line = head.partition("\r\n")[0].rpartition(" ")[0]
                self.requests.append(line)
                close = "Connection: close\r\n" if line.endswith("/last") else ""
                length = 20_000_000 if line.endswith("/long") else 1
                writer.write(f"HTTP/1.1 200 OK\r\n{close}Content-Length: {length}\r\n\r\n".encode())
                writer.write(str(number).encode() * length)
                await writer.drain()
                if close:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, KeptConnections]]:
    server, kept = Server(), KeptConnections(most=2)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.address = ServerAddress("127.0.0.1", port)
    async with asyncio.timeout(PATIENCE), listener:
        try:
            yield server, kept
        finally:
            kept.close()
            for writer in server.writers:
                writer.close()
            await turns()


async def get(kept: KeptConnections, server: Server, path: str = "/", method: str = "GET") -> bytes:
    exchange = await kept.ask(server.address, OutgoingRequest(method, path))
    return await exchange.whole(1 << 20)


async def test_a_connection_carries_one_get_after_the_other() -> None:
    async with serving() as (server, kept):
        assert [await get(kept, server) for _ in range(3)] == [b"1", b"1", b"1"]


async def test_a_request_that_changes_something_has_its_own_connection() -> None:
    async with serving() as (server, kept):
        assert await get(kept, server) == b"1"
        assert await get(kept, server, method="DELETE") == b"2"
        assert await get(kept, server) == b"1"


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    async with serving() as (server, kept):
        asking = OutgoingRequest("GET", "/")
        exchanges = [await kept.ask(server.address, asking) for _ in range(4)]
        assert sorted([await each.whole(9) for each in exchanges]) == [b"1", b"2", b"3", b"4"]
        for each in exchanges:
            each.close()
        assert len(kept._idle) == 2


async def test_a_connection_that_the_server_closed_is_replaced() -> None:
    async with serving() as (server, kept):
        assert await get(kept, server, "/last") == b"1"
        assert await get(kept, server) == b"2"
        server.writers[1].close()
        await server.writers[1].wait_closed()
        assert await get(kept, server) == b"3"


async def test_a_response_that_is_not_read_ends_its_connection() -> None:
    async with serving() as (server, kept):
        exchange: Exchange = await kept.ask(server.address, OutgoingRequest("GET", "/long"))
        exchange.close()
        assert await get(kept, server) == b"2"


async def test_closing_an_exchange_twice_does_not_harm_the_next_one() -> None:
    async with serving() as (server, kept):
        first = await kept.ask(server.address, OutgoingRequest("GET", "/"))
        assert await first.whole(9) == b"1"
        second = await kept.ask(server.address, OutgoingRequest("GET", "/"))
        first.close()
        assert await second.whole(9) == b"1"


async def test_another_way_to_verify_the_server_needs_another_connection() -> None:
    async with serving() as (server, kept):
        assert await get(kept, server) == b"1"
        named = ServerAddress(server.address.host, server.address.port, None, "other.svc")
        exchange = await kept.ask(named, OutgoingRequest("GET", "/"))
        assert await exchange.whole(9) == b"2"


async def test_an_error_is_raised_if_nobody_listens() -> None:
    async with serving() as (server, kept):
        pass
    with pytest.raises(ConnectionRefusedError):
        await kept.ask(server.address, OutgoingRequest("GET", "/"))
