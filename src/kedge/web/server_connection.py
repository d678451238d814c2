"""One connection of a client: reads requests, answers one at a time, applies back-pressure."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, cast

import msgspec

from kedge.machinery.errors import StatusError
from kedge.web.connection_limits import ConnectionCaller, too_many
from kedge.web.connection_owner import ConnectionOwner, PendingRequest
from kedge.web.duplex import Duplex
from kedge.web.http2_refusal import HTTP2_REFUSAL
from kedge.web.message import HttpRequest, Response, TakeOver
from kedge.web.output import Chunks, Output, write_pieces
from kedge.web.request_reader import RequestReader, origin_form, split_target
from kedge.web.response_head import (
    BODILESS,
    fits_one_write,
    is_short,
    slices,
    split_first,
    takes_gzip,
    upgrade_head,
)
from kedge.web.tenant_turns import MeteredWork, TenantLoad

log = logging.getLogger(__name__)

_MAX_HELD = 64 << 10
"""Bytes of another protocol that may arrive before the upgrade is answered."""
_PIECE = 4 << 10
"""Bytes that are parsed in one call. The parser cannot be stopped in the middle, and this much
contains more than two hundred of the shortest requests."""
_PIECES_PER_TURN = 16
"""Pieces of one body that are parsed per turn."""


class ServerConnection(asyncio.Protocol):
    """The state of one connection. Its methods are grouped: arrival, reading, answering, end."""

    def __init__(self, server: ConnectionOwner) -> None:
        self.server = server
        self.closing = False
        """Whether no further request will be read."""
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._output: Output = None  # type: ignore[assignment]
        self._handshake: asyncio.Task[None] | None = None
        self._certificate: dict[str, Any] | None = None
        self._peer = ""
        self._identify: Callable[[ConnectionCaller], None] | None = self._identified
        """Called with the caller after authentication."""
        self.load: TenantLoad[ServerConnection] | None = server.turns.load("")
        """The load of the caller's tenant, or of all strangers; None if it need not share."""
        self._reader = RequestReader(self, server.limits, server.comma_headers)
        self._counted = 0
        """Bytes of the incoming body that the body budget has counted."""
        self._screened = False
        """Whether the incoming body was accepted."""
        self._unparsed = b""
        self._parsed = 0
        """Bytes of it that are parsed."""
        self._waiting: deque[PendingRequest] = deque()
        self._chunked = True
        self._body_bytes = 0
        """Bytes that the request under way has in the body budget."""
        self._task: asyncio.Task[None] | None = None
        self._streaming = False
        self._is_lingering = False
        """Whether further input is discarded until the peer has read the error."""
        self._deadline = 0.0
        self._peer_lost_at = 0.0
        self._discarded = 0
        self._has_answered = False
        """Whether a request was answered in this turn."""
        self._is_in_backlog = False
        self._is_reading = True
        self._held: bytes | None = None
        """Bytes after a request for another protocol; None if there was no such request."""
        self._duplex: Duplex | None = None
        """The connection after an upgrade."""

    # Arrival.

    def arrive(self, handshake: "asyncio.Task[None]") -> None:
        """Take a slot while the handshake is under way."""
        self._handshake = handshake
        self.server.slots.arrive(self, self.server.clock.monotonic())

    def discard(self) -> None:
        """End the object of a connection that was not made: nothing it refers to refers to it."""
        self.server.slots.leave(self)
        self._handshake = None
        self._reader.close()
        self._identify = None

    @property
    def is_made(self) -> bool:
        """Whether the connection is, or was, established."""
        return self._transport is not None

    def evict(self) -> None:
        if self.is_made:
            self.abort()
        elif self._handshake is not None:
            self._handshake.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transports behave like asyncio's but do not derive from them.
        self._transport = cast(asyncio.Transport, transport)
        self._output = Output(self._transport, self.server)
        self._handshake = None
        self._certificate = self.server.certificates.of(transport)
        self._peer = (transport.get_extra_info("peername") or ("",))[0]
        self.server.connections.add(self)
        self.server.slots.arrive(self, self.server.clock.monotonic())
        self._wait_for(self.server.limits.first_seconds)

    def _identified(self, caller: ConnectionCaller) -> None:
        """Count the connection for its caller; raises 429 if the caller has too many."""
        try:
            if self.server.slots.settle(self, caller):
                self._identify = None
                turns = self.server.turns
                self.load = None if caller.is_privileged else turns.load(caller.tenant)
        except StatusError:
            self.closing = True
            raise

    # Reading.

    def data_received(self, data: bytes) -> None:
        if self._held is not None:
            self._hold(data)
            return
        if self.closing:
            self._discarded += len(data)
            if self._discarded > self.server.limits.linger_bytes:
                self.abort()
            return
        self._has_answered = False
        if (
            self._unparsed
            or not self._is_reading
            or (len(data) > _PIECE and len(data) > self._piece_size)
        ):
            self._unparsed = self._unparsed[self._parsed :] + data
            self._parsed = 0
            if not self._is_in_backlog:
                self._parse()
        elif (target := self._reader.target_of_known(data)) is not None:
            self._get_received(target)
        else:
            self._feed(data)
        if self._waiting or self._unparsed or self._reader.in_body:
            self._continue()

    def _parse(self) -> None:
        """Parse until a request has to be handled first, or the turn is over."""
        for _ in range(_PIECES_PER_TURN):
            if self._is_busy or not self._may_take_body:
                return
            piece = self._unparsed[self._parsed : self._parsed + self._piece_size]
            self._parsed += len(piece)
            self._feed(piece)
            if self.closing or self._parsed >= len(self._unparsed):
                self._unparsed = b""
                return

    @property
    def _piece_size(self) -> int:
        """How many bytes can be parsed with little work: the rest of a body is one piece."""
        left = self._reader.length - self._reader.size if self._takes_body else 0
        return left if left > _PIECE else _PIECE

    def _feed(self, data: bytes) -> None:
        reader = self._reader
        used = reader.feed(data)
        if used >= 0:
            # The handler may take the connection over; otherwise it is answered and closed.
            self._hold(data[used:] + self._unparsed[self._parsed :])
            self._unparsed = b""
        if reader.in_body and not self.closing and reader.size > self._counted:
            self.server.bodies.grow(self, reader.size - self._counted)
            self._counted = reader.size

    @property
    def _is_busy(self) -> bool:
        """Whether earlier requests are still to be answered."""
        return self._task is not None or bool(self._waiting)

    @property
    def _may_take_body(self) -> bool:
        return not self._reader.in_body or self._takes_body

    @property
    def _takes_body(self) -> bool:
        """Whether the body was let in, or the rest of it is here: then there is no more to be
        refused before it is read, and the handler checks the request anyway."""
        left = self._reader.length - self._reader.size
        return self._screened or 0 < left <= len(self._unparsed) - self._parsed

    def work(self) -> None:
        """Do the next piece of work, if it does not have to wait."""
        self._is_in_backlog = False
        self._has_answered = False
        if self._task is not None or self._transport.is_closing():
            return
        if self._waiting:
            if not self._output.paused:
                pending = self._waiting.popleft()
                begun = self.server.clock.monotonic()
                self._begin(pending.request, pending.chunked, pending.body_bytes, begun)
        elif self._unparsed and self._may_take_body:
            self._parse()
        self._continue()

    def _continue(self) -> None:
        """After an event: continue reading, schedule more work, or close."""
        if self._reader.in_body and not self._screened and not self.closing and not self._is_busy:
            self._screen()
        can_work = self._task is None and (
            not self._output.paused
            if self._waiting
            else bool(self._unparsed) and self._may_take_body
        )
        if can_work and not self._is_in_backlog:
            self._is_in_backlog = True
            self.server.work_soon(self)
        self._read_on_or_pause()
        self._finish_if_idle()

    def _read_on_or_pause(self) -> None:
        is_ready = (
            not self._unparsed
            and len(self._waiting) < self.server.limits.pipelined
            and (self.closing or self._may_take_body)
        )
        if is_ready is not self._is_reading and self._held is None:
            self._is_reading = is_ready
            if is_ready:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _hold(self, data: bytes) -> None:
        """Keep bytes for the handler that takes the connection over."""
        self._held = (self._held or b"") + data
        if len(self._held) > _MAX_HELD:
            self._transport.pause_reading()

    def _screen(self) -> None:
        """Check before more of a body is read whether the request will be refused. A request
        whose head and body arrive together is not checked twice."""
        self._screened = True
        screen = self.server.screen
        refusal = None if screen is None else screen(self._request(b""))
        if refusal is not None:
            self._reject(refusal)
            return
        self._wait_for(self.server.limits.body_seconds)
        expects = self._reader.headers.get("expect", "").lower()
        if not self._reader.size and expects == "100-continue":
            self._output.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def refuse_body(self) -> None:
        """Refuse the incoming body, because bodies use too much memory."""
        self.server.bodies.forget(self)
        self._reader.body = b""
        self.refuse(too_many("the server has no memory left for the bodies of requests"))

    def eof_received(self) -> bool:
        # A client that half-closes after its request still gets its answer; TLS has no half-close.
        if self._held is not None or not self._is_busy:
            return False
        self.closing = not self._streaming
        return not self._streaming and self._transport.get_extra_info("sslcontext") is None

    def request_begun(self) -> None:
        if self._identify is None:
            self._wait_for(self.server.limits.head_seconds)

    def request_received(self, body: bytes, *, chunked: bool, is_last: bool) -> None:
        held = self.server.bodies.finish(self) if self._counted else 0
        request = self._request(body)
        if is_last:
            self.closing = True
        self._reader.reset()
        self._counted = 0
        self._screened = False
        now = self.server.clock.monotonic()
        if self._is_next(now):
            self._has_answered = True
            self._begin(request, chunked, held, now)
        else:
            self._waiting.append(PendingRequest(request, chunked, held))

    def _get_received(self, target: bytes) -> None:
        """Handle a GET with known header fields: most requests are, so it takes few calls. The
        request passes the same steps as any other."""
        path, _, query = target.decode("latin-1").partition("?")
        request = HttpRequest(
            "GET",
            path,
            query,
            self._reader.known_headers,
            b"",
            self._certificate,
            self._peer,
            self._identify,
            self._queued,
        )
        now = self.server.clock.monotonic()
        if self._is_next(now):
            self._begin(request, True, 0, now)
        else:
            self.request_begun()
            self._waiting.append(PendingRequest(request, True, 0))

    def _is_next(self, now: float) -> bool:
        """Return whether a request that was read now is answered now."""
        if self._task is not None or self._waiting or self._has_answered or self._output.paused:
            return False
        load = self.load
        return (load is None or not load.is_busy(now)) and self.server.share.is_left()

    def _request(self, body: bytes) -> HttpRequest:
        reader = self._reader
        host, target = split_target(reader.url.decode("latin-1"))
        path, _, query = target.partition("?")
        if host:
            # It counts instead of the header (RFC 9112, 3.2.2).
            reader.headers["host"] = host
        return HttpRequest(
            reader.method,
            path,
            query,
            reader.headers,
            body,
            self._certificate,
            self._peer,
            self._identify,
            self._queued,
        )

    # Answering.

    def _begin(self, request: HttpRequest, chunked: bool, body_bytes: int, begun: float) -> None:
        self._deadline = 0.0
        self._chunked = chunked
        self._body_bytes = body_bytes
        try:
            answer = self.server.handler(request)
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, request.path)
            answer = Response(500)
        if isinstance(answer, Response) and is_short(answer, request):
            self._write_whole(answer, request.method)
            self._rest(begun)
        else:
            self._answer_soon(request, answer)
        if self.load is not None:
            self.load.spend(begun, self.server.clock.monotonic())

    def _answer_soon(self, request: HttpRequest, answer: Response | Awaitable[Response]) -> None:
        """Finish an answer in a task."""
        work: Coroutine[Any, Any, None] = self._answer(request, answer)
        if self.load is not None:
            self.server.turns.begin(self, self.load)
            work = MeteredWork(work, self.load, self.server.turns)
        # The connection owns this task: it is cancelled when the connection is lost.
        self._task = asyncio.get_running_loop().create_task(work)

    def _queued(self, is_queued: bool) -> None:
        """Do not hold back busy tenants while the request waits behind theirs: it would wait for
        requests that wait for it."""
        if is_queued:
            self.server.turns.end(self)
        elif self.load is not None and self._task is not None:
            self.server.turns.begin(self, self.load)

    def _rest(self, now: float) -> None:
        """Wait for the next request, after one was answered."""
        if self._body_bytes:
            self.server.bodies.release(self._body_bytes)
            self._body_bytes = 0
        limits = self.server.limits
        seconds = limits.idle_seconds if self._identify is None else limits.first_seconds
        self._deadline = now + seconds
        if self.closing:
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
            self.server.turns.end(self)
            self._task = None
            self._streaming = False
            self._rest(self.server.clock.monotonic())
        self._continue()

    async def _write(self, request: HttpRequest, response: Response) -> None:
        if response.take_over is not None:
            self.server.turns.end(self)
            await self._hand_over(response, response.take_over)
        elif is_short(response, request):
            self._write_whole(response, request.method)
        elif callable(response.body):
            self._streaming = True
            self.server.turns.end(self)
            chunks = self._begin_chunks(response)
            await response.body(chunks)
            chunks.end()
        else:
            await self._write_pieces(request, response, *split_first(response.body))

    async def _write_pieces(
        self, request: HttpRequest, response: Response, first: bytes, rest: Iterable[bytes] | None
    ) -> None:
        """Write a body of several pieces, or a long one in pieces, compressed if possible."""
        if rest is None and fits_one_write(first, request):
            response.body = first
            self._write_whole(response, request.method)
            return
        if request.method == "HEAD":
            self._output.write(self._head(response, response.length))
            return
        gzip = takes_gzip(request)
        if rest is None and not gzip:
            response.length = len(first)
        if gzip:
            response.headers.append(("Content-Encoding", "gzip"))
            response.headers.append(("Vary", "Accept-Encoding"))
        pieces = slices(first) if rest is None else rest
        await write_pieces(self._begin_chunks(response), pieces, self.server.pieces, gzip=gzip)

    def _begin_chunks(self, response: Response) -> Chunks:
        """Write the head of a response that is sent in pieces; returns its body."""
        self._output.write(self._head(response, response.length))
        if response.length is not None:
            self._chunked = False
        return Chunks(self._output, framed=self._chunked)

    async def _hand_over(self, response: Response, take_over: TakeOver) -> None:
        if self._held is None:
            raise ValueError("the client has not asked for another protocol")
        self._output.send(upgrade_head(response, self.server.heads.date))
        held, self._held = self._held, b""
        self._duplex = Duplex.over(self._transport, held, self.connection_lost)
        try:
            await take_over(self._duplex)
        finally:
            self._duplex.close()

    def _write_whole(self, response: Response, method: str = "") -> None:
        body = response.body
        assert isinstance(body, bytes)
        is_head = method == "HEAD"
        known = response.length is not None or (is_head and not body)
        head = self._head(response, response.length if known else len(body))
        bodiless = is_head or response.status in BODILESS
        self._output.write_one(head if bodiless else head + body)

    def _head(self, response: Response, length: int | None) -> bytes:
        close = self.closing and not self._waiting
        return self.server.heads.of(response, length, close=close, chunked=self._chunked)

    def refuse(self, error: StatusError) -> None:
        """Answer and close: further input of the peer is not worth reading."""
        if self.closing:
            return
        if self.server.refused is not None:
            self.server.refused(origin_form(self._reader.url.decode("latin-1")), error)
        refusal = Response(error.code, msgspec.json.encode(error.status()), headers=[])
        if error.retry_after:
            refusal.headers.append(("Retry-After", str(error.retry_after)))
        self._reject(refusal)

    def refuse_http2(self) -> None:
        """Refuse a client that speaks HTTP/2, in HTTP/2."""
        if not self.closing and not self._is_busy:
            self._output.write(HTTP2_REFUSAL)
            self._stop_reading()

    def _reject(self, refusal: Response) -> None:
        self.closing = True
        if self._is_busy:
            # Earlier requests are still answered, but nothing after them.
            self._forget_input()
            return
        self._write_whole(refusal)
        self._stop_reading()

    def _forget_input(self) -> None:
        self._unparsed = b""
        self.server.bodies.forget(self)

    def _stop_reading(self) -> None:
        """Discard further input for a while, so that the peer can read the answer."""
        self.closing = True
        self._forget_input()
        self._is_lingering = True
        self._wait_for(self.server.limits.linger_seconds)
        self._read_on_or_pause()

    def pause_writing(self) -> None:
        self._output.pause(self.server.clock.monotonic())

    def resume_writing(self) -> None:
        self._output.resume()
        if self._waiting and not self._is_in_backlog and self._task is None:
            self._is_in_backlog = True
            self.server.work_soon(self)

    # End.

    def _wait_for(self, seconds: float) -> None:
        if self._task is None:
            self._deadline = self.server.clock.monotonic() + seconds

    def expire(self, now: float) -> None:
        """End a connection whose peer sends no request in time, or does not read its response."""
        limits = self.server.limits
        if self._deadline and now > self._deadline:
            self.abort()
        elif self._duplex is not None:
            self._expire_takeover(self._duplex, now)
        elif self._output.has_stalled(now, limits.stall_seconds):
            self.abort()

    def _expire_takeover(self, duplex: Duplex, now: float) -> None:
        """End an upgraded connection whose peer is gone if its handler does not read."""
        if not duplex.has_lost_its_peer:
            self._peer_lost_at = 0.0
        elif not self._peer_lost_at:
            self._peer_lost_at = now
        elif now > self._peer_lost_at + self.server.limits.takeover_seconds:
            self.abort()

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._task is not None

    def finish(self) -> None:
        """Close when the request under way is done; at once if it is a stream."""
        self.closing = True
        self._unparsed = b""
        if self._duplex is not None:
            self._duplex.close()
        elif self._streaming and self._task is not None:
            self._task.cancel()
            Chunks(self._output, framed=self._chunked).end()
            self._transport.close()
        else:
            self._finish_if_idle()

    def _finish_if_idle(self) -> None:
        if self.closing and not self._is_lingering and not self._is_busy:
            self._output.flush()
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.server.connections.discard(self)
        self.server.slots.leave(self)
        self.server.turns.end(self)
        self.closing = True
        self._unparsed = b""
        self.server.bodies.forget(self)
        for pending in self._waiting:
            self.server.bodies.release(pending.body_bytes)
        self._waiting.clear()
        if self._task is not None:
            self._end_task(self._task)
        self.resume_writing()
        self._reader.close()
        self._identify = None

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        """End the handler, because the peer is gone. The handler of an upgraded connection
        notices the end when it reads, but may be waiting for something else."""
        if self._duplex is None:
            task.cancel()
        else:
            seconds = self.server.limits.takeover_seconds
            asyncio.get_running_loop().call_later(seconds, task.cancel)
