"""Requests that mean two things: an endpoint gets one request per connection, as the gateway read
it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from random import Random

import pytest

from kedge.gateway.gateway import LIMITS, Gateway
from kedge.gateway.routing import RouteTarget
from kedge.machinery.clock import SystemClock
from kedge.web.server import HttpServer

SECOND = b"GET /smuggled HTTP/1.1\r\nHost: a.com\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (len(SECOND), SECOND)
BODIES = [
    b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
    b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + CHUNK,
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + CHUNK,
    b"Transfer-Encoding: identity, chunked\r\n\r\n" + CHUNK,
    b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNK,
    b"Transfer-Encoding : chunked\r\n\r\n" + CHUNK,
    b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNK,
    b"Transfer-Encoding: \x0bchunked\r\nContent-Length: 3\r\n\r\n" + CHUNK,
    b"Content-Length: 3\r\nContent-Length: 40\r\n\r\nabc" + SECOND,
    b"Content-Length: 3, 40\r\n\r\nabc" + SECOND,
    b"Content-Length: +3\r\n\r\nabc" + SECOND,
    b"Content-Length: 0x3\r\n\r\nabc" + SECOND,
    b"Content-Length: 3\n\nabc" + SECOND,
    b"X: a\nContent-Length: 3\r\n\r\nabc" + SECOND,
    b"X: a\r\rContent-Length: 3\r\n\r\nabc" + SECOND,
    b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabc" + SECOND,
    b"Connection: Content-Length\r\nContent-Length: 3\r\n\r\nabc" + SECOND,
    b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc" + SECOND,
    b"Content-Length: 5\r\n\r\n" + b"abcde" + SECOND,
]


class Endpoint:
    """Records what each connection receives, and answers the first request."""

    def __init__(self) -> None:
        self.received: list[bytearray] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content = bytearray()
        self.received.append(content)
        with closing(writer):
            content += await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            while piece := await reader.read(1000):
                content += piece

    def target(self, host: str, path: str) -> RouteTarget:
        return RouteTarget([("127.0.0.1", self.port)], False, "n")


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


@pytest.mark.parametrize("rest", BODIES)
@pytest.mark.parametrize("target", [b"/first", b"http://a.com/first"])
async def test_an_endpoint_gets_one_request_of_one_length(
    endpoint: Endpoint, rest: bytes, target: bytes
) -> None:
    gateway = Gateway(endpoint, "http", Random(1))  # type: ignore[arg-type]
    server = HttpServer(gateway.handle, SystemClock(), LIMITS, screen=gateway.screen)
    port = await server.listen("127.0.0.1", 0, None)
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST %b HTTP/1.1\r\nHost: a.com\r\n%b" % (target, rest))
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await server.close(grace=0)
    assert answer.startswith(b"HTTP/1.1 ") or not answer
    for each in map(bytes, endpoint.received):
        head, _, body = each.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        assert not any(line.startswith(b"transfer-encoding") for line in lines)
        lengths = [int(line[16:]) for line in lines if line.startswith(b"content-length: ")]
        assert len(body) == sum(lengths)
        assert len(lengths) <= 1
        assert b"\n" not in head.replace(b"\r\n", b"")
        assert b"/smuggled" not in head or lines[0].startswith(b"get /smuggled ")
