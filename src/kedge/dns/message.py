"""DNS messages in wire form: queries are parsed, responses are built (RFC 1035, 6891)."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kedge.dns.names import LONGEST_LABEL, LONGEST_NAME, Labels

A: Final = 1
NS: Final = 2
CNAME: Final = 5
SOA: Final = 6
PTR: Final = 12
MX: Final = 15
TXT: Final = 16
AAAA: Final = 28
SRV: Final = 33
OPT: Final = 41
IXFR: Final = 251
AXFR: Final = 252

NOERROR: Final = 0
FORMERR: Final = 1
SERVFAIL: Final = 2
NXDOMAIN: Final = 3
NOTIMP: Final = 4
REFUSED: Final = 5
BADVERS: Final = 16

IN: Final = 1
RESPONSE: Final = 0x8000
OPCODE: Final = 0x7800
AUTHORITATIVE: Final = 0x0400
TRUNCATED: Final = 0x0200
RECURSION_DESIRED: Final = 0x0100
RECURSION_AVAILABLE: Final = 0x0080
AUTHENTIC: Final = 0x0020
CHECKING_DISABLED: Final = 0x0010
DNSSEC_OK: Final = 0x8000

PLAIN_SIZE: Final = 512
"""Bytes of a response over UDP to a query without EDNS."""
EDNS_SIZE: Final = 1232
"""Bytes of a response over UDP that no network on the way fragments."""
TCP_SIZE: Final = 65535
MOST_ADDITIONAL: Final = 8
"""Additional records of a query; OPT and a signature are in use."""

HEADER: Final = struct.Struct("!6H")
QUESTION: Final = struct.Struct("!2H")
RECORD: Final = struct.Struct("!HHIH")
_POINTER_TO_QUESTION: Final = b"\xc0\x0c"
_POINTER: Final = 0xC000
_FARTHEST: Final = 0x4000
_OPT_SIZE: Final = 11

COMPRESSED: Final = {NS: (0, 1), CNAME: (0, 1), PTR: (0, 1), SOA: (0, 2), MX: (2, 1)}
"""By type: the bytes before the names in the data of a record, and how many names there are. Names
in the data of other types are not compressed (RFC 3597)."""


class MalformedMessage(Exception):
    """The bytes are not a DNS message."""


class DnsQuery(NamedTuple):
    """A query, or as much of it as a refusal needs."""

    id: int
    flags: int
    rcode: int = NOERROR
    """The error that the form of the query earns."""
    question: bytes = b""
    """The question section as it was received, with its upper and lower case."""
    name: bytes = b"\0"
    """In lower case."""
    labels: Labels = ()
    type: int = 0
    has_edns: bool = False
    size: int = PLAIN_SIZE
    """Bytes of a response over UDP that the client takes."""
    is_dnssec_ok: bool = False


class DnsRecord(NamedTuple):
    """A record of class IN. Names in the data are in full."""

    owner: bytes
    type: int
    ttl: int
    data: bytes


class DnsAnswer(NamedTuple):
    """The content of a response."""

    rcode: int = NOERROR
    records: Sequence[DnsRecord] = ()
    authority: Sequence[DnsRecord] = ()
    additional: Sequence[DnsRecord] = ()
    flags: int = 0
    """AUTHORITATIVE, TRUNCATED and AUTHENTIC."""

    @property
    def size(self) -> int:
        """How many records it has."""
        return len(self.records) + len(self.authority) + len(self.additional)


def parse_query(data: bytes) -> DnsQuery | None:
    """Return the query; None if it must not be answered, because it is a response or no message."""
    if len(data) < HEADER.size:
        return None
    identity, flags, questions, answers, authorities, additional = HEADER.unpack_from(data)
    if flags & RESPONSE:
        return None
    if flags & OPCODE:
        return DnsQuery(identity, flags, NOTIMP)
    if questions != 1 or answers or authorities or additional > MOST_ADDITIONAL:
        return DnsQuery(identity, flags, FORMERR)
    try:
        return _parse(data, identity, flags, additional)
    except (IndexError, struct.error, MalformedMessage):
        return DnsQuery(identity, flags, FORMERR)


def _parse(data: bytes, identity: int, flags: int, additional: int) -> DnsQuery:
    labels, at = [], HEADER.size
    lower = data[: HEADER.size + LONGEST_NAME].lower()
    while size := lower[at]:
        if size > LONGEST_LABEL:
            raise MalformedMessage("a compressed question")
        labels.append(lower[at + 1 : at + 1 + size])
        at += size + 1
    at += 1
    kind, klass = QUESTION.unpack_from(data, at)
    end = at + QUESTION.size
    has_edns, payload, dnssec, version = _edns(data, end, additional)
    rcode = NOERROR if klass == IN and kind not in (AXFR, IXFR) else REFUSED
    return DnsQuery(
        identity,
        flags,
        BADVERS if version else rcode,
        data[HEADER.size : end],
        lower[HEADER.size : at],
        tuple(labels),
        kind,
        has_edns,
        min(max(payload, PLAIN_SIZE), EDNS_SIZE),
        dnssec,
    )


def _edns(data: bytes, at: int, count: int) -> tuple[bool, int, bool, int]:
    """Return whether there is an OPT record, its payload size, its DO bit and its version."""
    found: tuple[bool, int, bool, int] | None = None
    for _ in range(count):
        start = at
        at = skip_name(data, at)
        kind, klass, ttl, size = RECORD.unpack_from(data, at)
        at += RECORD.size + size
        if at > len(data):
            raise MalformedMessage("a record beyond the end")
        if kind == OPT:
            if found or data[start]:
                raise MalformedMessage("a second OPT record, or one with a name")
            found = True, klass, bool(ttl & DNSSEC_OK), ttl >> 16 & 0xFF
    return found or (False, PLAIN_SIZE, False, 0)


def skip_name(data: bytes, at: int) -> int:
    """Return the offset behind a name, which may be compressed."""
    while size := data[at]:
        if size >= 0xC0:
            return at + 2
        if size > LONGEST_LABEL:
            raise MalformedMessage("an unknown kind of label")
        at += size + 1
    return at + 1


def build_response(query: DnsQuery, answer: DnsAnswer, limit: int) -> bytes:
    """Return the response in at most so many bytes. Additional records are left out first, then
    the response is truncated behind a whole record."""
    room = limit - (_OPT_SIZE if query.has_edns else 0)
    writer = _MessageWriter(query, room)
    flags = answer.flags
    answers, fits = writer.add(answer.records)
    authorities, fits = writer.add(answer.authority) if fits else (0, False)
    additional = 0
    if fits:
        additional, _ = writer.add(answer.additional)
    else:
        flags |= TRUNCATED
    if query.has_edns:
        writer.out += b"\0" + RECORD.pack(OPT, EDNS_SIZE, _edns_bits(query, answer.rcode), 0)
        additional += 1
    flags |= RESPONSE | RECURSION_AVAILABLE | answer.rcode & 0xF
    flags |= query.flags & (OPCODE | RECURSION_DESIRED | CHECKING_DISABLED)
    questions = 1 if query.question else 0
    counts = questions, answers, authorities, additional
    HEADER.pack_into(writer.out, 0, query.id, flags, *counts)
    return bytes(writer.out)


def _edns_bits(query: DnsQuery, rcode: int) -> int:
    return rcode >> 4 << 24 | (DNSSEC_OK if query.is_dnssec_ok else 0)


class _MessageWriter:
    """Writes records behind a question, with compressed names."""

    def __init__(self, query: DnsQuery, room: int) -> None:
        self.out = bytearray(HEADER.size)
        self.out += query.question
        self._query = query
        self._room = room
        self._offsets: dict[bytes, int] | None = None

    def add(self, records: Sequence[DnsRecord]) -> tuple[int, bool]:
        """Write records while there is room; return their number, and whether all fit."""
        out, room, asked = self.out, self._room, self._query.name
        for count, (owner, kind, ttl, data) in enumerate(records):
            start = len(out)
            if owner == asked:
                out += _POINTER_TO_QUESTION
            else:
                self._name(owner)
            if kind in COMPRESSED:
                self._compressed(kind, ttl, data)
            else:
                out += RECORD.pack(kind, IN, ttl, len(data))
                out += data
            if len(out) > room:
                # Offsets of names in this record remain known, but no further name is written.
                del out[start:]
                return count, False
        return len(records), True

    def _compressed(self, kind: int, ttl: int, data: bytes) -> None:
        before, names = COMPRESSED[kind]
        head = len(self.out)
        self.out += RECORD.pack(kind, IN, ttl, 0)
        self.out += data[:before]
        at = before
        for _ in range(names):
            end = skip_name(data, at)
            self._name(data[at:end])
            at = end
        self.out += data[at:]
        size = len(self.out) - head - RECORD.size
        RECORD.pack_into(self.out, head, kind, IN, ttl, size)

    def _name(self, name: bytes) -> None:
        if self._offsets is None:
            self._offsets = _suffixes(self._query.name) if self._query.question else {}
        offsets, out, at = self._offsets, self.out, 0
        lower = name.lower()
        while size := name[at]:
            known = offsets.get(lower[at:])
            if known is not None:
                out += (_POINTER | known).to_bytes(2, "big")
                return
            if len(out) < _FARTHEST:
                offsets[lower[at:]] = len(out)
            out += name[at : at + 1 + size]
            at += size + 1
        out.append(0)


def _suffixes(name: bytes) -> dict[bytes, int]:
    """Return the offsets at which the question has the name and the names that it ends with."""
    found, at = {}, 0
    while size := name[at]:
        found[name[at:]] = HEADER.size + at
        at += size + 1
    return found
