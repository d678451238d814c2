"""The HTTP door, over loopback sockets where the kernel matters and a fake transport where not."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.errors import StatusError
from kedge.testing.clock import BusyClock, FakeClock
from kedge.web import duplex
from kedge.web.connection_limits import ConnectionLimits
from kedge.web.duplex import Duplex
from kedge.web.http2_refusal import HTTP2_REFUSAL
from kedge.web.limits import ServerLimits
from kedge.web.message import HttpRequest, Response, Sink, asks_upgrade
from kedge.web.output import Output
from kedge.web.response_head import GZIP_FROM, WHOLE_UP_TO
from kedge.web.server import HttpServer, log_loop_error
from kedge.web.server_connection import ServerConnection

PATIENCE = 60
"""Seconds of real time after which a test that waits for the network has failed."""


class FakeCaller(NamedTuple):
    """A caller."""

    tenant: str
    is_privileged: bool = False


class Site:
    """Answers by path, and remembers who asked."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.release = asyncio.Event()
        self.stream_ended = asyncio.Event()
        self.stream_began = asyncio.Event()

    def handle(self, request: HttpRequest) -> Response | Awaitable[Response]:
        self.requests.append(request)
        match request.path:
            case "/later":
                return self.later()
            case "/stream":
                return Response(200, self.stream)
            case "/pieces":
                return Response(200, iter([b"x" * 100_000, b"y" * 100_000]))
            case "/short-pieces":
                return Response(200, iter([b"short"]))
            case "/large":
                return Response(200, b"z" * GZIP_FROM)
            case "/huge":
                return Response(200, b"h" * (WHOLE_UP_TO + 1))
            case "/endless":
                return Response(200, (b"w" * 65536 for _ in iter(int, 1)))
            case "/known":
                request.identified(FakeCaller("alice"))
            case "/bug":
                raise RuntimeError("boom")
            case "/measured":
                return Response(200, self.measured, "", length=6)
            case "/empty":
                return Response(204, b"")
            case "/unchanged":
                return Response(304, b"", headers=[("ETag", '"x"')])
        return Response(200, request.body or request.path.encode(), "text/plain")

    async def measured(self, sink: Sink) -> None:
        sink.write(b"abc")
        sink.write(b"def")

    def handle_known(self, request: HttpRequest) -> Response | Awaitable[Response]:
        """As servers do that answer errors themselves."""
        try:
            return self.handle(request)
        except StatusError as error:
            return Response(error.code, b"")

    async def later(self) -> Response:
        await self.release.wait()
        return Response(200, b"later")

    async def stream(self, sink: Sink) -> None:
        sink.write(b"one\n")
        self.stream_began.set()
        try:
            await self.release.wait()
            sink.write(b"two\n")
        finally:
            self.stream_ended.set()


class Wire:
    """A client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def get(self, path: str, *headers: str, method: str = "GET") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]
        self.send("\r\n".join(lines).encode())

    async def answer(self, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(PATIENCE):
            status, headers = await self.head()
            if method == "HEAD" or status in (204, 304):
                return status, headers, b""
            if "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
                return status, headers, body
            chunks = [chunk async for chunk in self.chunks()]
            return status, headers, b"".join(chunks)

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(PATIENCE):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines[1:] if line]
        return int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            async with asyncio.timeout(PATIENCE):
                size = int(await self.reader.readline(), 16)
                data = await self.reader.readexactly(size)
                assert await self.reader.readexactly(2) == b"\r\n"
            if not size:
                return
            yield data

    async def rest(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read()


@asynccontextmanager
async def listening(
    site: Site, clock: FakeClock | None = None, limits: ServerLimits | None = None
) -> AsyncIterator[tuple[HttpServer, Wire]]:
    server = HttpServer(site.handle, clock or FakeClock(), limits)
    port = await server.listen("127.0.0.1", 0, None)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield server, Wire(reader, writer)
    finally:
        await hang_up(writer)
        for connection in list(server.connections):
            connection.abort()
        closing = asyncio.ensure_future(server.close())
        await server.clock.advance(10)  # type: ignore[attr-defined]
        await closing


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.fixture
async def site() -> Site:
    return Site()


async def test_a_connection_serves_many_requests(site: Site) -> None:
    async with listening(site) as (_, wire):
        for path in ("/a", "/b"):
            wire.get(path)
            status, headers, body = await wire.answer()
            assert (status, body) == (200, path.encode())
            assert headers["content-type"] == "text/plain"
            assert "date" in headers
            assert "connection" not in headers


async def test_pipelined_requests_are_answered_in_order(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/later")
        for number in range(30):
            wire.get(f"/{number}")
        site.release.set()
        bodies = [(await wire.answer())[2] for _ in range(31)]
        assert bodies == [b"later", *(f"/{number}".encode() for number in range(30))]


async def test_only_the_last_of_pipelined_answers_announces_the_end(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/later")
        wire.get("/last", "Connection: close")
        site.release.set()
        first, second = await wire.answer(), await wire.answer()
        assert "connection" not in first[1]
        assert second[1]["connection"] == "close"
        assert await wire.rest() == b""


async def test_a_chunked_body_arrives_whole(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/echo", "Transfer-Encoding: chunked", method="POST")
        wire.send(b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nAuthorization: Bearer sneaky\r\n\r\n")
        assert (await wire.answer())[2] == b"abcdefg"
        assert "authorization" not in site.requests[0].headers


async def test_who_asks_whether_to_continue_is_told_so(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/echo", "Content-Length: 3", "Expect: 100-continue", method="POST")
        assert await wire.head() == (100, {})
        wire.send(b"abc")
        assert (await wire.answer())[2] == b"abc"


async def test_a_body_that_is_too_long_is_refused_before_it_is_read(site: Site) -> None:
    async with listening(site, limits=ServerLimits(body_bytes=10)) as (_, wire):
        wire.get("/echo", "Content-Length: 11", "Expect: 100-continue", method="POST")
        status, headers, body = await wire.answer()
        assert (status, headers["connection"]) == (413, "close")
        assert json.loads(body)["reason"] == "RequestEntityTooLarge"
        assert site.requests == []


async def test_somebody_may_be_told_what_was_refused(site: Site) -> None:
    refused: list[tuple[str, int]] = []
    async with listening(site, limits=ServerLimits(body_bytes=10)) as (server, wire):
        server.refused = lambda target, error: refused.append((target, error.code))
        wire.get("/echo?x=1", "Content-Length: 11", method="POST")
        assert (await wire.answer())[0] == 413
    assert refused == [("/echo?x=1", 413)]


async def test_a_chunked_body_that_grows_too_long_is_refused(site: Site) -> None:
    async with listening(site, limits=ServerLimits(body_bytes=10)) as (_, wire):
        wire.get("/echo", "Transfer-Encoding: chunked", method="POST")
        wire.send(b"6\r\nabcdef\r\n6\r\nabcdef\r\n")
        assert (await wire.answer())[0] == 413


async def test_a_refused_client_can_read_why_although_it_still_sends(site: Site) -> None:
    clock = FakeClock()
    async with listening(site, clock, ServerLimits(body_bytes=10)) as (server, wire):
        wire.get("/echo", f"Content-Length: {1 << 20}", method="POST")
        wire.send(b"x" * (1 << 20))
        assert (await wire.answer())[0] == 413
        [connection] = server.connections
        connection.expire(clock.monotonic() + 3)
        async with asyncio.timeout(PATIENCE):
            while server.connections:
                await turn()


async def turn() -> None:
    """Let the event loop look at its sockets once."""
    await asyncio.get_running_loop().run_in_executor(None, int)


async def test_huge_heads_are_refused(site: Site) -> None:
    limits = ServerLimits(head_bytes=1000, headers=5)
    for head in (
        b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\na: " + b"x" * 2000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % i for i in range(6)) + b"\r\n",
    ):
        async with listening(site, limits=limits) as (_, wire):
            wire.send(head)
            assert (await wire.answer())[0] == 431
    assert site.requests == []


async def test_http2_is_refused_in_http2(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert await wire.reader.readexactly(len(HTTP2_REFUSAL)) == HTTP2_REFUSAL
        wire.send(b"GET / HTTP/1.1\r\n\r\n")
    assert site.requests == []


async def test_malformed_requests_get_an_error_and_the_end(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.send(b"BREW /pot HTCPCP/1.0\r\n\r\n")
        status, headers, body = await wire.answer()
        assert (status, headers["connection"]) == (400, "close")
        assert json.loads(body)["message"].startswith("malformed HTTP request")


async def test_garbage_after_a_request_does_not_spoil_its_answer(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/later")
        wire.send(b"\x00\x01garbage\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            while not site.requests:
                await turn()
        await turn()
        site.release.set()
        assert (await wire.rest()).endswith(b"\r\n\r\nlater")


async def test_the_host_of_an_absolute_target_counts(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("http://a.com:80/x?y=z", "Host: b.com")
        assert (await wire.answer())[0] == 200
    [asked] = site.requests
    assert (asked.headers["host"], asked.path, asked.query_string) == ("a.com:80", "/x", "y=z")


async def test_large_answers_are_packed_if_the_client_unpacks(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/large", "Accept-Encoding: deflate, gzip")
        _, headers, body = await wire.answer()
        assert headers["content-encoding"] == "gzip"
        assert gzip.decompress(body) == b"z" * GZIP_FROM
        for coding in ("identity", "gzip;q=0", ""):
            wire.get("/large", f"Accept-Encoding: {coding}")
            _, headers, body = await wire.answer()
            assert "content-encoding" not in headers
            assert body == b"z" * GZIP_FROM


async def test_huge_answers_are_written_in_pieces_with_their_length(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    write = Output.write

    def noted(output: Output, *parts: bytes) -> None:
        written.append(sum(map(len, parts)))
        write(output, *parts)

    monkeypatch.setattr(Output, "write", noted)
    async with listening(site) as (_, wire):
        wire.get("/huge")
        _, headers, body = await wire.answer()
        assert headers["content-length"] == str(WHOLE_UP_TO + 1)
        assert body == b"h" * (WHOLE_UP_TO + 1)
        assert max(written) <= 256 << 10


async def test_answers_in_pieces_are_chunked_or_packed(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/pieces")
        _, headers, body = await wire.answer()
        assert headers["transfer-encoding"] == "chunked"
        assert body == b"x" * 100_000 + b"y" * 100_000
        wire.get("/pieces", "Accept-Encoding: gzip")
        _, headers, packed = await wire.answer()
        assert headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed) == body


async def test_a_short_answer_in_pieces_is_sent_as_it_is(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/short-pieces", "Accept-Encoding: gzip")
        _, headers, body = await wire.answer()
        assert (headers["content-length"], body) == ("5", b"short")
        assert "content-encoding" not in headers


async def test_answers_without_a_body_have_none(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/a", method="HEAD")
        status, headers, _ = await wire.answer("HEAD")
        assert (status, headers["content-length"]) == (200, "2")
        for path, code in (("/empty", 204), ("/unchanged", 304)):
            wire.get(path)
            status, headers, _ = await wire.answer()
            assert status == code
            assert "content-length" not in headers
        wire.get("/after")
        assert (await wire.answer())[2] == b"/after"


async def test_a_stream_of_known_length_is_not_chunked(site: Site) -> None:
    async with listening(site) as (_, wire):
        for _ in range(2):
            wire.get("/measured")
            status, headers, body = await wire.answer()
            assert (status, body, headers["content-length"]) == (200, b"abcdef", "6")
            assert not {"transfer-encoding", "content-type"} & headers.keys()
        wire.get("/pieces")
        assert len((await wire.answer())[2]) == 200_000


async def test_old_clients_get_no_chunks(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.send(b"GET /pieces HTTP/1.0\r\n\r\n")
        _, headers = await wire.head()
        assert "transfer-encoding" not in headers
        assert await wire.rest() == b"x" * 100_000 + b"y" * 100_000


async def test_a_target_may_be_spelled_as_proxies_do(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("http://example.org:80/a%20b?x=1")
        assert (await wire.answer())[0] == 200
        assert (site.requests[0].path, site.requests[0].query.get("x")) == ("/a%20b", "1")


async def test_repeated_headers_are_joined(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/", "Accept: a", "ACCEPT: b")
        await wire.answer()
        assert site.requests[0].headers["accept"] == "a,b"


async def test_who_asks_for_another_protocol_is_answered_in_this_one(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/a", "Connection: Upgrade", "Upgrade: websocket")
        status, headers, body = await wire.answer()
        assert (status, headers["connection"], body) == (200, "close", b"/a")
        assert await wire.rest() == b""


async def test_a_bug_is_a_500_and_the_connection_lives(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/bug")
        assert (await wire.answer())[0] == 500
        wire.get("/a")
        assert (await wire.answer())[0] == 200


async def test_half_closed_clients_still_get_their_answer(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/later")
        wire.writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            while not site.requests:
                await turn()
        await turn()
        site.release.set()
        assert (await wire.answer())[2] == b"later"
        assert await wire.rest() == b""


async def test_a_stream_is_sent_as_it_is_written(site: Site) -> None:
    async with listening(site) as (_, wire):
        wire.get("/stream")
        await wire.head()
        chunks = wire.chunks()
        assert await anext(chunks) == b"one\n"
        site.release.set()
        assert await anext(chunks) == b"two\n"
        assert [chunk async for chunk in chunks] == []
        wire.get("/after")
        assert (await wire.answer())[2] == b"/after"


async def test_a_stream_ends_when_the_client_goes(site: Site) -> None:
    async with listening(site) as (server, wire):
        wire.get("/stream")
        await wire.head()
        wire.writer.close()
        async with asyncio.timeout(PATIENCE):
            await site.stream_ended.wait()
            while server.connections:
                await turn()


async def test_a_client_that_takes_nothing_is_cut_off(site: Site) -> None:
    clock = FakeClock()
    async with listening(site, clock) as (server, wire):
        wire.get("/endless")
        [connection] = server.connections or [None]
        async with asyncio.timeout(PATIENCE):
            while connection is None or not connection._output.paused:
                await turn()
                [connection] = server.connections or [None]
            before = -1
            while before != (before := buffered(connection)):
                await turn()
        connection.expire(clock.monotonic() + 59)
        assert server.connections
        connection.expire(clock.monotonic() + 200)
        async with asyncio.timeout(PATIENCE):
            while server.connections:
                await turn()


def buffered(connection: ServerConnection) -> int:
    return connection._transport.get_write_buffer_size()


async def test_close_lets_a_request_finish_and_cuts_streams(site: Site) -> None:
    clock = FakeClock()
    server = HttpServer(site.handle, clock)
    port = await server.listen("127.0.0.1", 0, None)
    request = Wire(*await asyncio.open_connection("127.0.0.1", port))
    stream = Wire(*await asyncio.open_connection("127.0.0.1", port))
    idle = Wire(*await asyncio.open_connection("127.0.0.1", port))
    request.get("/later")
    stream.get("/stream")
    await stream.head()
    async with asyncio.timeout(PATIENCE):
        while len(server.connections) < 3 or len(site.requests) < 2:
            await turn()
    closing = asyncio.ensure_future(server.close())
    await clock.advance(0)
    assert await stream.rest() == b"4\r\none\n\r\n0\r\n\r\n"
    assert await idle.rest() == b""
    assert not closing.done()
    site.release.set()
    status, headers, body = await request.answer()
    assert (status, headers["connection"], body) == (200, "close", b"later")
    async with asyncio.timeout(PATIENCE):
        while server.connections:
            await turn()
    await clock.advance(1)
    assert closing.done()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    for wire in (request, stream, idle):
        await hang_up(wire.writer)


async def test_close_does_not_wait_for_ever(site: Site) -> None:
    clock = FakeClock()
    server = HttpServer(site.handle, clock)
    port = await server.listen("127.0.0.1", 0, None)
    wire = Wire(*await asyncio.open_connection("127.0.0.1", port))
    wire.get("/later")
    async with asyncio.timeout(PATIENCE):
        while not site.requests:
            await turn()
    closing = asyncio.ensure_future(server.close(grace=5))
    await clock.advance(4)
    assert not closing.done()
    await clock.advance(2)
    assert closing.done()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await wire.answer()
    await hang_up(wire.writer)


# Without a kernel.


class FakeTransport(asyncio.Transport):
    """Remembers what is written and whether anybody closed it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def connected(
    site: Site, clock: FakeClock, limits: ServerLimits | None = None
) -> tuple[ServerConnection, FakeTransport]:
    connection = ServerConnection(HttpServer(site.handle, clock, limits))
    transport = FakeTransport()
    connection.connection_made(cast(asyncio.Transport, transport))
    return connection, transport


async def test_a_head_or_body_that_never_ends_runs_out_of_time(site: Site) -> None:
    for first in (b"GE", b"GET /x", b"POST / HTTP/1.1\r\na: b\r\n"):
        connection, transport = connected(site, FakeClock())
        connection.data_received(b"GET /known HTTP/1.1\r\n\r\n" + first)
        await turn()
        connection.expire(15)
        assert not transport.closed
        connection.expire(16)
        assert transport.closed
    connection, transport = connected(site, FakeClock())
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab")
    connection.expire(60)
    assert not transport.closed
    connection.expire(61)
    assert transport.closed


async def test_dribbling_does_not_buy_time(site: Site) -> None:
    clock = FakeClock()
    connection, transport = connected(site, clock)
    connection.data_received(b"GET /")
    for _ in range(10):
        await clock.advance(2)
        connection.data_received(b"x")
        connection.expire(clock.monotonic())
    assert transport.closed


async def test_idle_connections_are_closed_in_the_end_those_of_strangers_soon(site: Site) -> None:
    for path, seconds in ((b"/known", 180), (b"/", 10)):
        connection, transport = connected(site, FakeClock())
        connection.data_received(b"GET %b HTTP/1.1\r\n\r\n" % path)
        connection.expire(seconds)
        assert not transport.closed
        connection.expire(seconds + 1)
        assert transport.closed


async def test_a_first_request_has_little_time_however_it_comes(site: Site) -> None:
    for first in (b"", b"GE", b"GET / HTTP/1.1\r\na: "):
        connection, transport = connected(site, FakeClock())
        connection.data_received(first)
        connection.expire(10)
        assert not transport.closed
        connection.expire(11)
        assert transport.closed


async def test_a_request_that_is_being_answered_has_time(site: Site) -> None:
    connection, transport = connected(site, FakeClock())
    connection.data_received(b"GET /later HTTP/1.1\r\n\r\n")
    await turn()
    connection.expire(100_000)
    assert not transport.closed
    site.release.set()
    await turn()
    assert transport.written.endswith(b"later")
    connection.connection_lost(None)


async def test_an_endless_header_does_not_fill_the_memory(site: Site) -> None:
    connection, transport = connected(site, FakeClock(), ServerLimits(head_bytes=1000))
    connection.data_received(b"GET / HTTP/1.1\r\na: ")
    for _ in range(20):
        connection.data_received(b"x" * 100)
    await turn()
    assert b" 431 " in transport.written


async def test_too_many_pipelined_requests_stop_the_reading(site: Site) -> None:
    connection, transport = connected(site, FakeClock())
    connection.data_received(b"GET /later HTTP/1.1\r\n\r\n" * 9)
    assert not transport.reading
    site.release.set()
    for _ in range(30):
        await turn()
    assert transport.reading
    assert transport.written.count(b"later") == 9
    connection.connection_lost(None)


_LINES = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /echo HTTP/1.1\r\n",
        b"HEAD /x HTTP/1.0\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Content-Length: -1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\n",
        b"5\r\nabcde\r\n",
        b"0\r\n\r\n",
        b": x\r\n",
        b"\x00",
        b"a" * 50,
        b"CONNECT x:1 HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
    ]
)


@given(
    st.lists(_LINES | st.binary(max_size=30), max_size=12),
    st.lists(st.integers(0, 400), max_size=6),
)
async def test_no_bytes_break_the_door(parts: list[bytes], cuts: list[int]) -> None:
    clock = FakeClock()
    connection, transport = connected(Site(), clock, ServerLimits(head_bytes=300, body_bytes=40))
    data = b"".join(parts)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    for start, end in pairwise(edges):
        connection.data_received(data[start:end])
    if not connection.eof_received():
        transport.close()
    for _ in range(3):
        await clock.advance(0)
    assert b" 500 " not in transport.written
    connection.expire(1e9)
    assert transport.closed
    connection.connection_lost(None)


async def test_a_sweep_renews_the_date_and_ends_what_is_out_of_time(site: Site) -> None:
    clock = FakeClock()
    async with listening(site, clock) as (server, wire):
        wire.get("/known")
        first = (await wire.answer())[1]["date"]
        sweeping = asyncio.ensure_future(server.sweep())
        await clock.advance(100)
        wire.get("/b")
        second = (await wire.answer())[1]["date"]
        assert (first, second) == (
            "Tue, 01 Jan 2030 00:00:00 GMT",
            "Tue, 01 Jan 2030 00:01:40 GMT",
        )
        await clock.advance(182)
        assert await wire.rest() == b""
        sweeping.cancel()


async def test_a_response_to_head_has_no_body_in_pieces_either() -> None:
    async with listening(Site()) as (_, wire):
        wire.send(b"HEAD /pieces HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers = await wire.head()
        assert (status, headers.get("transfer-encoding")) == (200, "chunked")
        wire.get("/a")
        assert (await wire.answer())[2] == b"/a"


# Connections that change their protocol.


async def shouted(peer: Duplex) -> None:
    peer.write(b"hello\n")
    while data := await peer.read():
        peer.write(data.upper())
        await peer.drain()


class Shouting(Site):
    """Offers a protocol that is HTTP no more."""

    def handle(self, request: HttpRequest) -> Response:
        if not asks_upgrade(request.headers, "shout"):
            return Response(400, b"no")
        headers = [("Connection", "Upgrade"), ("Upgrade", "shout")]
        return Response(101, headers=headers, take_over=shouted)


ASKED = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n"


async def test_a_connection_that_is_taken_over_carries_raw_bytes_both_ways() -> None:
    async with listening(Shouting()) as (_, wire):
        wire.send(ASKED + b"too early but ")
        status, headers = await wire.head()
        assert (status, headers["upgrade"], headers["connection"]) == (101, "shout", "Upgrade")
        assert "content-type" not in headers
        assert "content-length" not in headers
        wire.send(b"not lost\n")
        async with asyncio.timeout(PATIENCE):
            assert await wire.reader.readline() == b"hello\n"
            assert await wire.reader.readline() == b"TOO EARLY BUT NOT LOST\n"
            wire.writer.write_eof()
            assert await wire.reader.read() == b""


async def test_who_takes_over_has_no_deadline_and_slow_readers_are_waited_for() -> None:
    async with listening(Shouting()) as (server, wire):
        wire.send(ASKED)
        await wire.head()
        [connection] = server.connections
        connection.expire(server.clock.monotonic() + 1_000_000)
        wire.send(b"still here\n")
        async with asyncio.timeout(PATIENCE):
            await wire.reader.readline()
            assert await wire.reader.readline() == b"STILL HERE\n"


async def test_a_request_for_a_protocol_that_is_not_offered_is_answered_and_closed() -> None:
    async with listening(Shouting()) as (_, wire):
        wire.send(ASKED.replace(b"shout", b"h2c") + b"PRI * HTTP/2.0\r\n")
        status, headers, body = await wire.answer()
        assert (status, headers["connection"], body) == (400, "close", b"no")
        async with asyncio.timeout(PATIENCE):
            assert await wire.reader.read() == b""


@pytest.mark.parametrize("padding", [b"\xa0", b"\x0c", b"\t;"])
async def test_only_what_the_parser_takes_for_an_upgrade_is_one(padding: bytes) -> None:
    """Otherwise the handler would speak another protocol on a connection that carries HTTP."""
    async with listening(Shouting()) as (_, wire):
        wire.send(ASKED.replace(b"Connection: Upgrade", b"Connection: Upgrade" + padding))
        status, _, body = await wire.answer()
        assert status == 400
        assert body.startswith(b"no") or b"malformed" in body


async def test_a_server_that_closes_hangs_up_on_those_who_took_over() -> None:
    async with listening(Shouting()) as (server, wire):
        wire.send(ASKED)
        await wire.head()
        [connection] = server.connections
        connection.finish()
        async with asyncio.timeout(PATIENCE):
            assert await wire.reader.read() == b"hello\n"


# What one peer can do to the others.


async def test_pipelined_requests_are_answered_a_few_per_turn(site: Site) -> None:
    connection, transport = connected(site, FakeClock())
    connection.data_received(b"GET /x HTTP/1.1\r\n\r\n" * 1000)
    assert len(site.requests) == 1
    assert not transport.reading
    seen = []
    while len(site.requests) < 1000:
        before = len(site.requests)
        await duplex.turn()
        seen.append(len(site.requests) - before)
    assert max(seen) <= 32
    for _ in range(3):
        await turn()
    assert transport.reading
    assert transport.written.count(b"HTTP/1.1 200 OK") == 1000
    connection.connection_lost(None)


async def test_requests_of_many_connections_do_not_fill_one_turn(site: Site) -> None:
    """After a pause, all peers have sent something; each request may take milliseconds."""
    clock = BusyClock()
    handled: list[str] = []

    def handle(request: HttpRequest) -> Response:
        clock.spend(0.005)
        handled.append(request.path)
        return Response(200, b"ok")

    server = HttpServer(handle, clock)
    connections = [ServerConnection(server) for _ in range(100)]
    for each in connections:
        each.connection_made(cast(asyncio.Transport, FakeTransport()))
    for number, each in enumerate(connections):
        each.data_received(b"GET /%d HTTP/1.1\r\n\r\n" % number)
    seen = [len(handled)]
    while len(handled) < 100:
        await duplex.turn()
        seen.append(len(handled))
    assert max(after - before for before, after in pairwise((0, *seen))) <= 5
    assert handled == [f"/{number}" for number in range(100)]
    for each in connections:
        each.connection_lost(None)


async def test_connections_take_turns(site: Site) -> None:
    server = HttpServer(site.handle, FakeClock())
    order: list[int] = []
    greedy = []
    for number in range(3):
        connection = ServerConnection(server)
        connection.connection_made(cast(asyncio.Transport, FakeTransport()))
        connection.data_received(b"GET /%d HTTP/1.1\r\n\r\n" % number * 50)
        greedy.append(connection)
    while len(site.requests) < 150:
        await turn()
    order = [int(request.path[1:]) for request in site.requests]
    assert {*order[3:9]} == {0, 1, 2}
    assert max(order.index(number, 60) for number in range(3)) < 66
    for connection in greedy:
        connection.connection_lost(None)


async def test_a_request_that_waits_in_a_queue_holds_back_no_busy_tenant(site: Site) -> None:
    """The request waits for others, which must not wait for it."""
    clock = FakeClock()
    server = HttpServer(site.handle, clock)
    connection = ServerConnection(server)
    connection.connection_made(cast(asyncio.Transport, FakeTransport()))
    connection.data_received(b"GET /later HTTP/1.1\r\n\r\n")
    (request,) = site.requests
    busy = server.turns.load("busy")
    busy.spend(clock.monotonic() - 1, clock.monotonic())
    assert request.on_queued is not None
    assert server.turns.pause(busy) is not None
    request.on_queued(True)
    while (pause := server.turns.pause(busy)) is not None:
        await pause
    request.on_queued(False)
    assert server.turns.pause(busy) is not None
    connection.connection_lost(None)


async def test_who_does_not_read_is_answered_no_further(site: Site) -> None:
    connection, _ = connected(site, FakeClock())
    connection.pause_writing()
    connection.data_received(b"GET /x HTTP/1.1\r\n\r\n" * 100)
    for _ in range(5):
        await turn()
    assert site.requests == []
    connection.resume_writing()
    for _ in range(20):
        await turn()
    assert len(site.requests) == 100
    connection.connection_lost(None)


def screened(
    site: Site, clock: FakeClock, limits: ServerLimits | None = None
) -> tuple[ServerConnection, FakeTransport]:
    """A connection to a server that reads the bodies of those only who give a name."""

    def screen(request: HttpRequest) -> Response | None:
        return None if "name" in request.headers else Response(401, b"who?")

    connection = ServerConnection(HttpServer(site.handle, clock, limits, screen=screen))
    transport = FakeTransport()
    connection.connection_made(cast(asyncio.Transport, transport))
    return connection, transport


async def test_a_body_is_read_only_of_those_who_may_send_one(site: Site) -> None:
    connection, transport = screened(site, FakeClock())
    connection.data_received(b"POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nab")
    await turn()
    assert transport.written.startswith(b"HTTP/1.1 401 ")
    assert b"Connection: close" in transport.written
    connection.data_received(b"cde")
    await turn()
    assert site.requests == []
    connection, transport = screened(site, FakeClock())
    connection.data_received(b"POST /x HTTP/1.1\r\nName: n\r\nContent-Length: 5\r\n\r\nab")
    connection.data_received(b"cde")
    await turn()
    assert site.requests[0].body == b"abcde"


async def test_a_request_that_arrives_whole_is_checked_once(site: Site) -> None:
    screenings: list[HttpRequest] = []
    server = HttpServer(site.handle, FakeClock(), screen=screenings.append)
    connection = ServerConnection(server)
    connection.connection_made(cast(asyncio.Transport, FakeTransport()))
    body = b"x" * 25_000
    whole = b"POST /x HTTP/1.1\r\nContent-Length: 25000\r\n\r\n" + body
    connection.data_received(whole)
    # In the same turn: it does not wait for others either.
    assert [each.body for each in site.requests] == [body]
    assert screenings == []
    connection.data_received(whole[:-1])
    await turn()
    connection.data_received(whole[-1:])
    await turn()
    assert len(site.requests) == 2
    assert len(screenings) == 1
    assert server.bodies.size == 0


async def test_a_body_behind_other_requests_waits_to_be_let_in(site: Site) -> None:
    connection, transport = screened(site, FakeClock())
    connection.data_received(
        b"GET /later HTTP/1.1\r\n\r\nPOST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"
    )
    await turn()
    assert not transport.reading
    assert transport.written == b""
    site.release.set()
    for _ in range(4):
        await turn()
    assert transport.written.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 401 " in transport.written
    assert transport.reading  # what still comes is thrown away
    connection.connection_lost(None)


async def test_bodies_share_a_budget(site: Site) -> None:
    limits = ServerLimits(body_bytes=100_000, bodies_bytes=150_000)
    server = HttpServer(site.handle, FakeClock(), limits)
    peers = []
    for _ in range(2):
        connection, transport = ServerConnection(server), FakeTransport()
        connection.connection_made(cast(asyncio.Transport, transport))
        peers.append((connection, transport))
        connection.data_received(b"POST /x HTTP/1.1\r\nContent-Length: 90000\r\n\r\n")
        connection.data_received(b"x" * 80_000)
        await turn()
    (_, first), (second, transport) = peers
    assert first.written.startswith(b"HTTP/1.1 429 ")
    assert b"Retry-After: 1\r\n" in first.written
    second.data_received(b"x" * 10_000)
    await turn()
    assert transport.written.startswith(b"HTTP/1.1 200 ")
    assert server.bodies.size == 0


async def test_who_has_too_many_connections_is_told_so(site: Site) -> None:
    connection_limits = ConnectionLimits(total=20, strangers=5, per_tenant=1, reserve=1)
    server = HttpServer(site.handle_known, FakeClock(), connection_limits=connection_limits)
    for expected in (200, 429):
        connection, transport = ServerConnection(server), FakeTransport()
        connection.connection_made(cast(asyncio.Transport, transport))
        connection.data_received(b"GET /known HTTP/1.1\r\n\r\n")
        await turn()
        assert transport.written.startswith(b"HTTP/1.1 %d " % expected)
        assert transport.closed is (expected == 429)


async def test_connections_are_counted_before_they_say_anything(site: Site) -> None:
    connection_limits = ConnectionLimits(total=20, strangers=2, stranger_seconds=0.0)
    server = HttpServer(site.handle, FakeClock(), connection_limits=connection_limits)
    port = await server.listen("127.0.0.1", 0, None)
    wires = [Wire(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(4)]
    assert await wires[0].rest() == b""
    assert await wires[1].rest() == b""
    wires[3].get("/a")
    assert (await wires[3].answer())[0] == 200
    for wire in wires:
        await hang_up(wire.writer)
    server.stop_listening()


async def test_errors_of_the_loop_are_one_line_unless_the_connection_was_closed_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    closed = RuntimeError("unable to perform operation on <TCPTransport>; the handler is closed")
    log_loop_error(loop, {"message": "Fatal error on SSL protocol", "exception": closed})
    assert not caplog.records
    log_loop_error(loop, {"message": "Fatal error\nmore", "exception": RuntimeError("defect")})
    (record,) = caplog.records
    assert record.getMessage() == "Fatal error: RuntimeError('defect')"
