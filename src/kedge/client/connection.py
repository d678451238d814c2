"""HTTP/1.1 on the client's side of one connection: a request, and its response as it arrives."""

import asyncio
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Final, cast

import httptools

from kedge.client.transport import BUFFER, Inflow, Unreachable
from kedge.machinery.sockets import SocketMaker, connected_socket

CONNECT_SECONDS: Final = 10.0
HEAD_BYTES: Final = 256 << 10
"""Bytes of a response's head and trailer; a read may exceed it slightly."""
MOST_HEADERS: Final = 1_000
"""Header fields of a response. A head of the allowed size could have 64,000, which take a fifth of
a second of the event loop."""
_BODY_METHODS: Final = ("POST", "PUT", "PATCH")
_LENGTH_HEADERS: Final = frozenset(("content-length", "transfer-encoding"))


def encode_request(
    method: str, target: str, authority: str, headers: Iterable[tuple[str, str]], body: bytes
) -> bytes:
    """Return the bytes of exactly one request; raises Unreachable if a value has a line end.

    Values come from untrusted sources: a registry's redirect or token, a webhook's path. A line
    end in one of them would start another header or another request.
    """
    lines = [f"{method} {target} HTTP/1.1", f"host: {authority}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method in _BODY_METHODS:
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
        raise Unreachable(f"refused to ask {authority}: a line of the request has two")
    return f"{head}\r\n\r\n".encode("latin-1") + body


class HttpConnection(asyncio.Protocol):
    """One connection: one request at a time, and its response."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case; repeated ones joined by a comma."""
    header_list: list[tuple[str, str]]
    """The same, one item per line of the response."""
    body: Inflow

    def __init__(
        self, connections: "set[HttpConnection] | None" = None, *, buffer: int = BUFFER
    ) -> None:
        """`connections` holds the connection while it is open; `buffer` is the number of bytes of
        a body that may wait before the server is made to pause."""
        self.responses = 0
        """How many responses were complete."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.upgraded: bytes | None = None
        """Bytes of another protocol that arrived after a response with status 101."""
        self.transport: asyncio.Transport
        self._connections = connections if connections is not None else set()
        self._buffer = buffer
        self._parser = httptools.HttpResponseParser(self)
        self._head: asyncio.Future[None] | None = None
        self._is_head_request = False
        self._is_until_close = False
        """Whether the end of the connection is the end of the body."""
        self._busy = False
        self._keep = True
        self._events = 0
        """How many heads, responses and pieces of bodies the parser has completed."""
        self._overhead = 0
        """Bytes received since then."""

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self._keep and not self._busy and not self.lost.done()

    async def ask(self, request: bytes, *, is_head: bool = False) -> None:
        """Send a request; returns when the head of its response has arrived."""
        self._busy = True
        self._is_head_request = is_head
        self.header_list = []
        self.body = Inflow(self._resume, self._buffer)
        self._head = asyncio.get_running_loop().create_future()
        if self.lost.done():
            raise Unreachable("the connection is closed")
        self.transport.write(request)
        await self._head

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

    def _resume(self) -> None:
        if not self.lost.done():
            self.transport.resume_reading()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every event loop derives its TLS transports from asyncio's class.
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self.upgraded is not None:
            self.upgraded += data
            return
        events = self._events
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # `upgraded` is read when the caller takes the connection over.
            self.upgraded = data[upgrade.args[0] :]
            self.transport.pause_reading()
            return
        except httptools.HttpParserError as error:
            self._fail(f"the server does not speak HTTP: {error}")
            self.abort()
        # Other bytes belong to a head or a trailer, which is kept in memory. Servers may be
        # hostile: webhooks and kubelets are servers too.
        self._overhead = 0 if events != self._events else self._overhead + len(data)
        if self._overhead > HEAD_BYTES:
            self._fail("the head of the answer is too long")
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self.lost.set_result(None)
        if self._busy and self._is_until_close and error is None:
            self._complete()
        elif self._busy:
            self._fail(f"the connection was lost: {error or 'closed by the server'}")

    def _fail(self, why: str) -> None:
        self._keep = False
        if self._head is not None and not self._head.done():
            self._head.set_exception(Unreachable(why))
        else:
            self.body.end(Unreachable(why))

    # Callbacks of httptools.

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.header_list) > MOST_HEADERS:
            return  # refused at the end of the head
        self.header_list.append((name.lower().decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200 and self.status != 101:
            # An interim response. It does not count as progress: a server may send any number.
            self.header_list.clear()
            return
        if len(self.header_list) > MOST_HEADERS:
            self._fail("the head of the answer has too many fields")
            self.abort()
            return
        self._events += 1
        self.headers = _joined(self.header_list)
        self._keep = self._parser.should_keep_alive()
        self._is_until_close = not _LENGTH_HEADERS.intersection(self.headers)
        if self._is_head_request or self.status == 101:
            # The parser expects a body after HEAD, so it cannot read another response.
            self._keep = False
            self._complete()
        if self._head is not None and not self._head.done():
            self._head.set_result(None)

    def on_body(self, data: bytes) -> None:
        self._events += 1
        self.body.write(data)
        if self.body.paused:
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._head is None or not self._head.done():
            return  # the end of an interim response
        self._events += 1
        self._complete()

    def _complete(self) -> None:
        if self._busy:
            self._busy = False
            self.responses += 1
            self.body.end()


def _joined(pairs: list[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in pairs:
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


async def open_connection(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None,
    server_name: str | None,
    connections: set[HttpConnection] | None = None,
    buffer: int = BUFFER,
    make: SocketMaker | None = None,
) -> HttpConnection:
    """Connect to a server; raises OSError, also after CONNECT_SECONDS. `make` makes the socket for
    an address that is not in this process's network namespace."""
    loop = asyncio.get_running_loop()

    def protocol() -> HttpConnection:
        return HttpConnection(connections, buffer=buffer)

    name = (server_name or host) if tls else None
    failure = OSError(f"{host} has no address")
    async with asyncio.timeout(CONNECT_SECONDS):
        if make is not None:
            connected = await connected_socket(make, host, port)
            _, connection = await loop.create_connection(
                protocol, sock=connected, ssl=tls, server_hostname=name
            )
            return connection
        for address in await _addresses(loop, host, port):
            try:
                _, connection = await loop.create_connection(
                    protocol, address, port, ssl=tls, server_hostname=name
                )
            except OSError as error:
                failure = error
            else:
                return connection
    raise failure


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """Look a host up.

    uvloop's create_connection could do that, but does not cancel its lookup with the task. If the
    lookup fails later, the loop logs an error that was never retrieved.
    """
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
