import pytest

from kedge.dns.answer_cache import AnswerCache, lifetime
from kedge.dns.message import NXDOMAIN, REFUSED, SERVFAIL, SOA, A, DnsAnswer, DnsRecord
from kedge.dns.response import UpstreamQuestion
from kedge.testing.clock import FakeClock

QUESTION = UpstreamQuestion(b"\1a\0", A)


def record(ttl: int) -> DnsRecord:
    return DnsRecord(b"\1a\0", A, ttl, bytes(4))


def soa(ttl: int, minimum: int) -> DnsRecord:
    return DnsRecord(b"\0", SOA, ttl, b"\0\0" + bytes(16) + minimum.to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (DnsAnswer(records=[record(60), record(30)]), 30),
        (DnsAnswer(records=[record(60)], additional=[record(20)]), 20),
        (DnsAnswer(records=[record(0)]), 0),
        (DnsAnswer(records=[record(10**6)]), 3600),
        (DnsAnswer(NXDOMAIN, authority=[soa(60, 30)]), 30),
        (DnsAnswer(NXDOMAIN, authority=[soa(20, 30)]), 20),
        (DnsAnswer(NXDOMAIN, [record(7)], [soa(20, 30)]), 7),
        (DnsAnswer(authority=[soa(9000, 9000)]), 300),
        (DnsAnswer(NXDOMAIN), 0),
        (DnsAnswer(), 0),
        (DnsAnswer(SERVFAIL), 5),
        (DnsAnswer(REFUSED), 0),
    ],
)
def test_how_long_an_answer_is_kept(answer: DnsAnswer, seconds: int) -> None:
    assert lifetime(answer) == seconds


async def test_lifetimes_shrink_and_end() -> None:
    clock = FakeClock()
    cache = AnswerCache(clock)
    cache.put(QUESTION, DnsAnswer(records=[record(60), record(90)]))
    assert cache.get(QUESTION) == DnsAnswer(records=[record(60), record(90)])
    await clock.advance(20)
    assert cache.get(QUESTION) == DnsAnswer(
        records=[record(40), record(70)], authority=[], additional=[]
    )
    await clock.advance(40)
    assert cache.get(QUESTION) is None
    assert (len(cache), cache.size) == (0, 0)


def test_questions_are_told_apart_by_all_that_changes_the_answer() -> None:
    cache = AnswerCache(FakeClock())
    cache.put(QUESTION, DnsAnswer(records=[record(60)]))
    assert cache.get(QUESTION._replace(is_dnssec_ok=True)) is None
    assert cache.get(QUESTION._replace(type=28)) is None


def test_the_answers_that_were_not_asked_for_make_room() -> None:
    cache = AnswerCache(FakeClock(), most_bytes=20_000)
    questions = [UpstreamQuestion(bytes([1, each, 0]), A) for each in range(100)]
    for each in questions:
        cache.get(questions[0])
        cache.put(each, DnsAnswer(records=[record(60)]))
        assert cache.size <= 20_000
    assert cache.get(questions[0]) is not None
    assert cache.get(questions[1]) is None
    assert cache.get(questions[99]) is not None


def test_replacing_an_answer_keeps_the_size_right() -> None:
    cache = AnswerCache(FakeClock())
    for _ in range(3):
        cache.put(QUESTION, DnsAnswer(records=[record(60)]))
    once = AnswerCache(FakeClock())
    once.put(QUESTION, DnsAnswer(records=[record(60)]))
    assert (len(cache), cache.size) == (1, once.size)


def test_a_very_large_answer_is_not_kept() -> None:
    cache = AnswerCache(FakeClock(), most_bytes=20_000)
    cache.put(QUESTION, DnsAnswer(records=[record(60)] * 100))
    assert len(cache) == 0
