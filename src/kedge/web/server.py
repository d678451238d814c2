"""The one door to HTTP: bytes from a socket to HttpRequest values, and Responses back."""

import asyncio
import errno
import hashlib
import logging
import socket
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
from kedge.web.bodies import BodyBudget
from kedge.web.duplex import Duplex
from kedge.web.message import HttpRequest, Response, TakeOver, header_line
from kedge.web.places import Caller, PlaceLimits, Places, affordable, too_many

log = logging.getLogger(__name__)

Handler = Callable[[HttpRequest], Response | Awaitable[Response]]
"""Answers a request, at once where no waiting is needed."""

Screen = Callable[[HttpRequest], Response | None]
"""Checks the head of a request before its body is read; returns the answer to a request that is
refused independently of its body."""


@dataclass(frozen=True)
class Limits:
    """What a peer may do to us."""

    head_bytes: int = 1 << 16
    url_bytes: int = 32 << 10
    headers: int = 200
    body_bytes: int = 3 << 20
    bodies_bytes: int = 64 << 20
    """Bytes of the bodies of all requests under way."""
    handshake_seconds: float = 5
    first_seconds: float = 10
    """Seconds until the first request and between requests while the caller is not
    authenticated."""
    head_seconds: float = 15
    body_seconds: float = 60
    idle_seconds: float = 180
    stall_seconds: float = 60
    """How long a peer may take nothing of what it asked for."""
    linger_seconds: float = 2
    """How long what a refused peer still sends is thrown away, so that it can read why."""
    takeover_seconds: float = 5
    """How long an upgraded connection may continue after its peer has disconnected."""
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
_PIECE = 4 << 10
"""Bytes that are parsed in one go. The parser cannot be stopped in the middle, and this much holds
more than two hundred of the shortest requests."""
_PIECES_PER_TURN = 16
"""Pieces of one body that are parsed per turn."""
_TURN_SECONDS = 0.005
_TURN_VISITS = 32
"""How long, and for how many requests, pipelined requests are answered in one turn of the loop."""
_UNWRITTEN = 64 << 10
"""Bytes of answers that are written at once, so that a peer that does not read is noticed."""
_ACCEPTS_PER_TURN = 32
_BACKLOG = 1024
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_REASONS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


Refused = Callable[[str, StatusError], None]
"""Told what was asked for, as far as it was read, and what the answer was."""


class Server:
    """Listens, and keeps the set of open connections.

    All peers get equal shares of a turn of the event loop. A single request is answered when it
    is read. Pipelined requests are parsed and answered a few per turn, connection by connection,
    and meanwhile nothing more is read from the peer.
    """

    def __init__(
        self,
        handler: Handler,
        clock: Clock,
        limits: Limits | None = None,
        *,
        places: PlaceLimits | None = None,
        screen: Screen | None = None,
        refused: Refused | None = None,
    ) -> None:
        """`screen` checks heads before their bodies are read; `refused` is called for requests
        that never reach the handler."""
        self.handler = handler
        self.clock = clock
        self.limits = limits or Limits()
        self.screen = screen
        self.refused = refused
        self.places = Places(places or affordable())
        self.bodies = BodyBudget(self.limits.bodies_bytes)
        self.connections: set[Connection] = set()
        self.date = ""
        self._unwritten: list[Connection] = []
        self._backlog: deque[Connection] = deque()
        """Connections with work that can be done now."""
        self._is_turn_arranged = False
        self._listeners: list[Listener] = []

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Accept connections; returns the port, which matters when 0 was asked for."""
        self._stamp()
        for listening in await _listening(host, port):
            self._listeners.append(Listener(self, listening, tls))
        return self._listeners[0].port

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
        self.stop_listening()
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

    def stop_listening(self) -> None:
        """Accept nothing more."""
        while self._listeners:
            self._listeners.pop().close()

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

    def work_soon(self, connection: "Connection") -> None:
        """Continue a connection's work in a later turn, after the others."""
        self._backlog.append(connection)
        if not self._is_turn_arranged:
            self._is_turn_arranged = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        until = self.clock.monotonic() + _TURN_SECONDS
        visits = 0
        while self._backlog and visits < _TURN_VISITS and self.clock.monotonic() < until:
            visits += 1
            try:
                self._backlog.popleft().work()
            except Exception:
                log.exception("a connection could not go on")
        self._is_turn_arranged = bool(self._backlog)
        if self._is_turn_arranged:
            asyncio.get_running_loop().call_soon(self._work)

    def _stamp(self) -> None:
        self.date = f"Date: {format_date_time(self.clock.now().timestamp())}\r\n"


class Listener:
    """Accepts the connections of one listening socket.

    asyncio's server reports a connection only after its TLS handshake, but every accepted socket
    must be counted, and closed if needed.
    """

    def __init__(
        self, server: Server, listening: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        self._server = server
        self._socket = listening
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._arriving: set[asyncio.Task[None]] = set()
        self._loop.add_reader(listening, self._accept)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._arriving:
            task.cancel()

    def _accept(self) -> None:
        places, clock = self._server.places, self._server.clock
        for _ in range(_ACCEPTS_PER_TURN):
            if seconds := places.make_room(clock.monotonic()):
                self._rest(seconds)
                return
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                log.warning("connection not accepted error=%r", error.strerror)
                places.evict_stranger()
                self._rest(0.1)
                return
            self._receive(accepted)

    def _rest(self, seconds: float) -> None:
        """Pause accepting; new connections wait in the kernel's queue."""
        self._loop.remove_reader(self._socket)
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept)

    def _receive(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self._server)
        # The listener owns this task: it is cancelled when the listener is closed.
        task = self._loop.create_task(self._greet(connection, accepted))
        self._arriving.add(task)
        task.add_done_callback(lambda task: self._greeted(task, connection, accepted))
        connection.arrive(task)

    async def _greet(self, connection: "Connection", accepted: socket.socket) -> None:
        """Set up a connection, with its TLS handshake."""
        seconds = self._server.limits.handshake_seconds if self._tls else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except OSError as error:
            # Any client can cause this, so it is logged only at debug level.
            log.debug("handshake failed error=%r", error)

    def _greeted(
        self, task: "asyncio.Task[None]", connection: "Connection", accepted: socket.socket
    ) -> None:
        """Close a socket that did not become a connection. Not in `_greet`: a task that is
        cancelled before its first step runs none of its code."""
        self._arriving.discard(task)
        if not connection.is_made:
            accepted.close()
            self._server.places.leave(connection)


class Asked(NamedTuple):
    """A request that waits for its answer."""

    request: HttpRequest
    chunks: bool
    """Whether the peer understands chunked bodies; if not, the end of the answer is the end."""
    body_bytes: int
    """Bytes to release from the body budget."""


class Connection(asyncio.Protocol):
    """One client connection: parses, answers one request at a time, applies back-pressure."""

    _body: bytes | bytearray
    _size: int
    """Received bytes of the body."""
    _length: int
    """Of the body, if the peer has said."""
    _counted: int
    """Bytes of the body that the body budget has counted."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.paused = False
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._arriving: asyncio.Task[None] | None = None
        self._certificate: dict[str, Any] | None = None
        self._peer = ""
        self._identify: Callable[[Caller], None] | None = self._identified
        """Called with the caller after authentication."""
        self._parser = httptools.HttpRequestParser(self)
        self._unparsed = b""
        self._parsed = 0
        """How much of that is parsed."""
        self._waiting: deque[Asked] = deque()
        self._chunks = True
        self._body_bytes = 0
        """Of the request that is being answered, as the budget for bodies counts them."""
        self._task: asyncio.Task[None] | None = None
        self._streaming = False
        self._drained: asyncio.Future[None] | None = None
        self._closing = False
        """Whether no further request will be read."""
        self._is_lingering = False
        """Whether further input is discarded until the peer has read the error."""
        self._deadline = 0.0
        self._stalled_from = 0.0
        self._unsent = 0
        self._in_head = False
        self._in_body = False
        self._screened = False
        """Whether the incoming body was accepted."""
        self._received = 0
        self._discarded = 0
        self._unwritten: list[bytes] = []
        """Answers that are written when the loop has nothing else to do."""
        self._unwritten_size = 0
        self._has_answered = False
        """Whether a request was answered in this turn."""
        self._is_in_backlog = False
        self._is_reading = True
        self._messages = 0
        """How many messages the parser has begun to read."""
        self._held: bytes | None = None
        """What came after a request for another protocol; None if there was no such request."""
        self._duplex: Duplex | None = None
        """Who has taken the connection over."""
        self._reset()

    def arrive(self, arriving: "asyncio.Task[None]") -> None:
        """Take a place; `arriving` is the handshake, which comes first."""
        self._arriving = arriving
        self.server.places.arrive(self, self.server.clock.monotonic())

    @property
    def is_made(self) -> bool:
        """Whether the connection is, or was, established."""
        return self._transport is not None

    def evict(self) -> None:
        if self.is_made:
            self.abort()
        elif self._arriving is not None:
            self._arriving.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transports behave like asyncio's but do not derive from them.
        self._transport = cast(asyncio.Transport, transport)
        self._arriving = None
        self._certificate = _certificate(transport)
        self._peer = (transport.get_extra_info("peername") or ("",))[0]
        self.server.connections.add(self)
        self.server.places.arrive(self, self.server.clock.monotonic())
        self._wait_for(self.server.limits.first_seconds)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.connections.discard(self)
        self.server.places.leave(self)
        self._closing = True
        self._unparsed = b""
        self.server.bodies.forget(self)
        for asked in self._waiting:
            self.server.bodies.release(asked.body_bytes)
        self._waiting.clear()
        if self._task is not None:
            self._end_task(self._task)
        self.resume_writing()
        # They refer to each other: until that is found, a connection that is over takes 50 KB.
        self._parser = None  # type: ignore[assignment]
        self._identify = None

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        """End the handler, because the peer is gone. The handler of an upgraded connection
        notices the end when it reads, but may be waiting for something else."""
        if self._duplex is None:
            task.cancel()
        else:
            seconds = self.server.limits.takeover_seconds
            asyncio.get_running_loop().call_later(seconds, task.cancel)

    def _identified(self, caller: Caller) -> None:
        """Count the connection for its caller; raises 429 if the caller has too many."""
        try:
            if self.server.places.settle(self, caller):
                self._identify = None
        except StatusError:
            self._closing = True
            raise

    # Reading.

    def data_received(self, data: bytes) -> None:
        if self._held is not None:
            self._hold(data)
            return
        if self._closing:
            self._discarded += len(data)
            if self._discarded > self.server.limits.linger_bytes:
                self.abort()
            return
        self._has_answered = False
        if self._unparsed or not self._is_reading or len(data) > self._piece_size:
            self._unparsed = self._unparsed[self._parsed :] + data
            self._parsed = 0
            if not self._is_in_backlog:
                self._parse()
        else:
            self._feed(data)
        if self._waiting or self._unparsed or self._in_body:
            self._go_on()

    def _parse(self) -> None:
        """Parse until a request has to be handled first, or the turn is over."""
        for _ in range(_PIECES_PER_TURN):
            if self._is_busy or not self._may_take_body:
                return
            piece = self._unparsed[self._parsed : self._parsed + self._piece_size]
            self._parsed += len(piece)
            self._feed(piece)
            if self._closing or self._parsed >= len(self._unparsed):
                self._unparsed = b""
                return

    @property
    def _piece_size(self) -> int:
        """How many bytes can be parsed with little work: what is left of a body is one piece."""
        left = self._length - self._size if self._screened else 0
        return left if left > _PIECE else _PIECE

    def _feed(self, data: bytes) -> None:
        message = self._messages
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # Whoever answers may take the connection over; else it is answered and closed.
            self._hold(data[upgrade.args[0] :] + self._unparsed[self._parsed :])
            self._unparsed = b""
        except httptools.HttpParserError as error:
            self._refuse(bad_request(f"malformed HTTP request: {error}"))
        if message == self._messages:
            self._measure(len(data))
        if self._in_body and not self._closing and self._size > self._counted:
            self.server.bodies.grow(self, self._size - self._counted)
            self._counted = self._size

    @property
    def _is_busy(self) -> bool:
        """Whether earlier requests are still to be answered."""
        return self._task is not None or bool(self._waiting)

    @property
    def _may_take_body(self) -> bool:
        return self._screened or not self._in_body

    def work(self) -> None:
        """Do the next piece of work, if it does not have to wait."""
        self._is_in_backlog = False
        self._has_answered = False
        if self._task is not None or self._transport.is_closing():
            return
        if self._waiting:
            if not self.paused:
                self._begin(self._waiting.popleft())
        elif self._unparsed and self._may_take_body:
            self._parse()
        self._go_on()

    def _go_on(self) -> None:
        """After an event: continue reading, schedule more work, or close."""
        if self._in_body and not self._screened and not self._closing and not self._is_busy:
            self._screen()
        can_work = self._task is None and (
            not self.paused if self._waiting else bool(self._unparsed) and self._may_take_body
        )
        if can_work and not self._is_in_backlog:
            self._is_in_backlog = True
            self.server.work_soon(self)
        self._read_on_or_pause()
        self._finish_if_idle()

    def _read_on_or_pause(self) -> None:
        wanted = (
            not self._unparsed
            and len(self._waiting) < self.server.limits.pipelined
            and (self._closing or self._may_take_body)
        )
        if wanted is not self._is_reading and self._held is None:
            self._is_reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

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

    def _screen(self) -> None:
        """Check before more of a body is read whether the request will be refused. A request
        whose head and body come together is not checked twice."""
        self._screened = True
        screen = self.server.screen
        refusal = None if screen is None else screen(self._request(b""))
        if refusal is not None:
            self._reject(refusal)
            return
        self._wait_for(self.server.limits.body_seconds)
        if not self._size and self._headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def refuse_body(self) -> None:
        """Refuse the incoming body, because bodies use too much memory."""
        self.server.bodies.forget(self)
        self._body = b""
        self._refuse(too_many("the server has no memory left for the bodies of requests"))

    def eof_received(self) -> bool:
        # A client that half-closes after its request still gets its answer; TLS has no half-close.
        if self._held is not None or not self._is_busy:
            return False
        self._closing = not self._streaming
        return not self._streaming and self._transport.get_extra_info("sslcontext") is None

    # What httptools calls while it parses.

    def on_message_begin(self) -> None:
        self._messages += 1
        self._received = 0
        self._in_head = True
        if self._identify is None:
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
        self._in_body = True
        if self._closing:
            return
        length = self._headers.get("content-length")
        if length is not None and length.isdecimal():
            self._length = int(length)
            if self._length > self.server.limits.body_bytes:
                self._refuse(too_large(self.server.limits.body_bytes))

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self.server.limits.body_bytes:
            self._refuse(too_large(self.server.limits.body_bytes))
        elif self._closing:
            return
        elif not self._body:
            self._body = data
        else:
            # Not a list of pieces: those of the shortest chunks take thirty times their content.
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._closing:
            return
        chunks = self._parser.get_http_version() != "1.0"
        body = self._body if isinstance(self._body, bytes) else bytes(self._body)
        held = self.server.bodies.finish(self) if self._counted else 0
        asked = Asked(self._request(body), chunks, held)
        if not self._parser.should_keep_alive() or self._parser.should_upgrade() or not chunks:
            self._closing = True
        self._reset()
        if self._is_busy or self._has_answered or self.paused:
            self._waiting.append(asked)
        else:
            self._has_answered = True
            self._begin(asked)

    def _request(self, body: bytes) -> HttpRequest:
        path, _, query = _origin_form(self._url.decode("latin-1")).partition("?")
        return HttpRequest(
            self._parser.get_method().decode("latin-1"),
            path,
            query,
            self._headers,
            body,
            self._certificate,
            self._peer,
            self._identify,
        )

    # Answering.

    def _begin(self, asked: Asked) -> None:
        self._deadline = 0.0
        self._chunks = asked.chunks
        self._body_bytes = asked.body_bytes
        request = asked.request
        try:
            answer = self.server.handler(request)
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, request.path)
            answer = Response(500)
        if isinstance(answer, Response) and _is_short(answer, request):
            self._write_whole(answer, request.method)
            self._rest()
            return
        loop = asyncio.get_running_loop()
        # The connection owns this task: it is cancelled when the connection is lost.
        self._task = loop.create_task(self._answer(request, answer))

    def _rest(self) -> None:
        """Wait for the next request, after one was answered."""
        if self._body_bytes:
            self.server.bodies.release(self._body_bytes)
            self._body_bytes = 0
        limits = self.server.limits
        self._wait_for(limits.idle_seconds if self._identify is None else limits.first_seconds)
        if self._closing:
            self._finish_if_idle()

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
            self._rest()
        self._go_on()

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
            # Pieces are made when they are sent, with a turn of the event loop between two.
            await _next_turn()
        if packer:
            chunks.write(packer.flush())
        self._end_of_chunks()

    async def _hand_over(self, response: Response, take_over: TakeOver) -> None:
        if self._held is None:
            raise ValueError("a connection was to be taken over that has not been offered")
        lines = [header_line(name, value) for name, value in response.headers]
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
        answer = head if bodiless else head + response.body
        self._unwritten.append(answer)
        self._unwritten_size += len(answer)
        if self._unwritten_size > _UNWRITTEN:
            self.flush()

    def _write_head(self, response: Response, length: int | None) -> None:
        self.send(self._head(response, length))

    def _head(self, response: Response, length: int | None) -> bytes:
        lines = _REASONS.get(response.status) or f"HTTP/1.1 {response.status} Status\r\n"
        lines += f"Content-Type: {response.content_type}\r\n{self.server.date}"
        for name, value in response.headers:
            lines += header_line(name, value)
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
        if self.server.refused is not None:
            self.server.refused(_origin_form(self._url.decode("latin-1")), error)
        refusal = Response(error.code, msgspec.json.encode(error.status()), headers=[])
        if error.retry_after:
            refusal.headers.append(("Retry-After", str(error.retry_after)))
        self._reject(refusal)

    def _reject(self, refusal: Response) -> None:
        self._closing = True
        self._unparsed = b""
        self.server.bodies.forget(self)
        if self._is_busy:
            return  # what was asked before is still answered, but nothing after it
        self._write_whole(refusal)
        self._is_lingering = True
        self._wait_for(self.server.limits.linger_seconds)
        self._read_on_or_pause()

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
        if self._waiting and not self._is_in_backlog and self._task is None:
            self._is_in_backlog = True
            self.server.work_soon(self)

    async def drain(self) -> None:
        if self.paused:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        if self._transport.is_closing():
            raise ConnectionResetError("the client has gone")

    def send(self, data: bytes) -> None:
        """Write at once, after whatever still waits to be written."""
        if self._unwritten:
            data = b"".join((*self._unwritten, data))
            self._unwritten.clear()
            self._unwritten_size = 0
        if not self._transport.is_closing():
            self._transport.write(data)

    def flush(self) -> None:
        if self._unwritten:
            self.send(b"")

    def expire(self, now: float) -> None:
        """End what has run out of time: the peer owes us a request, or takes no answer."""
        if self._deadline and now > self._deadline:
            self.abort()
        elif self._duplex is not None:
            self._expire_takeover(self._duplex, now)
        elif self.paused:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent:
                self._stalled_from = now
            elif now > self._stalled_from + self.server.limits.stall_seconds:
                self.abort()
            self._unsent = unsent

    def _expire_takeover(self, duplex: Duplex, now: float) -> None:
        """End an upgraded connection whose peer is gone if its handler does not read."""
        if not duplex.has_lost_its_peer:
            self._stalled_from = 0.0
        elif not self._stalled_from:
            self._stalled_from = now
        elif now > self._stalled_from + self.server.limits.takeover_seconds:
            self.abort()

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._task is not None

    def finish(self) -> None:
        """Close when the request under way is done; at once if it is a stream."""
        self._closing = True
        self._unparsed = b""
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
        if self._closing and not self._is_lingering and not self._is_busy:
            self.flush()
            self._transport.close()

    def _wait_for(self, seconds: float) -> None:
        if self._task is None:
            self._deadline = self.server.clock.monotonic() + seconds

    def _reset(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body = b""
        self._size = 0
        self._length = 0
        self._counted = 0
        self._head_size = 0
        self._screened = False

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


async def _listening(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host; raises OSError."""
    loop = asyncio.get_running_loop()
    kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
    found = await loop.getaddrinfo(host or None, port, type=kind, flags=passive)
    made: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(found):
            listening = socket.socket(family, kind | socket.SOCK_NONBLOCK)
            made.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _bind(listening, address)
            listening.listen(_BACKLOG)
    except BaseException:
        for listening in made:
            listening.close()
        raise
    return made


def _bind(listening: socket.socket, address: Any) -> None:
    try:
        listening.bind(address)
    except OSError as error:
        why = f"cannot listen on {address[0]} port {address[1]}: {error.strerror}"
        raise OSError(error.errno, why) from None


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
    """Wait one turn of the event loop."""
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
