import asyncio
import gc
import ssl
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kedge.apiserver import pki
from kedge.client import connection as connection_module
from kedge.client.connection import (
    HEAD_BYTES,
    SHARE_SECONDS,
    SLICE_BYTES,
    HttpConnection,
    encode_request,
    open_connection,
)
from kedge.client.transport import Unreachable
from kedge.machinery.turns import StepTurns, next_turn
from kedge.testing.clock import BusyClock

GET = encode_request("GET", "/", "host", [], b"")


@asynccontextmanager
async def connected(*responses: bytes) -> AsyncIterator[HttpConnection]:
    """A connection to a server that sends these bytes, one item per request, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError):
            for response in responses:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(response)

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


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TINY = b"1\r\nx\r\n"


async def test_answers_in_tiny_chunks_share_the_turns_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = BusyClock()
    turns = StepTurns(clock.monotonic, SHARE_SECONDS)
    monkeypatch.setattr(connection_module, "response_turns", lambda: turns)
    receive = HttpConnection.on_body

    def slow(connection: HttpConnection, data: bytes) -> None:
        clock.spend(1e-6)
        receive(connection, data)

    monkeypatch.setattr(HttpConnection, "on_body", slow)
    count = 50_000
    whole = CHUNKED + TINY * count + b"0\r\n\r\n"

    async def answer() -> bytes:
        async with connected(whole) as connection:
            await connection.ask(GET)
            return await body(connection)

    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(answer()) for _ in range(4)]
        await clock.observe(lambda: all(task.done() for task in answers))
    assert [len(task.result()) for task in answers] == [count] * 4
    # Slices that are read, slices that waited, and how far one of each goes beyond its time.
    assert max(clock.slices) <= 2 * (SHARE_SECONDS + SLICE_BYTES / len(TINY) * 1e-6)


async def test_what_surrounds_the_content_of_an_answer_is_limited() -> None:
    padded = b"1;" + b"e" * 1000 + b"\r\nx\r\n"
    async with connected(CHUNKED + padded * 1000 + b"0\r\n\r\n") as connection:
        await connection.ask(GET)
        with pytest.raises(Unreachable, match="framing of the answer is too long"):
            await body(connection)
        assert not connection.reusable


@pytest.mark.parametrize("framing", [b"", b"Content-Length: 3000000\r\n"])
async def test_a_slow_reader_gets_all_of_a_connection_that_was_closed(framing: bytes) -> None:
    response = b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n" + b"x" * 3_000_000
    async with connected(response) as connection:
        await connection.ask(GET)
        size = 0
        async for piece in connection.body:
            size += len(piece)
            for _ in range(5):
                await next_turn()
        assert size == 3_000_000


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_answers_over_tls_are_read_in_small_pieces(
    factory: Callable[[], asyncio.AbstractEventLoop],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identity = pki.ensure(tmp_path, ("127.0.0.1",))
    pieces: list[int] = []
    receive = HttpConnection.data_received

    def counting(connection: HttpConnection, data: bytes) -> None:
        pieces.append(len(data))
        receive(connection, data)

    monkeypatch.setattr(HttpConnection, "data_received", counting)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000)
        writer.close()

    async def download() -> int:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=identity.context)
        tls = ssl.create_default_context(cadata=identity.ca_pem.decode())
        async with server:
            host, port = server.sockets[0].getsockname()
            connection = await open_connection(host, port, tls=tls, server_name=None)
            await connection.ask(GET)
            size = len(await body(connection))
            await asyncio.wait([connection.lost])
        return size

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(download()) == 2_000_000
    assert max(pieces) <= 48 << 10  # what is read at once, and the rest of a record before it


async def test_a_connection_whose_handshake_fails_is_not_kept(tmp_path: Path) -> None:
    identity = pki.ensure(tmp_path, ("127.0.0.1",))
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=identity.context)
    connections: set[HttpConnection] = set()
    async with server:
        host, port = server.sockets[0].getsockname()
        tls = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            await open_connection(host, port, tls=tls, server_name=None, connections=connections)
    assert connections == set()


async def test_a_connection_is_not_used_again_if_the_server_says_more_than_was_asked() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    for surplus in (b"HTTP/1.1 500 x\r\n", answer, answer * 1000):
        async with connected(answer + surplus) as connection:
            await connection.ask(GET)
            assert await body(connection) == b"ok"
            assert (connection.status, connection.reusable) == (200, False)


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


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_local_port_of_a_connection_is_free_for_a_pod_that_wants_it(
    loops: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def take_port() -> None:
        async with connected() as connection:
            _, port = connection.transport.get_extra_info("sockname")
            async with await asyncio.start_server(lambda *_: None, "0.0.0.0", port):
                pass

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(take_port())


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: other\r\n\r\nhi",
    ],
    ids=["whole", "broken off", "upgraded"],
)
async def test_a_connection_that_has_ended_refers_to_itself_no_longer(response: bytes) -> None:
    gc.disable()
    try:
        async with connected(response) as connection:
            await connection.ask(GET)
            with suppress(Unreachable):
                await body(connection)
        gone = weakref.ref(connection)
        del connection
        for _ in range(100):
            await next_turn()
        assert gone() is None
    finally:
        gc.enable()
