"""The one door to HTTP: bytes from a socket to HttpRequest values, and Responses back."""

import asyncio
import hashlib
import logging
import ssl
import types
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from typing import Any, NamedTuple, cast
from wsgiref.handlers import format_date_time

import httptools
import msgspec

from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError, bad_request, too_large
from kedge.web.duplex import Duplex
from kedge.web.message import HttpRequest, Response, TakeOver
from kedge.web.sources import Sources

log = logging.getLogger(__name__)

Handler = Callable[[HttpRequest], Response | Awaitable[Response]]
"""Answers a request, at once where no waiting is needed."""


@dataclass(frozen=True)
class Limits:
    """What a peer may do to us."""

    head_bytes: int = 1 << 16
    url_bytes: int = 32 << 10
    headers: int = 200
    body_bytes: int = 3 << 20
    head_seconds: float = 15
    body_seconds: float = 60
    idle_seconds: float = 180
    stall_seconds: float = 60
    """How long a peer may take nothing of what it asked for."""
    linger_seconds: float = 2
    """How long what a refused peer still sends is thrown away, so that it can read why."""
    linger_bytes: int = 16 << 20
    """How much of that is thrown away before the connection is cut."""
    pipelined: int = 8
    padding: int = 8
    """How many times longer than its content a chunked body may be."""


NEXT = "\n"
"""Parts the values of a repeated header that may hold commas themselves."""
PARTED = ("impersonate-", "x-remote-")
"""How the names of such headers begin: on whose behalf something is asked, and by whom."""
GZIP_FROM = 128 << 10
"""Answers below this size are sent as they are."""
_BODILESS = (204, 304)
_HELD = 64 << 10
"""Bytes of another protocol that may come before it has been agreed on."""
GOODBYES = 5
"""How many times a closing server looks whether its idle peers have hung up."""
_REASONS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


Refused = Callable[[str, StatusError], None]
"""Told what was asked for, as far as it was read, and what the answer was."""


class Server:
    """Listens, and keeps the set of open connections."""

    def __init__(
        self,
        handler: Handler,
        clock: Clock,
        limits: Limits | None = None,
        *,
        refused: Refused | None = None,
    ) -> None:
        """`refused` is told of requests that never get to the handler."""
        self.handler = handler
        self.clock = clock
        self.limits = limits or Limits()
        self.refused = refused
        self._unwritten: list[Connection] = []
        self.connections: set[Connection] = set()
        self.sources = Sources()
        self.date = ""
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Accept connections; returns the port, which matters when 0 was asked for."""
        self._stamp()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), host, port, ssl=tls, backlog=1024
        )
        address = self._server.sockets[0].getsockname()
        return int(address[1])

    async def sweep(self) -> None:
        """Once a second: renew the Date header and end connections that are out of time."""
        while True:
            await self.clock.sleep(1)
            self._stamp()
            now = self.clock.monotonic()
            for connection in list(self.connections):
                connection.expire(now)

    async def close(self, grace: float = 5) -> None:
        """Accept nothing more, let running requests finish, then cut what is left."""
        if self._server is not None:
            self._server.close()
        deadline = self.clock.monotonic() + grace
        for connection in list(self.connections):
            connection.finish()
        while any(connection.busy for connection in self.connections):
            if self.clock.monotonic() >= deadline:
                break
            await self.clock.sleep(0.02)
        # Peers that are idle get a moment to say goodbye, but are not waited for.
        for _ in range(GOODBYES):
            if self.connections:
                await self.clock.sleep(0.02)
        for connection in list(self.connections):
            connection.abort()

    def write_soon(self, connection: "Connection") -> None:
        """Have a connection's answer written once all requests that have come in are answered.

        Waking up a peer costs more than the writing, and one that is awake need not be woken.
        """
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write_all)
        self._unwritten.append(connection)

    def _write_all(self) -> None:
        connections, self._unwritten = self._unwritten, []
        for connection in connections:
            connection.flush()

    def _stamp(self) -> None:
        self.date = f"Date: {format_date_time(self.clock.now().timestamp())}\r\n"


class Asked(NamedTuple):
    """A request that waits for its answer."""

    request: HttpRequest
    chunks: bool
    """Whether the peer understands chunked bodies; if not, the end of the answer is the end."""


class Connection(asyncio.Protocol):
    """One client connection: parses, answers one request at a time, applies back-pressure."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.paused = False
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._certificate: dict[str, Any] | None = None
        self._peer = ""
        self._welcome = False
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Asked] = deque()
        self._chunks = True
        self._task: asyncio.Task[None] | None = None
        self._streaming = False
        self._drained: asyncio.Future[None] | None = None
        self._closing = False
        """Whether no further request will be read."""
        self._deadline = 0.0
        self._stalled_from = 0.0
        self._unsent = 0
        self._in_head = False
        self._received = 0
        self._discarded = 0
        self._unwritten = b""
        """Answers that are written when the loop has nothing else to do."""
        self._messages = 0
        """How many messages the parser has begun to read."""
        self._held: bytes | None = None
        """What came after a request for another protocol; None if there was no such request."""
        self._duplex: Duplex | None = None
        """Who has taken the connection over."""
        self._reset()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transports behave like asyncio's but do not derive from them.
        self._transport = cast(asyncio.Transport, transport)
        self._certificate = _certificate(transport)
        self._peer = (transport.get_extra_info("peername") or ("",))[0]
        self._welcome = self.server.sources.enter(self._peer)
        if not self._welcome:
            self._closing = True
            self.abort()
            return
        self.server.connections.add(self)
        self._wait_for(self.server.limits.idle_seconds)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.connections.discard(self)
        if self._welcome:
            self.server.sources.leave(self._peer)
        self._closing = True
        self._waiting.clear()
        # Who took over learns of it by reading, after all that had come before.
        if self._task is not None and self._duplex is None:
            self._task.cancel()
        self.resume_writing()
        # They refer to each other: until that is found, a connection that is over takes 50 KB.
        self._parser = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._held is not None:
            self._hold(data)
            return
        if self._closing:
            self._discarded += len(data)
            if self._discarded > self.server.limits.linger_bytes:
                self.abort()
            return
        message = self._messages
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # Whoever answers may take the connection over; else it is answered and closed.
            self._hold(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(bad_request(f"malformed HTTP request: {error}"))
        if message == self._messages:
            self._measure(len(data))

    def _hold(self, data: bytes) -> None:
        """Keep what is meant for whoever takes over."""
        self._held = (self._held or b"") + data
        if len(self._held) > _HELD:
            self._transport.pause_reading()

    def _measure(self, size: int) -> None:
        """Bound what the parser itself may hold back of one unfinished message."""
        limits = self.server.limits
        self._received += size
        if self._in_head and self._received > limits.head_bytes:
            self._refuse(StatusError(431, "BadRequest", "request header fields too large"))
        elif self._received > limits.head_bytes + limits.padding * limits.body_bytes:
            self._refuse(too_large(limits.body_bytes))

    def eof_received(self) -> bool:
        # A client that half-closes after its request still gets its answer; TLS has no half-close.
        if self._held is not None or (self._task is None and not self._waiting):
            return False
        self._closing = not self._streaming
        return not self._streaming and self._transport.get_extra_info("sslcontext") is None

    # What httptools calls while it parses.

    def on_message_begin(self) -> None:
        self._messages += 1
        self._received = 0
        self._in_head = True
        self._wait_for(self.server.limits.head_seconds)

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))
        if len(self._url) > self.server.limits.url_bytes:
            self._refuse(StatusError(414, "BadRequest", "the URL of the request is too long"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        if not self._in_head:
            return  # a trailer: nothing here wants any
        key = name.lower().decode("latin-1")
        text = value.decode("latin-1")
        headers = self._headers
        if key in headers:
            # Names of users and groups may hold commas, so something else must part them.
            text = f"{headers[key]}{NEXT if key.startswith(PARTED) else ','}{text}"
        headers[key] = text
        if len(headers) > self.server.limits.headers:
            self._refuse(StatusError(431, "BadRequest", "too many header fields"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._closing:
            return
        self._wait_for(self.server.limits.body_seconds)
        length = self._headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.server.limits.body_bytes:
            self._refuse(too_large(self.server.limits.body_bytes))
        elif self._headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self.server.limits.body_bytes:
            self._refuse(too_large(self.server.limits.body_bytes))
        elif not self._closing:
            self._body.append(data)

    def on_message_complete(self) -> None:
        if self._closing:
            return
        path, _, query = _origin_form(self._url.decode("latin-1")).partition("?")
        method = self._parser.get_method().decode("latin-1")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        request = HttpRequest(
            method, path, query, self._headers, body, self._certificate, self._peer
        )
        asked = Asked(request, chunks=self._parser.get_http_version() != "1.0")
        if not self._parser.should_keep_alive() or self._parser.should_upgrade():
            self._closing = True
        if not asked.chunks:
            self._closing = True
        self._reset()
        if self._task is not None or self._waiting:
            self._waiting.append(asked)
            if len(self._waiting) >= self.server.limits.pipelined:
                self._transport.pause_reading()
        else:
            self._begin(asked)

    # Answering.

    def _begin(self, asked: Asked) -> None:
        self._deadline = 0.0
        self._chunks = asked.chunks
        request = asked.request
        try:
            answer = self.server.handler(request)
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, request.path)
            answer = Response(500)
        if isinstance(answer, Response) and _is_short(answer, request):
            self._write_whole(answer, request.method)
            self._wait_for(self.server.limits.idle_seconds)
            self._finish_if_idle()
            return
        loop = asyncio.get_running_loop()
        # The connection owns this task: it is cancelled when the connection is lost.
        self._task = loop.create_task(self._answer(request, answer))

    async def _answer(self, request: HttpRequest, answer: Response | Awaitable[Response]) -> None:
        try:
            response = answer if isinstance(answer, Response) else await answer
            await self._write(request, response)
        except asyncio.CancelledError:
            return
        except ConnectionError:
            self.abort()
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, request.path)
            self.abort()
        finally:
            self._task = None
            self._streaming = False
        self._next()

    def _next(self) -> None:
        if self._waiting and not self._transport.is_closing():
            if len(self._waiting) == self.server.limits.pipelined:
                self._transport.resume_reading()
            self._begin(self._waiting.popleft())
            if self._task is None:
                asyncio.get_running_loop().call_soon(self._next)
        else:
            self._wait_for(self.server.limits.idle_seconds)
            self._finish_if_idle()

    async def _write(self, request: HttpRequest, response: Response) -> None:
        body = response.body
        if response.take_over is not None:
            await self._hand_over(response, response.take_over)
            return
        if callable(body):
            self._streaming = True
            self._write_head(response, None)
            await body(_Chunks(self, framed=self._chunks))
            self._end_of_chunks()
            return
        if not isinstance(body, bytes):
            pieces = iter(body)
            first, second = next(pieces, b""), next(pieces, None)
            if second is not None:
                whole = chain((first, second), pieces)
                await self._write_pieces(response, whole, gzip=_takes_gzip(request))
                return
            response.body = body = first
        if len(body) >= GZIP_FROM and _takes_gzip(request):
            await self._write_pieces(response, _sliced(body), gzip=True)
        else:
            self._write_whole(response, request.method)

    async def _write_pieces(
        self, response: Response, pieces: Iterable[bytes], *, gzip: bool
    ) -> None:
        if gzip:
            response.headers.append(("Content-Encoding", "gzip"))
            response.headers.append(("Vary", "Accept-Encoding"))
        self._write_head(response, None)
        chunks = _Chunks(self, framed=self._chunks)
        packer = zlib.compressobj(1, wbits=31) if gzip else None
        loop = asyncio.get_running_loop()
        for piece in pieces:
            # Compressing lets go of the interpreter lock, so other requests go on meanwhile.
            data = await loop.run_in_executor(None, packer.compress, piece) if packer else piece
            chunks.write(data)
            await chunks.drain()
            # Pieces are made as they are sent: others have their turn between two of them.
            await _next_turn()
        if packer:
            chunks.write(packer.flush())
        self._end_of_chunks()

    async def _hand_over(self, response: Response, take_over: TakeOver) -> None:
        if self._held is None:
            raise ValueError("a connection was to be taken over that has not been offered")
        lines = [f"{name}: {value}\r\n" for name, value in response.headers]
        head = f"{_REASONS[response.status]}{self.server.date}{''.join(lines)}\r\n"
        self.send(head.encode("latin-1", "replace"))
        held, self._held = self._held, b""
        self._duplex = Duplex.over(self._transport, held, self.connection_lost)
        try:
            await take_over(self._duplex)
        finally:
            self._duplex.close()

    def _end_of_chunks(self) -> None:
        if self._chunks:
            self.send(b"0\r\n\r\n")

    def _write_whole(self, response: Response, method: str = "") -> None:
        assert isinstance(response.body, bytes)
        head = self._head(response, len(response.body))
        bodiless = method == "HEAD" or response.status in _BODILESS
        if not self._unwritten:
            self.server.write_soon(self)
        self._unwritten += head if bodiless else head + response.body

    def _write_head(self, response: Response, length: int | None) -> None:
        self.send(self._head(response, length))

    def _head(self, response: Response, length: int | None) -> bytes:
        lines = _REASONS.get(response.status) or f"HTTP/1.1 {response.status} Status\r\n"
        lines += f"Content-Type: {response.content_type}\r\n{self.server.date}"
        for name, value in response.headers:
            lines += f"{name}: {value}\r\n"
        if self._closing and not self._waiting:
            lines += "Connection: close\r\n"
        if length is not None and response.status not in _BODILESS:
            lines += f"Content-Length: {length}\r\n"
        elif length is None and self._chunks:
            lines += "Transfer-Encoding: chunked\r\n"
        return f"{lines}\r\n".encode("latin-1", "replace")

    def _refuse(self, error: StatusError) -> None:
        """Answer and close: the rest of what the peer sends is not worth reading."""
        if self._closing:
            return
        self._closing = True
        if self.server.refused is not None:
            self.server.refused(_origin_form(self._url.decode("latin-1")), error)
        if self._task is not None or self._waiting:
            return  # what was asked before is still answered, but nothing after it
        self._write_whole(Response(error.code, msgspec.json.encode(error.status())))
        self._wait_for(self.server.limits.linger_seconds)

    # Flow control and life span.

    def pause_writing(self) -> None:
        self.paused = True
        self._stalled_from = self.server.clock.monotonic()
        self._unsent = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self.paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    async def drain(self) -> None:
        if self.paused:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        if self._transport.is_closing():
            raise ConnectionResetError("the client has gone")

    def send(self, data: bytes) -> None:
        """Write at once, after whatever still waits to be written."""
        if not self._transport.is_closing():
            self._transport.write(self._unwritten + data if self._unwritten else data)
        self._unwritten = b""

    def flush(self) -> None:
        if self._unwritten:
            self.send(b"")

    def expire(self, now: float) -> None:
        """End what has run out of time: the peer owes us a request, or takes no answer."""
        if self._deadline and now > self._deadline:
            self.abort()
        elif self.paused:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent:
                self._stalled_from = now
            elif now > self._stalled_from + self.server.limits.stall_seconds:
                self.abort()
            self._unsent = unsent

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._task is not None

    def finish(self) -> None:
        """Close when the request under way is done; at once if it is a stream."""
        self._closing = True
        if self._duplex is not None:
            self._duplex.close()
        elif self._streaming and self._task is not None:
            self._task.cancel()
            self._end_of_chunks()
            self._transport.close()
        else:
            self._finish_if_idle()

    def abort(self) -> None:
        self._transport.abort()

    def _finish_if_idle(self) -> None:
        if self._closing and self._task is None and not self._waiting:
            self.flush()
            self._transport.close()

    def _wait_for(self, seconds: float) -> None:
        if self._task is None:
            self._deadline = self.server.clock.monotonic() + seconds

    def _reset(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._head_size = 0

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self.server.limits.head_bytes:
            self._refuse(StatusError(431, "BadRequest", "request header fields too large"))


class _Chunks:
    """A chunked body, piece by piece."""

    __slots__ = ("_connection", "_framed")

    def __init__(self, connection: Connection, *, framed: bool) -> None:
        self._connection = connection
        self._framed = framed

    @property
    def paused(self) -> bool:
        return self._connection.paused

    def write(self, data: bytes) -> None:
        if data:
            self._connection.send(b"%x\r\n%b\r\n" % (len(data), data) if self._framed else data)

    async def drain(self) -> None:
        await self._connection.drain()


def _certificate(transport: asyncio.BaseTransport) -> dict[str, Any] | None:
    """The client's certificate and, under `sha256`, the hash by which it is identified."""
    tls = transport.get_extra_info("ssl_object")
    certificate: dict[str, Any] = (tls.getpeercert() if tls is not None else None) or {}
    if not certificate:
        return None
    return certificate | {"sha256": hashlib.sha256(tls.getpeercert(True)).hexdigest()}


def _is_short(response: Response, request: HttpRequest) -> bool:
    """Whether the body can be sent as it is, in one go."""
    if not isinstance(response.body, bytes) or response.take_over is not None:
        return False
    return len(response.body) < GZIP_FROM or not _takes_gzip(request)


def _sliced(body: bytes, size: int = 256 << 10) -> Iterable[bytes]:
    view = memoryview(body)
    return (bytes(view[at : at + size]) for at in range(0, len(body), size))


@types.coroutine
def _next_turn() -> Generator[None, None, None]:
    """Let the event loop do what else there is to do."""
    yield


def _takes_gzip(request: HttpRequest) -> bool:
    for offer in request.headers.get("accept-encoding", "").split(","):
        name, _, parameters = offer.replace(" ", "").partition(";")
        if name.lower() == "gzip":
            return parameters.rstrip("0") not in ("q=", "q=0.")
    return False


def _origin_form(target: str) -> str:
    """`/path?query` also from `http://host/path?query`, as proxies spell it."""
    if target.startswith("/"):
        return target
    _, separator, rest = target.partition("://")
    return "/" + rest.partition("/")[2] if separator else target


def note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What failed outside of any request, mostly handshakes of strangers: a line, not a page."""
    what = str(context.get("message", "")).partition("\n")[0]
    log.warning("%s: %r", what, context.get("exception"))
