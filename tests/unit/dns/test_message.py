"""The codec against dnspython, which knows DNS better than any table of bytes."""

import struct
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.dns import names
from kedge.dns.message import (
    AAAA,
    AUTHORITATIVE,
    BADVERS,
    CNAME,
    EDNS_SIZE,
    FORMERR,
    NOTIMP,
    PLAIN_SIZE,
    REFUSED,
    SOA,
    SRV,
    TCP_SIZE,
    A,
    DnsAnswer,
    DnsQuery,
    DnsRecord,
    build_response,
    parse_query,
)

LABELS = st.text("abcXYZ019-_", min_size=1, max_size=20)
NAMES = st.lists(LABELS, min_size=1, max_size=6).map(".".join)


def wire(text: str) -> bytes:
    found = names.from_text(text)
    assert found is not None
    return found


def parsed(data: bytes) -> DnsQuery:
    found = parse_query(data)
    assert found is not None
    return found


def asked(name: str = "Web.default.svc", kind: str = "A", **options: Any) -> DnsQuery:
    return parsed(dns.message.make_query(name, kind, **options).to_wire())


def shown(data: bytes) -> dns.message.Message:
    """Read a response with dnspython, which refuses malformed ones."""
    return dns.message.from_wire(data)


@given(NAMES, st.sampled_from(["A", "AAAA", "SRV", "PTR", "TXT", "HTTPS"]), st.integers(0, 4096))
def test_a_query_is_read_as_dnspython_wrote_it(name: str, kind: str, payload: int) -> None:
    query = dns.message.make_query(name, kind, use_edns=0, payload=payload, want_dnssec=True)
    data = query.to_wire()
    found = parsed(data)
    assert found.id == query.id
    assert found.rcode == 0
    assert found.name == wire(name)
    assert found.labels == tuple(name.lower().encode().split(b"."))
    assert found.type == dns.rdatatype.from_text(kind)
    assert found.question == data[12 : 12 + len(found.name) + 4]
    assert found.has_edns
    assert found.is_dnssec_ok
    assert found.size == min(max(payload, PLAIN_SIZE), EDNS_SIZE)


def test_a_query_without_edns_gets_512_bytes() -> None:
    found = parsed(dns.message.make_query("a.b", "A", use_edns=False).to_wire())
    assert (found.has_edns, found.size, found.is_dnssec_ok) == (False, 512, False)


HEAD = struct.Struct("!6H")
QUESTION = b"\1a\0\0\1\0\1"
OPT = b"\0\0\x29\4\xd0\0\0\0\0\0\0"


@pytest.mark.parametrize(
    ("data", "rcode"),
    [
        (HEAD.pack(7, 0x2800, 1, 0, 0, 0) + QUESTION, NOTIMP),
        (HEAD.pack(7, 0, 0, 0, 0, 0), FORMERR),
        (HEAD.pack(7, 0, 2, 0, 0, 0) + QUESTION * 2, FORMERR),
        (HEAD.pack(7, 0, 1, 1, 0, 0) + QUESTION, FORMERR),
        (HEAD.pack(7, 0, 1, 0, 0, 9) + QUESTION + OPT, FORMERR),
        (HEAD.pack(7, 0, 1, 0, 0, 0) + QUESTION[:4], FORMERR),
        (HEAD.pack(7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", FORMERR),
        (HEAD.pack(7, 0, 1, 0, 0, 0) + b"\x3f" + b"x" * 63, FORMERR),
        (HEAD.pack(7, 0, 1, 0, 0, 0) + (b"\x3f" + b"x" * 63) * 4 + b"\0\0\1\0\1", FORMERR),
        (HEAD.pack(7, 0, 1, 0, 0, 2) + QUESTION + OPT * 2, FORMERR),
        (HEAD.pack(7, 0, 1, 0, 0, 1) + QUESTION + b"\1x" + OPT, FORMERR),
        (HEAD.pack(7, 0, 1, 0, 0, 1) + QUESTION + OPT[:-1] + b"\5", FORMERR),
        (HEAD.pack(7, 0, 1, 0, 0, 1) + QUESTION + OPT[:6] + b"\1\0\0\0\0", BADVERS),
        (HEAD.pack(7, 0, 1, 0, 0, 0) + b"\1a\0\0\1\0\3", REFUSED),
        (HEAD.pack(7, 0, 1, 0, 0, 0) + b"\1a\0\0\xfc\0\1", REFUSED),
        (HEAD.pack(7, 0, 1, 0, 0, 1) + QUESTION + OPT, 0),
    ],
)
def test_queries_that_are_refused_for_their_form(data: bytes, rcode: int) -> None:
    found = parsed(data)
    assert (found.id, found.rcode) == (7, rcode)
    answer = shown(build_response(found, DnsAnswer(found.rcode), found.size))
    assert answer.rcode() == rcode
    assert answer.id == 7


@pytest.mark.parametrize("data", [b"", b"\0" * 11, HEAD.pack(7, 0x8000, 1, 0, 0, 0) + QUESTION])
def test_responses_and_fragments_are_not_answered(data: bytes) -> None:
    assert parse_query(data) is None


def test_the_case_of_the_question_is_kept() -> None:
    query = asked("wEb.DEFAULT.svc")
    data = build_response(query, DnsAnswer(records=[record(query.name)]), 512)
    assert b"\3wEb\7DEFAULT\3svc" in data
    assert str(shown(data).answer[0].name) == "wEb.DEFAULT.svc."


def record(owner: bytes, number: int = 1) -> DnsRecord:
    return DnsRecord(owner, A, 5, bytes([10, 0, number >> 8, number & 255]))


ADDRESSES = st.builds(
    lambda data, owner: DnsRecord(wire(owner), A, 5, data), st.binary(min_size=4, max_size=4), NAMES
)
ALIASES = st.builds(lambda to, owner: DnsRecord(wire(owner), CNAME, 60, wire(to)), NAMES, NAMES)
SERVERS = st.builds(
    lambda to, owner: DnsRecord(wire(owner), SRV, 0, b"\0\1\0\2\0\3" + wire(to)), NAMES, NAMES
)
ZONES = st.builds(
    lambda one, other, owner: DnsRecord(wire(owner), SOA, 9, wire(one) + wire(other) + bytes(20)),
    *[NAMES] * 3,
)
RECORDS = st.lists(ADDRESSES | ALIASES | SERVERS | ZONES, max_size=15, unique=True)


def listed(section: list[dns.rrset.RRset]) -> set[tuple[bytes, int, bytes]]:
    return {
        (
            rrset.name.to_wire() or b"",
            int(rrset.rdtype),
            (rdata.to_wire(origin=None) or b"").lower(),
        )
        for rrset in section
        for rdata in rrset
    }


def expected(records: list[DnsRecord]) -> set[tuple[bytes, int, bytes]]:
    return {(each.owner, each.type, each.data.lower()) for each in records}


@settings(max_examples=40, deadline=None)
@given(NAMES, RECORDS, RECORDS, RECORDS)
def test_a_response_holds_the_records_that_dnspython_finds(
    name: str, first: list[DnsRecord], second: list[DnsRecord], third: list[DnsRecord]
) -> None:
    query = asked(name)
    answer = DnsAnswer(0, first, second, third, AUTHORITATIVE)
    data = build_response(query, answer, TCP_SIZE)
    response = shown(data)
    for section, records in zip(response.sections[1:], (first, second, third), strict=True):
        assert {(o.lower(), k, d) for o, k, d in listed(section)} == expected(records)
    assert response.flags & dns.flags.AA
    assert not response.flags & dns.flags.TC
    assert dns.message.make_query(name, "A", id=query.id).is_response(response)


@settings(max_examples=40, deadline=None)
@given(RECORDS, st.integers(512, 1232))
def test_a_truncated_response_is_a_valid_one_with_whole_records(
    records: list[DnsRecord], limit: int
) -> None:
    query = asked("a.b", use_edns=0)
    data = build_response(query, DnsAnswer(records=records), limit)
    response = shown(data)
    assert len(data) <= limit
    count = struct.unpack_from("!H", data, 6)[0]
    assert {(o.lower(), k, d) for o, k, d in listed(response.answer)} == expected(records[:count])
    assert bool(response.flags & dns.flags.TC) == (count < len(records))


def test_additional_records_are_left_out_first() -> None:
    query = asked("a.b", use_edns=False)
    many = [record(query.name, number) for number in range(40)]
    data = build_response(query, DnsAnswer(records=many[:10], additional=many), 512)
    response = shown(data)
    assert not response.flags & dns.flags.TC
    assert len(response.answer[0]) == 10
    assert 0 < len(response.additional[0]) < 40


def test_edns_is_answered_only_if_it_was_asked_for() -> None:
    plain, extended = asked("a.b", use_edns=False), asked("a.b", use_edns=0)
    assert shown(build_response(plain, DnsAnswer(), 512)).edns == -1
    response = shown(build_response(extended, DnsAnswer(), 512))
    assert (response.edns, response.payload) == (0, EDNS_SIZE)


def test_names_are_compressed_and_service_targets_are_not() -> None:
    query = asked("web.default.svc.cluster.local")
    alias = DnsRecord(query.name, CNAME, 5, wire("x.default.svc.cluster.local"))
    data = build_response(query, DnsAnswer(records=[alias]), 512)
    assert data.count(b"cluster") == 1
    server = DnsRecord(query.name, SRV, 5, bytes(6) + wire("x.default.svc.cluster.local"))
    data = build_response(query, DnsAnswer(records=[server]), 512)
    assert data.count(b"cluster") == 2


def test_a_name_beyond_the_reach_of_pointers_is_written_in_full() -> None:
    query = asked("a.b")
    many = [DnsRecord(wire(f"x{number}.far"), AAAA, 5, bytes(16)) for number in range(1000)]
    response = shown(build_response(query, DnsAnswer(records=many), TCP_SIZE))
    assert len(response.answer) == 1000
