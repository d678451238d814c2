"""DNS over TCP: several queries per connection, each behind its length in two bytes (RFC 7766)."""

import asyncio
from collections import Counter
from functools import partial
from typing import Final, cast

from kedge.dns.message import (
    TCP_SIZE,
    DnsAnswer,
    DnsQuery,
    build_response,
    parse_query,
)
from kedge.dns.query_budget import QueryBudget
from kedge.dns.resolver import ClusterResolver
from kedge.dns.source_filter import SourceFilter
from kedge.machinery.clock import Clock

MOST_CONNECTIONS: Final = 256
MOST_PER_SOURCE: Final = 32
IDLE_SECONDS: Final = 10.0
"""Seconds between two queries of a connection."""
LARGEST_QUERY: Final = 4096
MOST_PENDING: Final = 16
"""Queries of a connection that wait for an answer."""
QUERIES_PER_TURN: Final = 16
_LENGTH: Final = 2


class TcpConnections:
    """The open connections, with limits."""

    def __init__(
        self,
        resolver: ClusterResolver,
        sources: SourceFilter,
        budget: QueryBudget,
        clock: Clock,
    ) -> None:
        self.resolver = resolver
        self.budget = budget
        self.clock = clock
        self._sources = sources
        self._open: set[DnsConnection] = set()
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def connection(self) -> "DnsConnection":
        """Return the protocol of a new connection."""
        return DnsConnection(self)

    def admits(self, source: str) -> bool:
        """Return whether a connection of this client is accepted. Another one may be closed for
        it, so call `opened` next."""
        if not self._sources.admits(source):
            return False
        if rivals := self._rivals(source):
            oldest = min(rivals, key=lambda each: each.active)
            self.closed(oldest)
            oldest.abort()
        return True

    def _rivals(self, source: str) -> "list[DnsConnection]":
        """Return the candidates if a connection has to make room: those of the client itself if
        it has its share, else those of the clients that have most. So a few clients together
        cannot keep others out."""
        own, most = self._counts[source], max(self._counts.values(), default=0)
        is_full = len(self._open) >= MOST_CONNECTIONS
        if own >= MOST_PER_SOURCE or (is_full and own >= most):
            return [each for each in self._open if each.source == source]
        if is_full:
            return [each for each in self._open if self._counts[each.source] == most]
        return []

    def opened(self, connection: "DnsConnection") -> None:
        self._open.add(connection)
        self._counts[connection.source] += 1

    def closed(self, connection: "DnsConnection") -> None:
        if connection not in self._open:
            return
        self._open.remove(connection)
        self._counts[connection.source] -= 1
        if not self._counts[connection.source]:
            del self._counts[connection.source]

    def close_idle(self) -> None:
        """Close the connections without a query for a while."""
        now = self.clock.monotonic()
        for each in list(self._open):
            if now - each.active >= IDLE_SECONDS:
                each.abort()

    def close(self) -> None:
        for each in list(self._open):
            each.abort()


class DnsConnection(asyncio.Protocol):
    """One connection. It reads no further while answers are pending or not read."""

    def __init__(self, connections: TcpConnections) -> None:
        self.source = ""
        self.active = connections.clock.monotonic()
        """When the last query came."""
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._pending = 0
        self._can_write = True
        self._is_scheduled = False
        self._is_half_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        self.source = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._connections.admits(self.source):
            stream.abort()
            return
        self._transport = stream
        self._connections.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._connections.closed(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._process()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._process()

    def eof_received(self) -> bool:
        # A client may close its side and still wait for answers.
        self._is_half_closed = True
        return self._pending > 0

    def _process(self) -> None:
        """Handle the queries that have arrived; leave the rest for the next turn of the loop."""
        self._is_scheduled = False
        for _ in range(QUERIES_PER_TURN):
            if self._is_blocked or not self._next():
                break
        else:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._process)
        self._set_reading(not self._is_blocked and not self._is_scheduled)

    @property
    def _is_blocked(self) -> bool:
        return self._pending >= MOST_PENDING or not self._can_write

    def _set_reading(self, wanted: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading() == wanted:
            return
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _next(self) -> bool:
        """Handle one query; return whether there was one."""
        if len(self._received) < _LENGTH or self._transport is None:
            return False
        size = int.from_bytes(self._received[:_LENGTH], "big")
        if size > LARGEST_QUERY:
            self.abort()
            return False
        if len(self._received) < _LENGTH + size:
            return False
        message = bytes(self._received[_LENGTH : _LENGTH + size])
        del self._received[: _LENGTH + size]
        query = parse_query(message)
        if query is None or not self._connections.budget.admits(self.source):
            self.abort()
            return False
        self.active = self._connections.clock.monotonic()
        self._handle(query)
        return True

    def _handle(self, query: DnsQuery) -> None:
        resolver = self._connections.resolver
        answer = resolver.answer(query)
        if answer is not None:
            self._connections.budget.charge(self.source, answer.size)
            self._write(query, answer)
            return
        self._pending += 1
        resolver.forward(query, self.source, partial(self._reply, query))

    def _reply(self, query: DnsQuery, answer: DnsAnswer) -> None:
        self._pending -= 1
        self._write(query, answer)
        if self._is_half_closed and not self._pending and self._transport is not None:
            self._transport.close()
        if not self._is_scheduled and self._received:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._process)
        elif not self._is_scheduled:
            self._set_reading(not self._is_blocked)

    def _write(self, query: DnsQuery, answer: DnsAnswer) -> None:
        if self._transport is not None:
            message = build_response(query, answer, TCP_SIZE)
            self._transport.write(len(message).to_bytes(_LENGTH, "big") + message)
