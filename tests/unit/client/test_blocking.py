"""Requests without an event loop, to a server in a thread."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kedge.client.blocking import BlockingTransport, finish
from kedge.client.transport import Call, Unreachable


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/gone":
            self.close_connection = True
            return
        body = f"{self.path} {self.headers.get('authorization')}".encode()
        self.send_response(200)
        self.send_header("X-One", "a")
        self.send_header("X-One", "b")
        if self.path == "/chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (b"one ", b"two"):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        # The next request finds the connection closed.
        self.close_connection = self.path.endswith("last")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/base"
    server.shutdown()
    thread.join()
    server.server_close()


def test_answers_are_whole_and_the_connection_is_kept(url: str) -> None:
    there = BlockingTransport(url, token="t", tls=None)
    for path in ("/a", "/b", "/last", "/c"):
        reply = finish(there.send(Call("GET", path)))
        assert (reply.status, reply.body) == (200, f"/base{path} Bearer t".encode())
        assert reply.headers["x-one"] == "a, b"
    finish(there.close())


def test_chunks_and_streams_are_read_whole(url: str) -> None:
    there = BlockingTransport(url.removesuffix("/base"), token="", tls=None)

    async def read() -> bytes:
        async with there.stream(Call("GET", "/chunks")) as stream:
            return await stream.whole()

    assert finish(read()) == b"one two"
    finish(there.close())


def test_a_server_that_does_not_answer_is_unreachable(url: str) -> None:
    there = BlockingTransport(url.removesuffix("/base"), token="", tls=None)
    with pytest.raises(Unreachable, match="has closed the connection"):
        finish(there.send(Call("GET", "/gone")))
    nobody = BlockingTransport("http://127.0.0.1:1", token="", tls=None)
    with pytest.raises(Unreachable, match=r"cannot connect to 127.0.0.1:1"):
        finish(nobody.send(Call("GET", "/")))
    with pytest.raises(ValueError, match="not the address of a server"):
        BlockingTransport("ftp://x", token="", tls=None)


def test_work_that_waits_is_a_mistake() -> None:
    async def waits() -> None:
        await asyncio.Future[None](loop=loop)

    loop = asyncio.new_event_loop()
    with pytest.raises(RuntimeError, match="has waited"):
        finish(waits())
    loop.close()
