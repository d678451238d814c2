"""HttpTransport: requests over TLS or plain TCP, on connections that are kept for the next one."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

import httptools

from kedge.client.transport import Call, Inflow, Reply, Stream, Unreachable

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 70.0
"""A little longer than servers give themselves for a request."""
HEAD_BYTES = 256 << 10
"""Bytes of an answer's head and trailer; a read may exceed it slightly."""
AT_ONCE = 16
"""Requests that are under way together. More would only queue at the server, and every further
connection costs both sides a handshake that is dearer than most requests."""


class HttpTransport:
    """Fulfils Transport for one server; trusts the given authority and no other.

    `tls` replaces that trust by one of the caller's making, client certificate included.
    """

    def __init__(
        self,
        url: str,
        *,
        ca_pem: bytes = b"",
        token: str = "",
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not the address of a server: {url!r}")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/")
        self._tls = (tls or _context(ca_pem)) if parts.scheme == "https" else None
        self._server_name = server_name if self._tls and server_name else None
        self._token = token
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def send(self, call: Call) -> Reply:
        async with self._slots:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await self._send(call)
            except TimeoutError:
                raise Unreachable(f"no answer from {self._authority}") from None

    async def _send(self, call: Call) -> Reply:
        async with self._exchange(call) as connection:
            body = b"".join([piece async for piece in connection.body])
            return Reply(connection.status, connection.headers, body)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        async with self._exchange(call) as connection:
            yield Stream(connection.status, connection.headers, connection.body)

    async def close(self) -> None:
        gone = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        if gone:
            await asyncio.wait(gone)

    @asynccontextmanager
    async def _exchange(self, call: Call) -> AsyncIterator["_Connection"]:
        """A connection on which the request was sent and the head of the answer has come."""
        connection = await self._begin(call)
        try:
            yield connection
        finally:
            self._give_back(connection)

    async def _begin(self, call: Call) -> "_Connection":
        request = self._encoded(call)
        while True:
            connection = self._kept() or await self._connect()
            kept = connection.answers > 0
            try:
                await connection.ask(request)
            except Unreachable:
                # The server may have closed a kept connection just as we used it. Only what is
                # harmless when done twice is sent again.
                if not (kept and call.method == "GET"):
                    raise
            except BaseException:
                connection.abort()
                raise
            else:
                return connection

    def _kept(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    def _give_back(self, connection: "_Connection") -> None:
        if connection.reusable and len(self._idle) < AT_ONCE:
            self._idle.append(connection)
        else:
            connection.abort()

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._open),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._server_name,
                )
        except OSError as error:
            raise Unreachable(f"cannot connect to {self._authority}: {error}") from error
        return connection

    def _encoded(self, call: Call) -> bytes:
        target = self._prefix + call.path + (f"?{call.query}" if call.query else "")
        lines = [f"{call.method} {target} HTTP/1.1", f"host: {self._authority}"]
        if self._token:
            lines.append(f"authorization: Bearer {self._token}")
        lines += [f"{name}: {value}" for name, value in call.headers.items()]
        if call.body or call.method in ("POST", "PUT", "PATCH"):
            lines.append(f"content-length: {len(call.body)}")
        head = "\r\n".join(lines)
        # The request contains untrusted text: a registry's redirect or token, a webhook's path.
        # A line end in it would start another header or another request.
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise Unreachable(f"refused to ask {self._authority}: a line of the request has two")
        return f"{head}\r\n\r\n".encode("latin-1") + call.body


def _context(ca_pem: bytes) -> ssl.SSLContext:
    # Given an authority, the system's own ones are not trusted.
    return ssl.create_default_context(cadata=ca_pem.decode() if ca_pem else None)


class _Connection(asyncio.Protocol):
    """One connection: one request at a time, and its answer."""

    status: int
    headers: Mapping[str, str]
    body: Inflow

    def __init__(self, connections: "set[_Connection]") -> None:
        self.answers = 0
        """How many answers have come whole."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connections = connections
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._fields: dict[str, str] = {}
        self._head: asyncio.Future[None] | None = None
        self._busy = False
        self._keep = True
        self._events = 0
        """How many heads, answers and pieces of bodies the parser has completed."""
        self._overhead = 0
        """Bytes that came since then."""

    @property
    def reusable(self) -> bool:
        return self._keep and not self._busy and not self.lost.done()

    async def ask(self, request: bytes) -> None:
        """Send a request; returns when the head of its answer has come."""
        self._busy = True
        self._fields = {}
        self.body = Inflow(self._resume)
        self._head = asyncio.get_running_loop().create_future()
        if self.lost.done():
            raise Unreachable("the connection is closed")
        self._transport.write(request)
        await self._head

    def abort(self) -> None:
        self._transport.abort()

    def _resume(self) -> None:
        if not self.lost.done():
            self._transport.resume_reading()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every event loop derives its TLS transports from asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        events = self._events
        try:
            self._parser.feed_data(data)
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
        if self._busy:
            self._fail(f"the connection was lost: {error or 'closed by the server'}")

    def _fail(self, why: str) -> None:
        self._keep = False
        if self._head is not None and not self._head.done():
            self._head.set_exception(Unreachable(why))
        else:
            self.body.end(Unreachable(why))

    # What httptools calls while it parses.

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.lower().decode("latin-1"), value.decode("latin-1")
        fields = self._fields
        fields[key] = f"{fields[key]},{text}" if key in fields else text

    def on_headers_complete(self) -> None:
        self._events += 1
        self.status = self._parser.get_status_code()
        self.headers = self._fields
        self._keep = self._parser.should_keep_alive()
        if self._head is not None and not self._head.done():
            self._head.set_result(None)

    def on_body(self, data: bytes) -> None:
        self._events += 1
        self.body.write(data)
        if self.body.paused:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._events += 1
        self._busy = False
        self.answers += 1
        self.body.end()
