"""Questions about names outside of the cluster, which the machine's resolvers answer.

Every query has an identity of its own, chosen at random, and a socket of its own, so that answers
are hard to forge. Clients with the same question wait for the same query; that also ends loops, in
which a resolver of the machine asks this server again.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Final

from kedge.dns.answer_cache import AnswerCache
from kedge.dns.message import (
    FORMERR,
    NOERROR,
    NOTIMP,
    NXDOMAIN,
    REFUSED,
    SERVFAIL,
    TRUNCATED,
    DnsAnswer,
    MalformedMessage,
)
from kedge.dns.response import UpstreamQuestion, UpstreamResponse, parse_response
from kedge.dns.upstream_servers import SocketAddress, UpstreamServers
from kedge.dns.upstream_sockets import DatagramQuery, OpenQuery, QuerySocket, StreamQuery
from kedge.machinery.clock import Clock

MOST_QUERIES: Final = 400
"""Questions that wait for an answer."""
MOST_PER_SOURCE: Final = 100
"""Those of them that one client asked first."""
MOST_WAITING: Final = 64
"""Clients that wait for one answer."""
TRY_SECONDS: Final = 1.4
"""Seconds before the next server is asked; all tries take less than the 5 seconds of the C
library."""
SWEEP_SECONDS: Final = 0.2
MOST_FORGED: Final = 16
"""Invalid messages after which a query is given up."""

Done = Callable[[DnsAnswer], None]
_FAILURE: Final = DnsAnswer(SERVFAIL)
_REFUSAL: Final = DnsAnswer(REFUSED)


class Upstream:
    """Asks the machine's resolvers, with a cache. The owner must `run` it."""

    def __init__(
        self,
        servers: UpstreamServers,
        cache: AnswerCache,
        clock: Clock,
        *,
        datagram: OpenQuery = DatagramQuery,
        stream: OpenQuery = StreamQuery,
    ) -> None:
        self._servers = servers
        self._cache = cache
        self._clock = clock
        self._datagram = datagram
        self._stream = stream
        self._waiting: dict[UpstreamQuestion, UpstreamExchange] = {}
        self._sources: Counter[str] = Counter()
        self._busy = asyncio.Event()

    def ask(self, question: UpstreamQuestion, source: str, done: Done) -> None:
        """Call `done` with the answer, now or later. Refuse a client that asks too much."""
        if (known := self._cache.get(question)) is not None:
            done(known)
        elif (exchange := self._waiting.get(question)) is not None:
            exchange.join(done)
        elif not self._has_room(source):
            done(_REFUSAL)
        elif not (order := self._servers.order()) or (self._servers.all_down() and self._waiting):
            # One question at a time finds out whether a server is back.
            done(_FAILURE)
        else:
            self._begin(question, source, order, done)

    def _has_room(self, source: str) -> bool:
        """Return whether a client may ask one more question. If all clients together have too many,
        the one that has most of them loses its newest question to one that has fewer."""
        own = self._sources[source]
        if own >= MOST_PER_SOURCE or len(self._waiting) < MOST_QUERIES:
            return own < MOST_PER_SOURCE
        greedy = max(self._sources, key=self._sources.__getitem__)
        if self._sources[greedy] <= own + 1:
            return False
        exchanges = reversed(self._waiting.values())
        next(each for each in exchanges if each.source == greedy).finish(_REFUSAL)
        return True

    def _begin(
        self,
        question: UpstreamQuestion,
        source: str,
        order: tuple[SocketAddress, ...],
        done: Done,
    ) -> None:
        def finished(answer: DnsAnswer) -> None:
            del self._waiting[question]
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]
            if not answer.flags & TRUNCATED:
                self._cache.put(question, answer)

        exchange = UpstreamExchange(
            question,
            source,
            order,
            self._servers,
            self._clock,
            finished,
            datagram=self._datagram,
            stream=self._stream,
        )
        self._waiting[question] = exchange
        self._sources[source] += 1
        self._busy.set()
        exchange.join(done)
        exchange.try_next()

    async def run(self) -> None:
        """Ask the next server when one does not answer, until cancelled."""
        try:
            while True:
                await self._busy.wait()
                await self._clock.sleep(SWEEP_SECONDS)
                now = self._clock.monotonic()
                for exchange in list(self._waiting.values()):
                    exchange.check(now)
                if not self._waiting:
                    self._busy.clear()
        finally:
            for exchange in list(self._waiting.values()):
                exchange.finish(_FAILURE)


class UpstreamExchange:
    """One question on its way through the resolvers, and the clients that wait for it.

    Answers of earlier tries count until the end: a resolver may need a while for a name.
    """

    def __init__(
        self,
        question: UpstreamQuestion,
        source: str,
        order: tuple[SocketAddress, ...],
        servers: UpstreamServers,
        clock: Clock,
        finished: Done,
        *,
        datagram: OpenQuery,
        stream: OpenQuery,
    ) -> None:
        self.source = source
        """The client that asked first."""
        self._question = question
        self._left = list(order)
        self._servers = servers
        self._clock = clock
        self._finished = finished
        self._datagram = datagram
        self._stream = stream
        self._identity = secrets.randbits(16)
        self._clients: list[Done] = []
        self._sockets: list[QuerySocket] = []
        self._deadline = 0.0
        self._edns = True
        self._forged = 0
        self._best = _FAILURE
        """The answer if no server has a better one."""
        self._is_done = False

    def join(self, done: Done) -> None:
        """Add a client that waits for the answer."""
        if len(self._clients) >= MOST_WAITING:
            done(_REFUSAL)
        else:
            self._clients.append(done)

    def try_next(self) -> None:
        """Ask the next server; without one, finish."""
        while self._left:
            if self._send(self._datagram, self._left.pop(0)):
                return
        self.finish(self._best)

    def _send(self, carry: OpenQuery, server: SocketAddress) -> bool:
        message = self._question.message(self._identity, edns=self._edns)
        try:
            self._sockets.append(carry(server, message, self))
        except OSError:
            self._servers.failed(server, refused=True)
            return False
        self._deadline = self._clock.monotonic() + TRY_SECONDS
        return True

    def check(self, now: float) -> None:
        """Go on if the server that was asked last took too long."""
        if now < self._deadline or self._is_done:
            return
        if self._is_truncated:
            self.finish(self._best)
            return
        for each in self._sockets[-1:]:
            self._servers.failed(each.server)
        self.try_next()

    @property
    def _is_truncated(self) -> bool:
        """Whether there is the beginning of an answer, and the rest was asked for over TCP."""
        return bool(self._best.flags & TRUNCATED)

    def received(self, source: QuerySocket, message: bytes) -> None:
        if self._is_done:
            return
        try:
            response = parse_response(message, self._identity, self._question)
        except MalformedMessage:
            self._forged += 1
            if self._forged > MOST_FORGED:
                self.finish(self._best)
            return
        self._servers.answered(source.server)
        self._take(source, response)

    def _take(self, source: QuerySocket, response: UpstreamResponse) -> None:
        answer = response.answer
        if response.is_truncated:
            self._best = answer._replace(flags=answer.flags | TRUNCATED)
            if not self._send(self._stream, source.server):
                self.finish(self._best)
        elif answer.rcode in (FORMERR, NOTIMP) and self._edns and not response.has_edns:
            # A server from before 1999 does not know EDNS.
            self._edns = False
            self._left.insert(0, source.server)
            self.try_next()
        elif answer.rcode in (NOERROR, NXDOMAIN):
            self.finish(answer)
        else:
            self._best = DnsAnswer(answer.rcode)
            self.try_next()

    def refused(self, source: QuerySocket) -> None:
        if self._is_done:
            return
        source.close()
        if self._is_truncated:
            # The server works, only not over TCP.
            self.finish(self._best)
            return
        self._servers.failed(source.server, refused=True)
        if self._sockets and source is self._sockets[-1]:
            self.try_next()

    def finish(self, answer: DnsAnswer) -> None:
        """Close everything and give the answer to all clients."""
        if self._is_done:
            return
        self._is_done = True
        for each in self._sockets:
            each.close()
        self._finished(answer)
        for done in self._clients:
            done(answer)
