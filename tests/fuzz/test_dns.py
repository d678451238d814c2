"""Messages of pods to the cluster's DNS server, and of the world to the machine's resolvers."""

import contextlib
import struct

import dns.exception
import dns.message
from hypothesis import example, given
from hypothesis import strategies as st

from kedge.dns.cluster_index import ClusterIndex
from kedge.dns.message import (
    TCP_SIZE,
    A,
    DnsAnswer,
    MalformedMessage,
    build_response,
    parse_query,
)
from kedge.dns.response import UpstreamQuestion, parse_response
from kedge.dns.zone import ClusterZone
from kedge.testing.dns import new_service, new_slice

HEAD = struct.Struct("!6H")
NAME = b"\3www\7example\3com\0"
QUESTION = NAME + b"\0\1\0\1"
BYTES = st.binary(max_size=300)
PIECES = st.lists(
    st.sampled_from(
        [
            *(
                b"\0",
                b"\1a",
                b"\3svc\7cluster\5local\0",
                b"\xc0\x0c",
                b"\xc0\xff",
                b"\x3f",
                b"\xff",
            ),
            *(b"\0\1\0\1", b"\0\x21\0\1", b"\0\0\x29\4\xd0\0\0\0\0\0\0", b"\0\5\0\1\0\0\0\1\0\2"),
            *(b"\3web\7default", b"\2in-addr\4arpa\0", b"\5_http\4_tcp", NAME, QUESTION),
        ]
    )
    | st.binary(max_size=8),
    max_size=12,
).map(b"".join)
COUNTS = st.sampled_from([0, 0, 1, 1, 2, 9, 65535])
QUERIES = BYTES | st.builds(
    lambda flags, counts, rest: HEAD.pack(7, flags, *counts) + rest,
    st.sampled_from([0, 0x100, 0x8000, 0x2800, 0xFFFF]),
    st.just((1, 0, 0, 0)) | st.just((1, 0, 0, 1)) | st.tuples(COUNTS, COUNTS, COUNTS, COUNTS),
    PIECES | BYTES,
)


def zone() -> ClusterZone:
    index = ClusterIndex()
    index.put_namespace("default")
    index.put_service(new_service("web", "10.96.1.1"))
    index.put_service(new_service("db"))
    index.put_slice(new_slice("db", "10.244.0.5"))
    return ClusterZone(index, "cluster.local", bytes(4), 1)


ZONE = zone()


@given(QUERIES)
@example(HEAD.pack(7, 0, 1, 0, 0, 0) + b"\3web\7default\3svc\7cluster\5local\0\0\1\0\1")
@example(HEAD.pack(7, 0, 1, 0, 0, 0) + b"\x3f" * 300)
def test_every_query_gets_a_valid_answer_or_none(data: bytes) -> None:
    query = parse_query(data)
    if query is None:
        return
    found = ZONE.find(query.labels, query.type) if not query.rcode else None
    answer = found.answer if found is not None else DnsAnswer(query.rcode)
    for limit in (query.size, TCP_SIZE):
        message = dns.message.from_wire(build_response(query, answer, limit))
        assert message.id == query.id


@given(QUERIES)
def test_a_query_that_dnspython_accepts_is_read_the_same(data: bytes) -> None:
    query = parse_query(data)
    try:
        other = dns.message.from_wire(data)
    except (dns.exception.DNSException, ValueError):
        return
    if query is None or query.rcode or not isinstance(other, dns.message.QueryMessage):
        return
    assert query.name == (other.question[0].name.to_wire() or b"").lower()
    assert query.type == other.question[0].rdtype


RESPONSES = st.builds(
    lambda flags, counts, rest: HEAD.pack(7, flags, 1, *counts) + QUESTION + rest,
    st.sampled_from([0x8180, 0x8380, 0x8183]),
    st.tuples(COUNTS, COUNTS, COUNTS),
    PIECES | BYTES,
)


@given(BYTES | RESPONSES)
@example(HEAD.pack(7, 0x8180, 1, 1, 0, 0) + QUESTION + b"\xc0\x21\0\1\0\1\0\0\0\1\0\0")
@example(HEAD.pack(7, 0x8180, 1, 65535, 0, 0) + QUESTION + b"\xc0\x0c" * 30_000)
def test_every_response_is_read_or_malformed(data: bytes) -> None:
    question = UpstreamQuestion(NAME, A)
    with contextlib.suppress(MalformedMessage):
        found = parse_response(data, 7, question).answer
        query = parse_query(HEAD.pack(9, 0x100, 1, 0, 0, 0) + QUESTION)
        assert query is not None
        dns.message.from_wire(build_response(query, found, TCP_SIZE), continue_on_error=True)
