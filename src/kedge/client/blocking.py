"""BlockingTransport: requests without an event loop, one after the other on one connection.

Short commands such as `kedge get pods` use it: to load asyncio takes longer than their requests.
Its methods are coroutines that never wait, so `finish` runs them to their end.
"""

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httptools

from kedge.client.request_head import encode_request
from kedge.client.transport import Call, Reply, Stream, Unreachable

ANSWER_SECONDS: Final = 70.0
"""As long as with `HttpTransport`."""
CONNECT_SECONDS: Final = 10.0
_CHUNK: Final = 256 << 10

T = TypeVar("T")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only methods of a BlockingTransport; returns its result."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a command without an event loop has waited")


class BlockingTransport:
    """Fulfils Transport for one server. Streams are read whole, so it has none that do not end."""

    def __init__(
        self, url: str, *, token: str, tls: ssl.SSLContext | None, server_name: str = ""
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not the address of a server: {url!r}")
        self._authority = parts.netloc.rpartition("@")[2]
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._tls = tls
        self._server_name = server_name or parts.hostname
        self._token = token
        self._socket: socket.socket | None = None

    async def send(self, call: Call) -> Reply:
        target = self._prefix + call.path + (f"?{call.query}" if call.query else "")
        headers = [("authorization", f"Bearer {self._token}")] if self._token else []
        headers += call.headers.items()
        request = encode_request(call.method, target, self._authority, headers, call.body)
        was_kept = self._socket is not None
        try:
            return self._exchange(request)
        except Unreachable:
            # The server may have closed a kept connection just before it was used. Only requests
            # that are safe to repeat are sent again.
            if not (was_kept and call.method == "GET"):
                raise
        return self._exchange(request)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        reply = await self.send(call)
        yield Stream(reply.status, reply.headers, _once(reply.body))

    async def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, request: bytes) -> Reply:
        try:
            connected = self._socket or self._connect()
            self._socket = connected
            connected.sendall(request)
            reader = _ResponseReader()
            while not reader.is_whole:
                data = connected.recv(_CHUNK)
                if not data:
                    raise Unreachable(f"{self._authority} has closed the connection")
                reader.feed(data)
        except TimeoutError:
            self._drop()
            raise Unreachable(f"no answer from {self._authority}") from None
        except OSError as error:
            self._drop()
            if isinstance(error, Unreachable):
                raise
            raise Unreachable(f"cannot connect to {self._authority}: {error}") from error
        except httptools.HttpParserError as error:
            self._drop()
            raise Unreachable(f"{self._authority} did not answer in HTTP: {error}") from error
        if not reader.keeps_alive:
            self._drop()
        return Reply(reader.status, reader.headers, b"".join(reader.pieces))

    def _connect(self) -> socket.socket:
        plain = socket.create_connection((self._host, self._port), CONNECT_SECONDS)
        plain.settimeout(ANSWER_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return plain
        try:
            return self._tls.wrap_socket(plain, server_hostname=self._server_name)
        except BaseException:
            plain.close()
            raise

    def _drop(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None


class _ResponseReader:
    """Takes the bytes of one response."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.pieces: list[bytes] = []
        self.headers: dict[str, str] = {}
        self.status = 0
        self.is_whole = False
        self.keeps_alive = True

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    # Callbacks of httptools.

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.keeps_alive = self._parser.should_keep_alive()

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        # An interim answer such as 103 comes before the one that is waited for.
        self.is_whole = self.status >= 200


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
