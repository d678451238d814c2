"""HTTP/1.1 on the client's side of one connection: a request, and its response as it arrives."""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

import httptools

from kedge.client.request_head import encode_request as encode_request
from kedge.client.transport import BUFFER, Inflow, Unreachable
from kedge.machinery.clock import SystemClock
from kedge.machinery.sockets import (
    BoundedReads,
    SocketMaker,
    connected_socket,
    limit_buffers,
)
from kedge.machinery.turns import StepTurns

if TYPE_CHECKING:
    from kedge.machinery.proxies import ProxyAddress

CONNECT_SECONDS: Final = 10.0
TUNNEL_SECONDS: Final = 15.0
"""The same through a proxy, which looks the server up and connects to it in this time. Less than
callers wait for the head of an answer: they cannot name the proxy."""
HEAD_BYTES: Final = 256 << 10
"""Bytes of a response's head and trailer; a read may exceed it slightly."""
MOST_HEADERS: Final = 1_000
"""Header fields of a response. A head of the allowed size could have 64,000, which take a fifth of
a second of the event loop."""
SLICE_BYTES: Final = 8 << 10
"""Bytes that are parsed at once. The parser cannot be stopped in the middle, and a server may send
chunks of one byte: a slice has up to 1,400 of them, which take a millisecond."""
_FRAMING: Final = 8
"""Bytes that may surround one byte of a body: a chunk of one byte has five, but chunk extensions
have no length of their own."""
SHARE_SECONDS: Final = 0.005
"""How long responses of all servers are parsed in a turn of the event loop as they are read, and as
long again for those that waited."""
_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, StepTurns]] = WeakKeyDictionary()
_LENGTH_HEADERS: Final = frozenset(("content-length", "transfer-encoding"))


def response_turns() -> StepTurns:
    """Return the turns that all connections of the running event loop share. They belong to the
    loop, not to a transport: several hostile servers have a transport each."""
    loop = asyncio.get_running_loop()
    found = _TURNS.get(loop)
    if found is None:
        found = _TURNS[loop] = StepTurns(SystemClock().monotonic, SHARE_SECONDS)
    return found


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
        self._parser: Any = httptools.HttpResponseParser(self)
        self._head: asyncio.Future[None] | None = None
        self.header_list = []
        self.body = Inflow(self._resume, buffer)
        self._is_head_request = False
        self._is_until_close = False
        """Whether the end of the connection is the end of the body."""
        self._busy = False
        self._keep = True
        self._turns = response_turns()
        self._left = 0
        """Bytes of the body that are still to come, if the server said how many."""
        self._unparsed: memoryview | bytes = b""
        """Received bytes that wait for their turn, or for the reader of the body."""
        self._is_waiting = False
        """Whether they wait for their turn."""
        self._close_error: Exception | None = None
        self._content = 0
        """Bytes of the body in the slice that is being parsed."""
        self._overhead = 0
        """Bytes received that are neither of a body nor its usual framing."""

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
        self._unparsed = b""
        self.transport.abort()

    def _resume(self) -> None:
        """Continue, after the reader of the body has caught up."""
        if self._unparsed:
            self._wait()
        else:
            self._read_on()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every event loop derives its TLS transports from asyncio's class.
        self.transport = cast(asyncio.Transport, transport)

    def enter(self, transport: asyncio.Transport) -> "HttpConnection":
        """Be one of the open connections, on this transport."""
        self.transport = transport
        if self.lost.done():
            raise ConnectionResetError("the server has disconnected")
        self._connections.add(self)
        return self

    def data_received(self, data: bytes) -> None:
        if self.upgraded is not None:
            self.upgraded += data
        elif not self._busy:
            self._refuse_surplus()
        elif self._unparsed:
            self._unparsed = bytes(self._unparsed) + data
        elif len(data) <= self._slice_size and not self.body.paused and self._turns.is_free():
            self._parse(data)
        else:
            self._unparsed = memoryview(data)
            while self._unparsed and not self.body.paused and self._turns.is_free():
                self._parse_slice()
            self._wait_or_read_on()

    def _refuse_surplus(self) -> None:
        """Close a connection on which more is sent than was asked for."""
        self._keep = False
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if not self.lost.done():
            self.lost.set_result(None)
        self._close_error = error
        if not self._unparsed:
            self._end()

    def _end(self) -> None:
        """After the last byte of a connection that was lost."""
        error = self._close_error
        if self._busy and self._is_until_close and error is None:
            self._complete()
        elif self._busy:
            self._fail(f"the connection was lost: {error or 'closed by the server'}")
        self._forget()

    def _forget(self) -> None:
        """Free the parser and the body, which refer to this object. Until a search for garbage
        finds such cycles, each connection that has ended would take 50 KB."""
        self._parser = None
        self.body.detach()

    # Slices: a share of the turn for the responses of all servers.

    def advance(self) -> None:
        """Parse the next slice of what has waited for its turn."""
        self._is_waiting = False
        if self._unparsed and not self.body.paused:
            self._parse_slice()
            self._wait_or_read_on()

    def _wait_or_read_on(self) -> None:
        if self._unparsed:
            self.transport.pause_reading()
            if not self.body.paused:
                self._wait()
            return
        self._read_on()
        if self.lost.done():
            self._end()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._turns.wait(self)

    def _read_on(self) -> None:
        if not self.lost.done() and not self.body.paused and self.upgraded is None:
            self.transport.resume_reading()

    @property
    def _slice_size(self) -> int:
        """How many bytes can be parsed with little work: the rest of a body is one slice."""
        return max(self._left, SLICE_BYTES)

    def _parse_slice(self) -> None:
        size = self._slice_size
        part, self._unparsed = self._unparsed[:size], self._unparsed[size:]
        self._parse(part)
        if self._unparsed and not self._busy:
            self._refuse_surplus()

    def _parse(self, data: bytes | memoryview) -> None:
        self._content = 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # `upgraded` is read when the caller takes the connection over.
            self.upgraded = bytes(data[upgrade.args[0] :]) + bytes(self._unparsed)
            self._unparsed = b""
            self.transport.pause_reading()
            self._forget()
            return
        except httptools.HttpParserError as error:
            self._fail(f"the server does not speak HTTP: {error}")
            self.abort()
        self._limit_overhead(len(data))

    def _limit_overhead(self, size: int) -> None:
        """Limit heads and trailers, which are kept in memory, and what is read for nothing.
        Servers may be hostile: webhooks and kubelets are servers too."""
        self._overhead = max(0, self._overhead + size - (1 + _FRAMING) * self._content)
        if self._overhead > HEAD_BYTES:
            self._fail("the head or the framing of the answer is too long")
            self.abort()

    def _fail(self, why: str) -> None:
        self._keep = False
        if self._head is not None and not self._head.done():
            self._head.set_exception(Unreachable(why))
        else:
            self.body.end(Unreachable(why))

    # Callbacks of httptools.

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._busy or len(self.header_list) > MOST_HEADERS:
            return  # refused at the end of the head
        self.header_list.append((name.lower().decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        if not self._busy:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200 and self.status != 101:
            # An interim response. It does not count as progress: a server may send any number.
            self.header_list.clear()
            return
        if len(self.header_list) > MOST_HEADERS:
            self._fail("the head of the answer has too many fields")
            self.abort()
            return
        self._overhead = 0
        self.headers = _joined(self.header_list)
        self._keep = self._parser.should_keep_alive()
        self._is_until_close = not _LENGTH_HEADERS.intersection(self.headers)
        self._left = _plain_length(self.headers)
        if self._is_head_request or self.status == 101:
            # The parser expects a body after HEAD, so it cannot read another response.
            self._keep = False
            self._complete()
        if self._head is not None and not self._head.done():
            self._head.set_result(None)

    def on_body(self, data: bytes) -> None:
        if not self._busy:
            return  # of a response to HEAD, or more than was asked for
        self._content += len(data)
        self._left -= len(data)
        self.body.write(data)
        if self.body.paused:
            self.transport.pause_reading()

    def on_message_begin(self) -> None:
        if not self._busy:
            self._keep = False  # more than was asked for

    def on_message_complete(self) -> None:
        if self._head is None or not self._head.done():
            return  # the end of an interim response
        self._complete()

    def _complete(self) -> None:
        if self._busy:
            self._busy = False
            self._left = 0
            self.responses += 1
            self.body.end()


def _plain_length(headers: Mapping[str, str]) -> int:
    """Return the length of a body that is not chunked; 0 if it is unknown."""
    text = headers.get("content-length", "")
    is_plain = text.isascii() and text.isdecimal() and "transfer-encoding" not in headers
    return int(text[:19]) if is_plain else 0


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

    failure = OSError(f"{host} has no address")
    async with asyncio.timeout(CONNECT_SECONDS):
        if make is not None:
            connected = await connected_socket(make, host, port)
            _, connection = await loop.create_connection(protocol, sock=connected)
            _leave_port_to_listeners(connection.transport)
            return await _secured(connection, tls, server_name or host)
        for address in await _addresses(loop, host, port):
            try:
                _, connection = await loop.create_connection(protocol, address, port)
                _leave_port_to_listeners(connection.transport)
                return await _secured(connection, tls, server_name or host)
            except OSError as error:
                failure = error
    raise failure


async def open_through(
    proxy: "ProxyAddress",
    authority: str,
    *,
    tls: ssl.SSLContext,
    server_name: str,
    connections: set[HttpConnection] | None = None,
) -> HttpConnection:
    """Connect to a server (HOST:PORT) through a proxy; raises OSError, also after
    TUNNEL_SECONDS."""
    # Imported here because most processes have no proxy.
    from kedge.client.tunnel import ProxyFailure, open_tunnel, unreachable

    loop = asyncio.get_running_loop()
    failure = ProxyFailure(f"the proxy {proxy} has no address")
    try:
        async with asyncio.timeout(TUNNEL_SECONDS):
            try:
                addresses = await _addresses(loop, proxy.host, proxy.port)
            except OSError as error:
                raise unreachable(proxy, error) from error
            for address in addresses:
                try:
                    tunnel = await open_tunnel(proxy, address, authority)
                except ProxyFailure as error:
                    failure = error
                    continue
                connection = HttpConnection(connections)
                connection.connection_made(tunnel)
                return await _secured(connection, tls, server_name)
    except TimeoutError as error:
        raise ProxyFailure(f"no answer in time through the proxy {proxy}") from error
    raise failure


async def _secured(
    connection: HttpConnection, tls: ssl.SSLContext | None, server_name: str
) -> HttpConnection:
    """Do the TLS handshake, if there is to be one."""
    plain = connection.transport
    if tls is None:
        return connection.enter(plain)
    loop = asyncio.get_running_loop()
    try:
        secure = await loop.start_tls(plain, connection, tls, server_hostname=server_name)
        if secure is None:
            raise ConnectionResetError("the server has disconnected")
        tls_protocol = cast(asyncio.BufferedProtocol, plain.get_protocol())
        plain.set_protocol(BoundedReads(tls_protocol))
        limit_buffers(secure)
        return connection.enter(secure)
    except BaseException:
        plain.abort()
        raise


def _leave_port_to_listeners(transport: asyncio.BaseTransport) -> None:
    """Let another socket listen on the local port of a connection, which the kernel chose.

    It may be the host port of a pod, which would wait as long as the connection lasts.
    """
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """Look a host up.

    uvloop's create_connection could do that, but does not cancel its lookup with the task. If the
    lookup fails later, the loop logs an error that was never retrieved.
    """
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
