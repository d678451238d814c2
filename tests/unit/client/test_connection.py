import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from kedge.client.connection import HEAD_BYTES, HttpConnection, encode_request, open_connection
from kedge.client.transport import Unreachable

GET = encode_request("GET", "/", "host", [], b"")


@asynccontextmanager
async def connected(*responses: bytes) -> AsyncIterator[HttpConnection]:
    """A connection to a server that sends these bytes, one item per request, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for response in responses:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        connection = await open_connection(host, port, tls=None, server_name=None)
        yield connection
        connection.abort()
        await asyncio.wait([connection.lost])


async def body(connection: HttpConnection) -> bytes:
    return b"".join([piece async for piece in connection.body])


def test_a_request_has_a_length_if_it_may_have_a_body() -> None:
    headers = [("accept", "*/*")]
    assert encode_request("GET", "/a?b", "host:1", headers, b"") == (
        b"GET /a?b HTTP/1.1\r\nhost: host:1\r\naccept: */*\r\n\r\n"
    )
    assert encode_request("POST", "/", "host", [], b"") == (
        b"POST / HTTP/1.1\r\nhost: host\r\ncontent-length: 0\r\n\r\n"
    )
    assert encode_request("DELETE", "/", "host", [], b"xy").endswith(b"content-length: 2\r\n\r\nxy")


@pytest.mark.parametrize("target", ["/\r\nx: y", "/\n", "/\r"])
def test_a_request_cannot_contain_another(target: str) -> None:
    with pytest.raises(Unreachable, match="a line of the request has two"):
        encode_request("GET", target, "host", [], b"")


async def test_repeated_headers_are_joined_and_listed() -> None:
    response = b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nContent-Length: 2\r\n\r\nok"
    async with connected(response) as connection:
        await connection.ask(GET)
        assert connection.headers == {"a": "1,2", "content-length": "2"}
        assert connection.header_list[:2] == [("a", "1"), ("a", "2")]
        assert await body(connection) == b"ok"


async def test_interim_responses_are_skipped() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with connected(interim + final, final) as connection:
        for _ in range(2):
            await connection.ask(GET)
            assert (connection.status, dict(connection.headers)) == (200, {"content-length": "2"})
            assert await body(connection) == b"ok"
        assert connection.responses == 2


async def test_endless_interim_responses_are_an_error() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 1000 + b"\r\n\r\n"
    async with connected(hint * (HEAD_BYTES // 1000 + 300)) as connection:
        with pytest.raises(Unreachable, match="too long"):
            await connection.ask(GET)


async def test_a_head_with_too_many_fields_is_an_error() -> None:
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + b"a:\r\n" * 50_000 + b"\r\nok"
    async with connected(response) as connection:
        with pytest.raises(Unreachable, match="too many fields"):
            await connection.ask(GET)
        assert len(connection.header_list) < 2_000
        assert not connection.reusable


async def test_the_response_to_head_has_no_body() -> None:
    async with connected(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") as connection:
        await connection.ask(encode_request("HEAD", "/", "host", [], b""), is_head=True)
        assert connection.headers["content-length"] == "9"
        assert await body(connection) == b""
        assert not connection.reusable


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with connected(b"HTTP/1.1 200 OK\r\n\r\nall of it") as connection:
        await connection.ask(GET)
        assert await body(connection) == b"all of it"
        assert not connection.reusable


async def test_a_response_without_content_leaves_the_connection_usable() -> None:
    async with connected(b"HTTP/1.1 204 No Content\r\n\r\n", b"") as connection:
        await connection.ask(GET)
        assert await body(connection) == b""
        assert connection.reusable


async def test_bytes_of_another_protocol_are_kept_for_the_next_owner() -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    async with connected(head + b"first") as connection:
        await connection.ask(GET)
        assert (connection.status, connection.upgraded) == (101, b"first")
        assert not connection.reusable


class SlowNames(uvloop.Loop):
    """An event loop whose name lookups take for ever, and say when they were given up."""

    given_up: list[str]

    async def getaddrinfo(self, host: Any, *details: Any, **more: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.append(host)


def test_a_connection_that_is_given_up_leaves_no_lookup_behind() -> None:
    loop = SlowNames()
    loop.given_up = []

    async def give_up() -> None:
        opening = open_connection("registry.example", 443, tls=None, server_name=None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(opening, 0.01)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(give_up())
    assert loop.given_up == ["registry.example"]


async def test_a_host_is_reached_at_any_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        _, port = server.sockets[0].getsockname()

        async def two_addresses(*asked: Any, **more: Any) -> Any:
            return [(0, 0, 0, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", two_addresses)
        connection = await open_connection("two.example", port, tls=None, server_name=None)
        assert connection.transport.get_extra_info("peername") == ("127.0.0.1", port)
        await asyncio.wait([connection.lost])
