"""Transport: how requests reach a server; LocalTransport calls one in the same process."""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    # Loaded where it is used: a short command that sends one request does without an event loop.
    import asyncio

    from kedge.machinery.clock import Clock

BUFFER = 1 << 20
"""Bytes of a stream that may wait to be read before its source is asked to pause."""
_PIECE_BYTES = 48
"""Memory that a piece takes beside its content: a server may send chunks of one byte."""


class Unreachable(ConnectionError):
    """The server could not be reached, or went away before it had answered."""


class Call(msgspec.Struct, frozen=True):
    """One request."""

    method: str
    path: str
    """Percent-encoded."""
    query: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""
    told: bool = False
    """Whether a server in the same process may tell events instead of spelling them out."""


class Reply(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case; repeated ones joined by a comma."""
    body: bytes


class Stream(msgspec.Struct, frozen=True):
    """An answer whose body is read while it is being written."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]
    tidings: "WatchInflow | None" = None
    """The events of a watch, if the server tells them; the pieces are then not to be read."""

    async def whole(self) -> bytes:
        """All that is left of the body."""
        return b"".join([piece async for piece in self.pieces])

    async def at_most(self, most: int) -> bytes | None:
        """Return the whole body; None if it has more bytes."""
        # Not a list of pieces: small ones would take many times their content.
        kept = bytearray()
        async for piece in self.pieces:
            if len(kept) + len(piece) > most:
                return None
            kept += piece
        return bytes(kept)


class Transport(Protocol):
    """Carries requests to one server, under one identity."""

    async def send(self, call: Call) -> Reply:
        """The answer to a request; raises Unreachable if there is none, never for a status."""
        ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[Stream]:
        """The answer as a stream, which ends with the context at the latest."""
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...


class Inflow:
    """A stream between a writer that never waits and one reader: to servers it is a sink."""

    def __init__(self, resumed: Callable[[], None] | None = None, buffer: int = BUFFER) -> None:
        self._pieces: list[Any] = []
        self._size = 0
        self._ended = False
        self._error: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._space: asyncio.Future[None] | None = None
        self._buffer = buffer
        self._resumed = resumed
        """Called when the reader has caught up after a pause."""

    @property
    def paused(self) -> bool:
        return self._size > self._buffer

    def write(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data) + _PIECE_BYTES
        _resolve(self._arrival)

    async def drain(self) -> None:
        if self._ended:
            raise ConnectionResetError("the reader has gone")
        if self.paused:
            if self._space is None:
                import asyncio

                self._space = asyncio.get_running_loop().create_future()
            await self._space

    def end(self, error: Exception | None = None) -> None:
        """Nothing follows, or nothing but an error."""
        if not self._ended:
            self._ended = True
            self._error = error
            _resolve(self._arrival)

    def detach(self) -> None:
        """The writer is gone: do not signal it that the reader has caught up."""
        self._resumed = None

    def __aiter__(self) -> "Inflow":
        return self

    async def __anext__(self) -> bytes:
        pieces = await self._taken()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _taken(self) -> list[Any]:
        """All that has come since the last time; waits until there is something."""
        while not self._pieces:
            if isinstance(self._error, Unreachable):
                # Not the same one: what is raised refers to the readers, and they to this stream.
                raise Unreachable(*self._error.args)
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            import asyncio

            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        was_paused = self.paused
        taken, self._pieces = self._pieces, []
        self._size = 0
        if was_paused:
            _resolve(self._space)
            self._space = None
            if self._resumed is not None:
                self._resumed()
        return taken


News = bytes | tuple[str, bytes]
"""A piece of text, or an event: its type and its encoded object."""


class WatchInflow(Inflow):
    """An Inflow of a watch: most events come as objects handed over, the others as text."""

    def tell(self, type_: str, body: bytes) -> None:
        """An event and the encoded object, whole even if only a part of it was asked for."""
        self._pieces.append((type_, body))
        self._size += len(body)
        _resolve(self._arrival)

    async def news(self) -> "list[News]":
        """The text and the events that have come; waits until there are some."""
        return await self._taken()


def _resolve(future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done():
        future.set_result(None)


class LocalSink(Protocol):
    """The destination of a stream from a server in the same process."""

    @property
    def paused(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...


Pour = Callable[[LocalSink], Awaitable[None]]
Body = bytes | Iterable[bytes] | Pour


class LocalResponse(Protocol):
    """The response of a server in the same process."""

    @property
    def status(self) -> int: ...

    @property
    def body(self) -> Body:
        """Whole, in pieces, or as a function that writes it to a sink for as long as it likes."""
        ...

    @property
    def content_type(self) -> str: ...

    @property
    def headers(self) -> Sequence[tuple[str, str]]: ...


Handler = Callable[[Call], LocalResponse | Awaitable[LocalResponse]]
"""A server in the same process; it knows who its callers are."""


class LocalTransport:
    """Fulfils Transport without a network: calls the server as a function."""

    def __init__(self, handler: Handler, clock: "Clock | None" = None) -> None:
        """With a clock, each call gives way to requests from the network: reads never block, so
        a loop of them would keep the event loop."""
        self._handler = handler
        self._clock = clock

    async def send(self, call: Call) -> Reply:
        answer = await self._answer(call)
        body = answer.body
        if isinstance(body, bytes):
            return Reply(answer.status, _headers(answer), body)
        if not callable(body):
            return Reply(answer.status, _headers(answer), b"".join(body))
        inflow = Inflow()
        await _pour(body, inflow)
        return Reply(answer.status, _headers(answer), b"".join([piece async for piece in inflow]))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        import asyncio

        answer = await self._answer(call)
        body = answer.body
        if not callable(body):
            pieces = [body] if isinstance(body, bytes) else body
            yield Stream(answer.status, _headers(answer), _each(pieces))
            return
        tidings = WatchInflow() if call.told else None
        inflow = tidings or Inflow()
        # This context owns the task. A TaskGroup would wrap exceptions of the caller in a group.
        task = asyncio.get_running_loop().create_task(_pour(body, inflow))
        try:
            yield Stream(answer.status, _headers(answer), inflow, tidings)
        finally:
            inflow.end()
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        pass

    async def _answer(self, call: Call) -> LocalResponse:
        if self._clock is not None:
            await self._clock.give_way()
        answer = self._handler(call)
        return await answer if isinstance(answer, Awaitable) else answer


async def _pour(body: Pour, inflow: Inflow) -> None:
    try:
        await body(inflow)
    except Exception as error:
        inflow.end(error)
    finally:
        inflow.end()


async def _each(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _headers(answer: LocalResponse) -> Mapping[str, str]:
    headers = {"content-type": answer.content_type}
    for name, value in answer.headers:
        key = name.lower()
        headers[key] = f"{headers[key]},{value}" if key in headers else value
    return headers
