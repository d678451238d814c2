"""EtcdClient: calls to one member of an etcd cluster at a time, and to the next if it fails."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final

from kedge.machinery import grpc_library
from kedge.machinery.clock import Clock
from kedge.machinery.task_group import OwnedTask
from kedge.storage.etcd import messages as m
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.failures import EtcdFailure, FailureKind, failure_kind

CALL_SECONDS: Final = 4.0
"""How long one member may take for an answer. An election takes a second or two."""
PATIENCE_SECONDS: Final = 8.0
"""How long requests are repeated, so that the loss of a member is not noticed by clients."""
RETRY_SECONDS: Final = 0.1
_QUEUED: Final = 8
_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd closes connections with more than one ping per 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)

log = logging.getLogger(__name__)


class _Member:
    """The connection to one member."""

    def __init__(self, endpoint: str, channel: Any) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.streams: set[_WatchStream] = set()
        self._calls: dict[str, Callable[..., Awaitable[bytes]]] = {}

    def unary(self, method: str) -> Callable[..., Awaitable[bytes]]:
        call = self._calls.get(method)
        if call is None:
            call = self._calls[method] = self.channel.unary_unary(method)
        return call

    async def close(self) -> None:
        """Close the connection, and end all calls and streams on it."""
        # A stream that begins at the same moment would not notice the end of its channel.
        for stream in self.streams:
            stream.end(_disconnected(self))
        await self.channel.close()


class _WatchStream:
    """A watch on one connection: a task reads answers, until it fails or is ended."""

    def __init__(
        self,
        member: _Member,
        start: int,
        metadata: tuple[tuple[str, str], ...],
        failure: Callable[[_Member, Any], EtcdFailure],
    ) -> None:
        self._member = member
        self._call = member.channel.stream_stream(m.WATCH)(metadata=metadata)
        self._failure_of = failure
        self._failure: EtcdFailure | None = None
        # Few: what is not read yet waits at the member.
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED)
        self._reading = OwnedTask(self._read(start))

    async def answers(self) -> AsyncIterator[m.WatchAnswer]:
        while True:
            data = await self._queue.get()
            if self._failure is not None or data is None:
                raise self._failure or _disconnected(self._member)
            yield m.read_watch(data)

    def end(self, failure: EtcdFailure) -> None:
        """Let the reader of answers fail now."""
        self._failure = self._failure or failure
        self._reading.cancel()
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def close(self) -> None:
        await self._reading.close()
        self._call.cancel()

    async def _read(self, start: int) -> None:
        try:
            await self._call.write(m.watch_request(start))
            while isinstance(data := await self._call.read(), bytes):
                await self._queue.put(data)
            await self._queue.put(None)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            self.end(_disconnected(self._member))
        except Exception as error:  # errors of gRPC, and that of a stream which has ended
            self.end(self._failure_of(self._member, error))


class EtcdClient:
    """Requests and answers as bytes; errors are EtcdFailure."""

    def __init__(self, connection: EtcdConnection, clock: Clock) -> None:
        """`clock` is that of the machine. Raises StoreError if files cannot be used."""
        self._connection = connection
        self._clock = clock
        self._user = connection.user()
        self._tls = connection.tls() if connection.has_tls else None
        self._grpc: Any = None
        self._next = 0
        self._member: _Member | None = None
        self._failing_since: float | None = None
        self._token = ""
        self._authenticating = asyncio.Lock()
        if connection.shows_password:
            log.warning(
                "etcd password is sent in clear endpoints=%s: set --etcd-cafile to use TLS",
                self.endpoints,
            )

    @property
    def endpoints(self) -> str:
        return ",".join(self._connection.endpoints)

    async def close(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            await member.close()

    async def read(self, method: str, request: bytes) -> bytes:
        """Call a method without effects, again and again while members fail."""
        return await self._repeat(method, request, lambda failure: failure.is_passing)

    async def write(self, method: str, request: bytes) -> bytes:
        """Call a method with an effect; repeated only after failures without effect."""
        return await self._repeat(
            method, request, lambda failure: failure.kind is FailureKind.WITHOUT_EFFECT
        )

    async def _repeat(
        self, method: str, request: bytes, may_repeat: Callable[[EtcdFailure], bool]
    ) -> bytes:
        while True:
            try:
                answer = await self.call(method, request)
            except EtcdFailure as failure:
                if not may_repeat(failure) or self._is_down(failure):
                    raise
            else:
                self._failing_since = None
                return answer
            await self._clock.sleep(RETRY_SECONDS)

    def _is_down(self, failure: EtcdFailure) -> bool:
        """Whether no member has answered for a while. Clients then learn so at once, instead of
        waiting as long again."""
        if not failure.is_passing:
            return False
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since > PATIENCE_SECONDS

    async def call(self, method: str, request: bytes) -> bytes:
        """Call a method once, and once more with a new token if the old one has expired."""
        await self._authenticate()
        token = self._token
        try:
            return await self._unary(method, request)
        except EtcdFailure as failure:
            if failure.kind is not FailureKind.TOKEN or self._user is None:
                raise
        await self._authenticate(token)
        return await self._unary(method, request)

    async def watch(self, start: int) -> AsyncGenerator[m.WatchAnswer, None]:
        """Yield the answers of a watch of all keys, until it fails."""
        await self._authenticate()
        member = await self._connected()
        stream = _WatchStream(member, start, self._metadata(), self._failure)
        member.streams.add(stream)
        try:
            async for answer in stream.answers():
                yield answer
        except EtcdFailure as failure:
            await self._leave_after(member, failure)
            raise
        finally:
            member.streams.discard(stream)
            await stream.close()

    async def renew_token(self) -> None:
        """Authenticate again, because a watch was refused."""
        await self._authenticate(self._token)

    async def _unary(self, method: str, request: bytes) -> bytes:
        member = await self._connected()
        try:
            return await member.unary(method)(
                request, timeout=CALL_SECONDS, metadata=self._metadata()
            )
        except (self._grpc.aio.AioRpcError, self._grpc.aio.UsageError) as error:
            failure = self._failure(member, error)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            failure = _disconnected(member)
        await self._leave_after(member, failure)
        raise failure

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        # With it a member that is cut off from the leader fails instead of serving old data.
        leader = ("hasleader", "true")
        return (leader, ("token", self._token)) if self._token else (leader,)

    async def _authenticate(self, expired: str = "") -> None:
        if self._user is None or self._token != expired:
            return
        async with self._authenticating:
            if self._token != expired:
                return  # another call did it
            self._token = ""
            request = m.authenticate_request(*self._user)
            try:
                self._token = m.read_token(await self._unary(m.AUTHENTICATE, request))
            except EtcdFailure:
                self._token = expired
                raise

    async def _connected(self) -> _Member:
        if self._member is None:
            if self._grpc is None:
                self._grpc = await asyncio.to_thread(grpc_library.load)
            if self._member is None:
                endpoint = self._connection.endpoints[self._next]
                self._member = _Member(endpoint, self._channel(endpoint))
        return self._member

    def _channel(self, endpoint: str) -> Any:
        if self._tls is None:
            return self._grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        credentials = self._grpc.ssl_channel_credentials(*self._tls)
        return self._grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)

    def _failure(self, member: _Member, error: Any) -> EtcdFailure:
        if not isinstance(error, self._grpc.aio.AioRpcError):
            return _disconnected(member)
        text = error.details() or error.code().name
        return EtcdFailure(failure_kind(error.code().name, text), member.endpoint, text)

    async def _leave_after(self, member: _Member, failure: EtcdFailure) -> None:
        if failure.is_passing:
            await self._leave(member, failure.text)

    async def _leave(self, member: _Member, why: str) -> None:
        """Go to the next member. The connection to this one is closed, with all calls on it: they
        would wait for a member that may be stuck, and the watch would be late."""
        endpoints = self._connection.endpoints
        if len(endpoints) == 1 or member is not self._member:
            return
        self._next = (self._next + 1) % len(endpoints)
        self._member = None
        log.warning("etcd member left endpoint=%s error=%s", member.endpoint, why)
        await member.close()


def _is_cancelled() -> bool:
    """Whether the task itself was cancelled, and not a call by the end of its connection."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _disconnected(member: _Member) -> EtcdFailure:
    return EtcdFailure(FailureKind.UNKNOWN, member.endpoint, "the connection was closed")
