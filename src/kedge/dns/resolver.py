"""Decides where an answer comes from: the cluster's zone, the machine's resolvers, or both."""

from typing import Protocol

from kedge.dns.message import (
    AUTHENTIC,
    CHECKING_DISABLED,
    NOERROR,
    TRUNCATED,
    DnsAnswer,
    DnsQuery,
)
from kedge.dns.response import UpstreamQuestion
from kedge.dns.upstream import Done
from kedge.dns.zone import ClusterZone


class Forwarder(Protocol):
    """Answers questions about names of other domains."""

    def ask(self, question: UpstreamQuestion, source: str, done: Done) -> None: ...


class ClusterResolver:
    """Answers queries of pods."""

    def __init__(self, zone: ClusterZone, upstream: Forwarder) -> None:
        self._zone = zone
        self._upstream = upstream

    def answer(self, query: DnsQuery) -> DnsAnswer | None:
        """Return an answer that needs no other server; None if it does."""
        if query.rcode:
            return DnsAnswer(query.rcode)
        found = self._zone.find(query.labels, query.type)
        return found.answer if found is not None and found.alias is None else None

    def forward(self, query: DnsQuery, source: str, done: Done) -> None:
        """Ask the machine's resolvers; `done` is called with the answer, now or later."""
        found = self._zone.find(query.labels, query.type)
        if found is None:
            self._upstream.ask(_question(query, query.name), source, done)
        elif found.alias is None:
            done(found.answer)
        else:
            own = found.answer
            target = _question(query, found.alias)
            self._upstream.ask(target, source, lambda rest: done(joined(own, rest)))


def _question(query: DnsQuery, name: bytes) -> UpstreamQuestion:
    flags = query.flags & (CHECKING_DISABLED | AUTHENTIC)
    return UpstreamQuestion(name, query.type, flags, query.is_dnssec_ok)


def joined(own: DnsAnswer, rest: DnsAnswer) -> DnsAnswer:
    """Return the CNAME records of a Service, followed by the answer for their target. Clients such
    as musl need them in this order."""
    return DnsAnswer(
        rest.rcode,
        [*own.records, *rest.records],
        rest.authority if rest.rcode != NOERROR or not rest.records else (),
        flags=own.flags | rest.flags & TRUNCATED,
    )
