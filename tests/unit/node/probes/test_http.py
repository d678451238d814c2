import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.api.core_v1.pod.probe import HTTPGetAction, HTTPHeader
from kedge.machinery.clock import SystemClock
from kedge.node.probes.http import ANSWER_SECONDS, get, probe_http, request_for
from kedge.node.probes.outcome import ProbeError, ProbeOutcome, ProbeResult
from kedge.testing.clock import FakeClock
from kedge.testing.pods import new_pod

CONTAINER = new_pod(container={"ports": [{"name": "web", "containerPort": 8080}]}).spec.containers[
    0
]

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server:
    """Answers every request with the next of its answers, and remembers what was asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.stays_open = False

    async def is_asked(self) -> None:
        """Return when a request has arrived."""
        while not self.asked:
            await SystemClock().sleep(0.005)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):
            self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self.answers:
            writer.write(self.answers.pop(0))
            await writer.drain()
            if not self.stays_open:
                writer.close()


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[Server]:
    made = Server(*answers)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    for writer in made.writers:
        writer.transport.abort()
    server.close()
    await server.wait_closed()


def answer(status: str, body: str = "", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


async def probe(server: Server, **action: Any) -> ProbeOutcome:
    made = HTTPGetAction(port=server.port, **action)
    return await probe_http(made, CONTAINER, "127.0.0.1", SystemClock(), 5)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("200 OK", ProbeOutcome(ProbeResult.SUCCESS, "hi")),
        ("204 No Content", ProbeOutcome(ProbeResult.SUCCESS, "hi")),
        (
            "404 Not Found",
            ProbeOutcome(ProbeResult.FAILURE, "HTTP probe failed with statuscode: 404"),
        ),
        ("500 Oops", ProbeOutcome(ProbeResult.FAILURE, "HTTP probe failed with statuscode: 500")),
        (
            "304 Not Modified",
            ProbeOutcome(ProbeResult.WARNING, "Probe terminated redirects, Response body: hi"),
        ),
    ],
)
async def test_the_status_code_decides(status: str, expected: ProbeOutcome) -> None:
    async with serving(answer(status, "hi")) as server:
        assert await probe(server) == expected


async def test_what_is_asked_is_as_the_action_says() -> None:
    async with serving(answer("200 OK")) as server:
        headers = [HTTPHeader(name="X-A", value="1"), HTTPHeader(name="Host", value="me")]
        await probe(server, path="/a b?c=d", httpHeaders=headers)
    (asked,) = server.asked
    lines = asked.splitlines()
    assert lines[0] == "GET /a%20b?c=d HTTP/1.1"
    assert {"Host: me", "X-A: 1", "User-Agent: kube-probe/1.36", "Accept: */*"} <= set(lines)


async def test_a_redirect_on_the_same_host_is_followed() -> None:
    moved = answer("302 Found", "", "Location: /there")
    async with serving(moved, answer("200 OK", "here")) as server:
        assert await probe(server) == ProbeOutcome(ProbeResult.SUCCESS, "here")
    assert server.asked[1].startswith("GET /there ")


async def test_a_redirect_elsewhere_is_only_remarked() -> None:
    async with serving(answer("302 Found", "go", "Location: http://example.com/")) as server:
        outcome = await probe(server)
    assert outcome == ProbeOutcome(
        ProbeResult.WARNING, "Probe terminated redirects, Response body: go"
    )


async def test_a_closed_port_is_a_failure_in_known_words() -> None:
    async with serving() as server:
        pass
    outcome = await probe(server, path="/x")
    where = f"127.0.0.1:{server.port}"
    assert outcome == ProbeOutcome(
        ProbeResult.FAILURE,
        f'Get "http://{where}/x": dial tcp {where}: connect: connection refused',
    )


async def test_a_server_that_does_not_answer_fails_in_time() -> None:
    clock = FakeClock()
    async with serving() as server:
        action = HTTPGetAction(port=server.port)
        asking = asyncio.ensure_future(probe_http(action, CONTAINER, "127.0.0.1", clock, 3))
        await server.is_asked()
        await clock.advance(3)
        outcome = await asking
    assert outcome.result is ProbeResult.FAILURE
    assert "Client.Timeout exceeded while awaiting headers" in outcome.output


async def test_chunks_are_put_together() -> None:
    body = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    async with serving(body) as server:
        assert await probe(server) == ProbeOutcome(ProbeResult.SUCCESS, "abc")


async def test_a_plain_server_asked_for_tls_is_told_apart() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    action = HTTPGetAction(port=port, scheme="HTTPS")
    outcome = await probe_http(action, CONTAINER, "127.0.0.1", SystemClock(), 5)
    server.close()
    await server.wait_closed()
    assert outcome.result is ProbeResult.FAILURE
    assert outcome.output.endswith("http: server gave HTTP response to HTTPS client")


def test_ports_may_have_names() -> None:
    request = request_for(HTTPGetAction(port="web", path="/"), CONTAINER, "10.0.0.1", "probe")
    assert request.url == "http://10.0.0.1:8080/"
    six = request_for(HTTPGetAction(port=1, scheme="HTTPS"), CONTAINER, "fd00::1", "probe")
    assert six.url == "https://[fd00::1]:1/"
    with pytest.raises(ProbeError):
        request_for(HTTPGetAction(port="nope"), CONTAINER, "10.0.0.1", "probe")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("X-A", "1\r\nX-B: 2", 'net/http: invalid header field value for "X-A"'),
        ("X-A", "1\n", 'net/http: invalid header field value for "X-A"'),
        ("X-A", "\0", 'net/http: invalid header field value for "X-A"'),
        ("X-A: 1\r\nX-B", "2", 'net/http: invalid header field name "X-A: 1\\r\\nX-B"'),
        ("Host", "me\r\nX-B: 2", "http: invalid Host header"),
        ("Host", "me you", "http: invalid Host header"),
    ],
)
async def test_a_request_is_one_request(name: str, value: str, why: str) -> None:
    """Also that of a pod which was stored before the API refused it."""
    async with serving(answer("200 OK")) as server:
        outcome = await probe(server, httpHeaders=[HTTPHeader(name=name, value=value)])
    assert outcome == ProbeOutcome(
        ProbeResult.FAILURE, f'Get "http://127.0.0.1:{server.port}/": {why}'
    )
    assert server.asked == []


@pytest.mark.parametrize("host", ["a b", "a/b", "a?b", "a\r\nb", "user@a", "a#b", "[::1]:1/"])
def test_a_host_is_nothing_else(host: str) -> None:
    with pytest.raises(ProbeError, match="invalid host"):
        request_for(HTTPGetAction(port=1, host=host), CONTAINER, "10.0.0.1", "probe")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "headers exceeded 65536 bytes"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 5000, "headers exceeded 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"X" * 100_000, "a line that is too long"),
        (CHUNKED + b"x\r\n", "invalid literal"),
        (CHUNKED + b"ff\r\nshort", "unexpected EOF"),
        (CHUNKED + b"1;" + b"x" * 30_000 + b"\r\ny\r\n" + b"1;" + b"x" * 60_000, "exceeded"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "malformed HTTP response"),
        (b"\x1b[2J\r\n", 'malformed HTTP response "\\x1b[2J"'),
        (b"", "EOF"),
        (answer("302 Found", "", "Location: http://127.0.0.1:x/"), "Port could not be cast"),
        (answer("302 Found", "", "Location: ftp://127.0.0.1/"), "unsupported protocol scheme"),
    ],
)
async def test_an_answer_is_bounded_and_makes_sense(said: bytes, why: str) -> None:
    async with serving(said) as server:
        outcome = await probe(server)
    assert outcome.result is ProbeResult.FAILURE
    assert why in outcome.output


async def test_an_answer_that_drips_is_given_up_though_a_hook_may_wait() -> None:
    clock = FakeClock()
    async with serving(b"HTTP/1.1 200 OK\r\nX: ") as server:
        server.stays_open = True
        request = request_for(HTTPGetAction(port=server.port), CONTAINER, "127.0.0.1", "lifecycle")
        asking = asyncio.ensure_future(get(request, clock))
        await server.is_asked()
        await clock.advance(ANSWER_SECONDS)
        with pytest.raises(TimeoutError):
            await asking


async def test_redirects_without_end_are_given_up() -> None:
    moved = answer("302 Found", "", "Location: /again")
    async with serving(*[moved] * 20) as server:
        outcome = await probe(server)
    assert outcome.output.endswith("stopped after 10 redirects")
