import dns.message
import pytest

from kedge.dns.cluster_index import ClusterIndex
from kedge.dns.message import (
    AUTHORITATIVE,
    CNAME,
    NXDOMAIN,
    REFUSED,
    SERVFAIL,
    SOA,
    TRUNCATED,
    A,
    DnsAnswer,
    DnsQuery,
    DnsRecord,
    parse_query,
)
from kedge.dns.resolver import ClusterResolver, joined
from kedge.dns.response import UpstreamQuestion
from kedge.dns.upstream import Done
from kedge.dns.zone import ClusterZone
from kedge.testing.dns import new_service

TARGET = b"\4docs\7example\3com\0"


class FixedUpstream:
    """Gives one answer to every question."""

    def __init__(self, answer: DnsAnswer) -> None:
        self.answer = answer
        self.asked: list[UpstreamQuestion] = []

    def ask(self, question: UpstreamQuestion, source: str, done: Done) -> None:
        self.asked.append(question)
        done(self.answer)


RECORD = DnsRecord(TARGET, A, 60, bytes(4))
SOA_RECORD = DnsRecord(b"\3com\0", SOA, 60, b"\0\0" + bytes(20))


@pytest.fixture
def upstream() -> FixedUpstream:
    return FixedUpstream(DnsAnswer(records=[RECORD]))


@pytest.fixture
def resolver(upstream: FixedUpstream) -> ClusterResolver:
    index = ClusterIndex()
    index.put_service(new_service("web", "10.96.1.1"))
    index.put_service(new_service("docs", "", type="ExternalName", externalName="docs.example.com"))
    return ClusterResolver(ClusterZone(index, "cluster.local", bytes(4), 1), upstream)


def query(name: str, kind: str = "A") -> DnsQuery:
    found = parse_query(dns.message.make_query(name, kind, want_dnssec=True).to_wire())
    assert found is not None
    return found


def forwarded(resolver: ClusterResolver, asked: DnsQuery) -> DnsAnswer:
    assert resolver.answer(asked) is None
    answers: list[DnsAnswer] = []
    resolver.forward(asked, "10.244.0.5", answers.append)
    return answers[0]


def test_names_of_the_cluster_need_no_other_server(
    resolver: ClusterResolver, upstream: FixedUpstream
) -> None:
    for name in ("web.default.svc.cluster.local", "nope.default.svc.cluster.local"):
        assert resolver.answer(query(name)) is not None
    alias = resolver.answer(query("docs.default.svc.cluster.local", "CNAME"))
    assert alias is not None
    assert not upstream.asked


def test_a_malformed_query_is_refused(resolver: ClusterResolver) -> None:
    assert resolver.answer(DnsQuery(1, 0, REFUSED)) == DnsAnswer(REFUSED)


def test_other_names_are_asked_elsewhere(
    resolver: ClusterResolver, upstream: FixedUpstream
) -> None:
    assert forwarded(resolver, query("Example.com")) == upstream.answer
    assert upstream.asked == [UpstreamQuestion(b"\7example\3com\0", A, 0, is_dnssec_ok=True)]


def test_a_service_with_an_external_name(
    resolver: ClusterResolver, upstream: FixedUpstream
) -> None:
    answer = forwarded(resolver, query("docs.default.svc.cluster.local"))
    assert [(each.type, each.data) for each in answer.records] == [(CNAME, TARGET), (A, bytes(4))]
    assert upstream.asked[0].name == TARGET


@pytest.mark.parametrize(
    ("rest", "wanted"),
    [
        (DnsAnswer(records=[RECORD], authority=[SOA_RECORD]), DnsAnswer(records=[RECORD] * 2)),
        (DnsAnswer(NXDOMAIN, authority=[SOA_RECORD]), DnsAnswer(NXDOMAIN, [RECORD], [SOA_RECORD])),
        (DnsAnswer(authority=[SOA_RECORD]), DnsAnswer(0, [RECORD], [SOA_RECORD])),
        (DnsAnswer(SERVFAIL), DnsAnswer(SERVFAIL, [RECORD])),
        (DnsAnswer(flags=TRUNCATED), DnsAnswer(0, [RECORD], flags=TRUNCATED)),
    ],
)
def test_joined_answers(rest: DnsAnswer, wanted: DnsAnswer) -> None:
    own = DnsAnswer(records=[RECORD], flags=AUTHORITATIVE)
    assert joined(own, rest) == wanted._replace(flags=wanted.flags | AUTHORITATIVE)


def test_a_name_that_came_into_being_meanwhile(resolver: ClusterResolver) -> None:
    answers: list[DnsAnswer] = []
    resolver.forward(query("web.default.svc.cluster.local"), "10.244.0.5", answers.append)
    assert len(answers[0].records) == 1
