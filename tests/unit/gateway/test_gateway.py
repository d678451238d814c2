"""Requests through the gateway, over loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator
from random import Random

import pytest

from kedge.gateway.gateway import REFUSAL, Gateway, forwarded_headers
from kedge.gateway.routing import RouteTarget
from kedge.machinery.errors import StatusError
from kedge.testing.agents import FakeAgent
from kedge.testing.clock import FakeClock
from kedge.web.message import HttpRequest, Response, Sink
from kedge.web.server import HttpServer


class FakeRouting:
    """Sends every request to the same endpoints."""

    def __init__(self, *endpoints: tuple[str, int]) -> None:
        self.endpoints = [*endpoints]
        self.asked: list[tuple[str, str]] = []

    def target(self, host: str, path: str) -> RouteTarget:
        self.asked.append((host, path))
        if not self.endpoints:
            raise StatusError(503, "ServiceUnavailable", "there are none")
        return RouteTarget(self.endpoints, False)


class ByteSink:
    """Records bytes."""

    paused = False

    def __init__(self) -> None:
        self.content = b""

    def write(self, data: bytes) -> None:
        self.content += data

    async def drain(self) -> None:
        pass


@pytest.fixture
async def server() -> AsyncIterator[FakeAgent]:
    agent = FakeAgent()
    await agent.listen()
    yield agent
    await agent.close()


async def ask(
    routing: FakeRouting, http: HttpRequest, gateway: Gateway | None = None
) -> tuple[Response, bytes]:
    gateway = gateway or Gateway(routing, "http", Random(1))  # type: ignore[arg-type]
    answer = gateway.handle(http)
    response = answer if isinstance(answer, Response) else await answer
    if not callable(response.body):
        assert isinstance(response.body, bytes)
        return response, response.body
    sink: Sink = ByteSink()
    async with asyncio.timeout(10):
        await response.body(sink)
    return response, sink.content  # type: ignore[attr-defined]


def request(method: str = "GET", **headers: str) -> HttpRequest:
    sent = {"host": "A.com:8080", **headers}
    return HttpRequest(method, "/x%20y", "a=b", sent, b"body", peer="1.2.3.4")


async def test_a_request_passes_whole(server: FakeAgent) -> None:
    routing = FakeRouting(("127.0.0.1", server.port))
    response, body = await ask(routing, request("POST", authorization="Bearer x", te="trailers"))
    assert (response.status, body, response.length) == (200, b"said\n", 5)
    assert routing.asked == [("a.com", "/x y")]
    [asked] = server.asked
    assert (asked.method, asked.path, asked.query_string) == ("POST", "/x%20y", "a=b")
    assert (asked.body, asked.headers["host"]) == (b"body", "A.com:8080")
    assert asked.headers["authorization"] == "Bearer x"
    assert "te" not in asked.headers


def test_the_endpoint_learns_who_asked_for_what() -> None:
    believed = {
        "x-forwarded-for": "9.9.9.9",
        "x-forwarded-proto": "gopher",
        "x-forwarded-host": "h",
    }
    headers = forwarded_headers(request(**believed, via="1.0 fred"), "https", "1.1 kedge")
    assert headers == {
        "via": "1.0 fred, 1.1 kedge",
        "x-forwarded-for": "9.9.9.9, 1.2.3.4",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "A.com:8080",
    }


async def test_an_endpoint_that_refuses_connections_is_passed_over(server: FakeAgent) -> None:
    gone = FakeAgent()
    await gone.listen()
    await gone.close()
    routing = FakeRouting(("127.0.0.1", gone.port), ("127.0.0.1", server.port))
    for _ in range(5):
        response, _ = await ask(routing, request())
        assert response.status == 200
    routing.endpoints.pop()
    response, body = await ask(routing, request())
    assert (response.status, body) == (
        502,
        b"no endpoint of the service answers: dial tcp "
        b"127.0.0.1:%d: connect: connection refused\n" % gone.port,
    )


@pytest.fixture
async def ending() -> AsyncIterator[int]:
    """The port of an endpoint that takes connections and closes them."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def test_another_endpoint_answers_if_one_ends_without_a_response(
    server: FakeAgent, ending: int
) -> None:
    routing = FakeRouting(("127.0.0.1", ending), ("127.0.0.1", server.port))
    for method in ("GET", "HEAD", "OPTIONS"):
        for _ in range(5):
            response, _ = await ask(routing, request(method))
            assert response.status == 200


async def test_a_request_that_changes_something_is_sent_once() -> None:
    tried: list[str] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.append((await reader.readline()).decode())
        writer.close()

    also = await asyncio.start_server(take, "127.0.0.1", 0)
    port = also.sockets[0].getsockname()[1]
    response, body = await ask(FakeRouting(*[("127.0.0.1", port)] * 3), request("POST"))
    assert response.status == 502
    assert body.startswith(b"no endpoint of the service answers: ")
    assert len(tried) == 1
    response, _ = await ask(FakeRouting(*[("127.0.0.1", port)] * 3), request("GET"))
    assert response.status == 502
    assert len(tried) == 4
    also.close()
    await also.wait_closed()


async def test_errors_of_the_gateway_are_marked() -> None:
    response, body = await ask(FakeRouting(), request())
    assert (response.status, body) == (503, b"there are none\n")
    assert response.headers == [(REFUSAL, "there are none")]


async def test_a_server_that_ignores_an_upgrade_is_heard(server: FakeAgent) -> None:
    server.answer = Response(404, b"no", "text/plain")
    routing = FakeRouting(("127.0.0.1", server.port))
    response, body = await ask(routing, request(connection="Upgrade", upgrade="h2c"))
    assert (response.status, body) == (404, b"no")


async def test_an_upgrade_takes_the_connection_over(server: FakeAgent) -> None:
    routing = FakeRouting(("127.0.0.1", server.port))
    listener = HttpServer(Gateway(routing, "http", Random(1)).handle, FakeClock())  # type: ignore[arg-type]
    port = await listener.listen("127.0.0.1", 0, None)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(5) == b"HELLO"
    writer.close()
    await writer.wait_closed()
    listener.stop_listening()
    for connection in list(listener.connections):
        connection.abort()
    for _ in range(10):
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)


async def test_a_gateway_that_is_its_own_endpoint_is_noticed(server: FakeAgent) -> None:
    routing = FakeRouting(("127.0.0.1", server.port))
    gateway = Gateway(routing, "http", Random(1))  # type: ignore[arg-type]
    await ask(routing, request(), gateway)
    again = gateway.handle(request(via=server.asked[0].headers["via"]))
    assert isinstance(again, Response)
    assert again.status == 508


def test_bodies_of_refused_requests_are_not_read() -> None:
    gateway = Gateway(FakeRouting(), "http", Random(1))  # type: ignore[arg-type]
    refusal = gateway.screen(request())
    assert refusal is not None
    assert refusal.status == 503
    gateway = Gateway(FakeRouting(("127.0.0.1", 1)), "http", Random(1))  # type: ignore[arg-type]
    assert gateway.screen(request()) is None


@pytest.mark.parametrize(
    "host",
    ["", "a.com,b.com", "a.com, a.com", "user@a.com", "a.com:80:80", "a b", "[::1"],
)
async def test_a_request_without_exactly_one_host_is_refused(host: str) -> None:
    routing = FakeRouting(("127.0.0.1", 1))
    response, _ = await ask(routing, request(host=host))
    assert (response.status, routing.asked) == (400, [])


async def test_a_service_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kedge.gateway.gateway.ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        response, body = await ask(FakeRouting(silent.getsockname()), request())
    assert response.status == 504
    assert b"did not answer within" in body


async def test_a_namespace_cannot_use_up_the_connections_of_others(
    server: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kedge.gateway.gateway.PER_NAMESPACE", 2)
    routing = FakeRouting(("127.0.0.1", server.port))
    gateway = Gateway(routing, "http", Random(1))  # type: ignore[arg-type]
    unread = []
    for _ in range(2):
        answer = gateway.handle(request())
        assert not isinstance(answer, Response)
        unread.append(await answer)
    response, body = await ask(routing, request(), gateway)
    assert response.status == 503
    assert b"too many requests to services of namespace" in body
    for each in unread:
        assert callable(each.body)
        await each.body(ByteSink())
    assert (await ask(routing, request(), gateway))[0].status == 200
    assert (await ask(routing, request("HEAD"), gateway))[0].status == 200
    assert not gateway._under_way
