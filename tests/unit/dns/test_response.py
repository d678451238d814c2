"""Responses of resolvers, made by dnspython."""

import struct

import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.dns import names
from kedge.dns.message import A, DnsAnswer, DnsRecord, MalformedMessage
from kedge.dns.response import MOST_RECORDS, UpstreamQuestion, parse_response, read_name

NAME = b"\3www\7example\3com\0"
QUESTION = UpstreamQuestion(NAME, A)
ID = 77


def response(*records: str, flags: int = 0, section: int = 1) -> bytes:
    query = dns.message.from_wire(QUESTION.message(ID, edns=True))
    made = dns.message.make_response(query, recursion_available=True)
    made.flags |= flags
    for each in records:
        name, ttl, kind, data = each.split(" ", 3)
        made.sections[section].append(dns.rrset.from_text(name, int(ttl), "IN", kind, data))
    return made.to_wire()


def test_the_query_is_one_that_dnspython_reads() -> None:
    question = UpstreamQuestion(NAME, A, dns.flags.CD, is_dnssec_ok=True)
    query = dns.message.from_wire(question.message(ID, edns=True))
    assert query.id == ID
    assert query.flags == dns.flags.RD | dns.flags.CD
    assert str(query.question[0]) == "www.example.com. IN A"
    assert query.ednsflags & dns.flags.DO
    assert dns.message.from_wire(QUESTION.message(ID, edns=False)).edns == -1


def test_names_in_records_are_expanded() -> None:
    data = response(
        "www.example.com. 60 CNAME cdn.example.com.",
        "cdn.example.com. 30 A 192.0.2.7",
        "example.com. 9 MX 10 mail.example.com.",
        "example.com. 9 SRV 1 2 3 host.example.com.",
    )
    found = parse_response(data, ID, QUESTION)
    assert found.has_edns
    assert not found.is_truncated
    assert [(each.type, each.ttl, each.data) for each in found.answer.records] == [
        (5, 60, b"\3cdn\7example\3com\0"),
        (1, 30, bytes([192, 0, 2, 7])),
        (15, 9, b"\0\x0a\4mail\7example\3com\0"),
        (33, 9, b"\0\1\0\2\0\3\4host\7example\3com\0"),
    ]


KINDS = {
    "A": st.just("192.0.2.1"),
    "TXT": st.just('"some text"'),
    "NS": st.just("ns.example.com."),
    "SOA": st.just("ns.example.com. root.example.com. 1 2 3 4 5"),
    "AFSDB": st.just("1 ns.example.com."),
    "CAA": st.just('0 issue "example.com"'),
    "NAPTR": st.just('1 2 "s" "x" "" other.example.com.'),
}


@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=8, unique=True), st.data())
def test_data_is_what_dnspython_writes_without_compression(
    kinds: list[str], data: st.DataObject
) -> None:
    texts = {kind: data.draw(KINDS[kind]) for kind in kinds}
    message = response(*(f"a.example.com. 5 {kind} {text}" for kind, text in texts.items()))
    found = parse_response(message, ID, QUESTION).answer.records
    wanted = [rrset[0].to_wire() for rrset in dns.message.from_wire(message).answer]
    assert [each.data for each in found] == wanted


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\0\1" + data[2:],
        lambda data: data[:2] + b"\1\0" + data[4:],
        lambda data: data.replace(b"\7example", b"\7exempla"),
        lambda data: data[: 12 + len(NAME)] + b"\0\x1c" + data[14 + len(NAME) :],
        lambda data: data[:40],
        lambda data: data[:4] + b"\0\0" + data[6:],
        lambda data: data[:6] + b"\0\2" + data[8:],
        lambda data: data[:6] + struct.pack("!H", MOST_RECORDS) + data[8:],
        lambda data: b"",
    ],
)
def test_other_messages_are_no_answers(change: object) -> None:
    assert callable(change)
    data = response("www.example.com. 60 A 192.0.2.7")
    with pytest.raises(MalformedMessage):
        parse_response(change(data), ID, QUESTION)


def test_the_case_of_the_answered_question_does_not_matter() -> None:
    data = response("www.example.com. 60 A 192.0.2.7").replace(b"\7example", b"\7eXaMpLe")
    assert len(parse_response(data, ID, QUESTION).answer.records) == 1


def test_a_truncated_message_may_end_early() -> None:
    data = response("www.example.com. 60 A 192.0.2.7", flags=dns.flags.TC)
    short = data[: 12 + len(NAME) + 4]
    found = parse_response(short, ID, QUESTION)
    assert found.is_truncated
    assert found.answer == DnsAnswer()


@pytest.mark.parametrize("size", [3, 5, 16])
def test_an_address_has_its_length(size: int) -> None:
    head = struct.pack("!6H", ID, 0x8180, 1, 1, 0, 0) + NAME + struct.pack("!2H", A, 1)
    data = head + b"\xc0\x0c" + struct.pack("!HHIH", A, 1, 5, size) + bytes(size)
    with pytest.raises(MalformedMessage):
        parse_response(data, ID, QUESTION)


def test_records_of_other_classes_and_negative_lifetimes() -> None:
    head = struct.pack("!6H", ID, 0x8180, 1, 2, 0, 0) + NAME + struct.pack("!2H", A, 1)
    chaos = b"\xc0\x0c" + struct.pack("!HHIH", 16, 3, 5, 2) + b"\1x"
    ours = b"\xc0\x0c" + struct.pack("!HHIH", A, 1, 0x80000001, 4) + bytes(4)
    found = parse_response(head + chaos + ours, ID, QUESTION)
    assert found.answer.records == (DnsRecord(NAME, A, 0, bytes(4)),)


@pytest.mark.parametrize(
    "data",
    [
        b"\xc0\x00",
        b"\1a\xc0\x00",
        b"\xc0\x02\xc0\x00",
        b"\x80\0",
        b"\1a",
        (b"\x3f" + b"x" * 63) * 4 + b"\0",
    ],
)
def test_names_that_do_not_end(data: bytes) -> None:
    with pytest.raises((MalformedMessage, IndexError)):
        read_name(data, 0)


def test_a_compressed_name_in_full() -> None:
    data = b"\1b\0\1a\xc0\x00"
    assert read_name(data, 3) == (b"\1a\1b\0", 7)


def test_expansion_is_bounded() -> None:
    """Names behind pointers: a message of 18 kB would become one of 300 kB."""
    long = names.from_text(".".join(["x" * 49] * 5))
    assert long is not None
    count = MOST_RECORDS
    head = struct.pack("!6H", ID, 0x8180, 1, count, 0, 0) + NAME + struct.pack("!2H", A, 1)
    first = long + struct.pack("!HHIH", 2, 1, 5, 2) + b"\xc0\x0c"
    at = len(head)
    rest = struct.pack("!H", 0xC000 | at) + struct.pack("!HHIH", 2, 1, 5, 2)
    data = head + first + (rest + struct.pack("!H", 0xC000 | at)) * (count - 1)
    with pytest.raises(MalformedMessage, match="too large"):
        parse_response(data, ID, QUESTION)
