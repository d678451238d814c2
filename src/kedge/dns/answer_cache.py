"""Answers of the machine's resolvers, kept for as long as their records live and bounded in
bytes."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kedge.dns.message import NOERROR, NXDOMAIN, SERVFAIL, SOA, DnsAnswer, DnsRecord
from kedge.dns.response import UpstreamQuestion
from kedge.machinery.clock import Clock

MOST_BYTES: Final = 4 * 1024 * 1024
LONGEST_SECONDS: Final = 3600
LONGEST_NEGATIVE_SECONDS: Final = 300
FAILURE_SECONDS: Final = 5
"""Seconds for which a failure is kept, as RFC 9520 advises."""
_RECORD_BYTES: Final = 250
"""Memory of a record besides its name and its data, measured with tracemalloc."""
_ANSWER_BYTES: Final = 600


class _CachedAnswer(NamedTuple):
    answer: DnsAnswer
    stored: float
    expires: float
    size: int


class AnswerCache:
    """Keeps answers by question; the ones that were not asked for the longest make room."""

    def __init__(self, clock: Clock, most_bytes: int = MOST_BYTES) -> None:
        self.size = 0
        """Estimated bytes of all answers."""
        self._clock = clock
        self._most_bytes = most_bytes
        self._answers: dict[UpstreamQuestion, _CachedAnswer] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, question: UpstreamQuestion) -> DnsAnswer | None:
        """Return an answer with the rest of its records' lifetimes; None if there is none."""
        found = self._answers.pop(question, None)
        if found is None:
            return None
        now = self._clock.monotonic()
        if now >= found.expires:
            self.size -= found.size
            return None
        self._answers[question] = found
        return aged(found.answer, int(now - found.stored))

    def put(self, question: UpstreamQuestion, answer: DnsAnswer) -> None:
        """Keep an answer if it may be kept."""
        seconds = lifetime(answer)
        size = _size(question, answer)
        if seconds <= 0 or size > self._most_bytes // 16:
            return
        if old := self._answers.pop(question, None):
            self.size -= old.size
        now = self._clock.monotonic()
        self._answers[question] = _CachedAnswer(answer, now, now + seconds, size)
        self.size += size
        while self.size > self._most_bytes:
            self.size -= self._answers.pop(next(iter(self._answers))).size


def lifetime(answer: DnsAnswer) -> int:
    """Return for how many seconds an answer may be kept; 0 if not at all."""
    if answer.rcode == SERVFAIL:
        return FAILURE_SECONDS
    if answer.rcode not in (NOERROR, NXDOMAIN):
        return 0
    if answer.records and answer.rcode == NOERROR:
        every = (*answer.records, *answer.authority, *answer.additional)
        return min(LONGEST_SECONDS, *(record.ttl for record in every))
    return min(LONGEST_NEGATIVE_SECONDS, _negative_lifetime(answer))


def _negative_lifetime(answer: DnsAnswer) -> int:
    """Return the lifetime of an answer without records: the SOA record states it (RFC 2308)."""
    for record in answer.authority:
        if record.type == SOA and len(record.data) >= 4:
            shortest = min((each.ttl for each in answer.records), default=record.ttl)
            return min(record.ttl, shortest, int.from_bytes(record.data[-4:], "big"))
    return 0


def aged(answer: DnsAnswer, seconds: int) -> DnsAnswer:
    """Return the answer with lifetimes that are so many seconds shorter."""
    if not seconds:
        return answer
    return answer._replace(
        records=_aged(answer.records, seconds),
        authority=_aged(answer.authority, seconds),
        additional=_aged(answer.additional, seconds),
    )


def _aged(records: Sequence[DnsRecord], seconds: int) -> list[DnsRecord]:
    return [
        DnsRecord(owner, kind, max(0, ttl - seconds), data) for owner, kind, ttl, data in records
    ]


def _size(question: UpstreamQuestion, answer: DnsAnswer) -> int:
    every = (*answer.records, *answer.authority, *answer.additional)
    content = sum(_RECORD_BYTES + len(record.owner) + len(record.data) for record in every)
    return _ANSWER_BYTES + len(question.name) + content
