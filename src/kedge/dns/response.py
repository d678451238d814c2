"""Queries to resolvers, and their responses, in wire form.

Responses hold content that strangers wrote. Expanding compressed names is bounded, so that a small
message cannot become a large one.
"""

import struct
from typing import Final, NamedTuple

from kedge.dns.message import (
    AAAA,
    AUTHENTIC,
    COMPRESSED,
    DNSSEC_OK,
    EDNS_SIZE,
    HEADER,
    IN,
    OPCODE,
    OPT,
    QUESTION,
    RECORD,
    RECURSION_DESIRED,
    RESPONSE,
    SRV,
    TRUNCATED,
    A,
    DnsAnswer,
    DnsRecord,
    MalformedMessage,
    skip_name,
)
from kedge.dns.names import LONGEST_LABEL, LONGEST_NAME

MOST_RECORDS: Final = 1000
LARGEST: Final = 256 * 1024
"""Bytes of all records with their names in full."""
_WITH_NAMES: Final = COMPRESSED | {
    SRV: (6, 1),
    14: (0, 2),  # MINFO
    17: (0, 2),  # RP
    18: (2, 1),  # AFSDB
    21: (2, 1),  # RT
    36: (2, 1),  # KX
    39: (0, 1),  # DNAME
}
"""Types whose data may have compressed names in the messages of some servers."""
_LARGEST_TTL: Final = 0x7FFFFFFF


class UpstreamQuestion(NamedTuple):
    """The part of a query on which the response depends."""

    name: bytes
    """In lower case."""
    type: int
    flags: int = 0
    """CHECKING_DISABLED and AUTHENTIC."""
    is_dnssec_ok: bool = False

    def message(self, identity: int, *, edns: bool) -> bytes:
        """Return the query in wire form."""
        flags = RECURSION_DESIRED | self.flags
        head = HEADER.pack(identity, flags, 1, 0, 0, 1 if edns else 0)
        body = self.name + QUESTION.pack(self.type, IN)
        if not edns:
            return head + body
        bits = DNSSEC_OK if self.is_dnssec_ok else 0
        return head + body + b"\0" + RECORD.pack(OPT, EDNS_SIZE, bits, 0)


class UpstreamResponse(NamedTuple):
    """A response to one of our own queries."""

    answer: DnsAnswer
    is_truncated: bool
    has_edns: bool


def parse_response(data: bytes, identity: int, asked: UpstreamQuestion) -> UpstreamResponse:
    """Return the response to a question. Raises MalformedMessage if the message is no response to
    it: another identity or question, or not a valid message."""
    try:
        return _parse(data, identity, asked)
    except (IndexError, struct.error) as error:
        raise MalformedMessage("the message ends too early") from error


def _parse(data: bytes, identity: int, asked: UpstreamQuestion) -> UpstreamResponse:
    given, flags, questions, *counts = HEADER.unpack_from(data)
    if given != identity or not flags & RESPONSE or flags & OPCODE or questions != 1:
        raise MalformedMessage("not a response to this query")
    reader = _RecordReader(data)
    end = HEADER.size + len(asked.name)
    if data[HEADER.size : end].lower() != asked.name:
        raise MalformedMessage("another question")
    if QUESTION.unpack_from(data, end) != (asked.type, IN):
        raise MalformedMessage("another question")
    reader.at = end + QUESTION.size
    if sum(counts) > MOST_RECORDS:
        raise MalformedMessage("too many records")
    is_truncated = bool(flags & TRUNCATED)
    records, authority, additional = (reader.records(count, is_truncated) for count in counts)
    # Only a client that asked for it may rely on this bit.
    trusted = flags & AUTHENTIC if asked.flags & AUTHENTIC or asked.is_dnssec_ok else 0
    answer = DnsAnswer(flags & 0xF, records, authority, additional, trusted)
    return UpstreamResponse(answer, is_truncated, reader.has_edns)


class _RecordReader:
    """Reads the records of a message one after the other."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self.has_edns = False
        self._data = data
        self._size = 0

    def records(self, count: int, is_truncated: bool) -> tuple[DnsRecord, ...]:
        """Read so many records; without OPT, and without those of other classes."""
        found = []
        for _ in range(count):
            # Some servers count the records that a truncated message lacks.
            if is_truncated and self.at >= len(self._data):
                break
            record = self._record()
            if record is not None:
                found.append(record)
        return tuple(found)

    def _record(self) -> DnsRecord | None:
        owner, at = read_name(self._data, self.at)
        kind, klass, ttl, size = RECORD.unpack_from(self._data, at)
        start = at + RECORD.size
        self.at = start + size
        if self.at > len(self._data):
            raise MalformedMessage("a record beyond the end")
        if kind == OPT:
            self.has_edns = True
        if kind == OPT or klass != IN:
            return None
        content = self._content(kind, start, self.at)
        self._size += len(owner) + len(content)
        if self._size > LARGEST:
            raise MalformedMessage("too large with names in full")
        return DnsRecord(owner, kind, ttl if ttl <= _LARGEST_TTL else 0, content)

    def _content(self, kind: int, start: int, end: int) -> bytes:
        """Return the data of a record, with names in full."""
        if kind not in _WITH_NAMES:
            _check_size(kind, end - start)
            return self._data[start:end]
        before, names = _WITH_NAMES[kind]
        parts, at = [self._data[start : start + before]], start + before
        for _ in range(names):
            name, at = read_name(self._data, at)
            parts.append(name)
        if at > end:
            raise MalformedMessage("a name beyond its record")
        return b"".join((*parts, self._data[at:end]))


def _check_size(kind: int, size: int) -> None:
    if (kind == A and size != 4) or (kind == AAAA and size != 16):
        raise MalformedMessage("an address of another length")


def read_name(data: bytes, at: int) -> tuple[bytes, int]:
    """Return a name in full, and the offset behind it."""
    end = skip_name(data, at)
    out, limit = bytearray(), at
    while size := data[at]:
        if size >= 0xC0:
            target = (size & 0x3F) << 8 | data[at + 1]
            # Each pointer leads further back than the one before, so the loop ends.
            if target >= limit:
                raise MalformedMessage("a pointer that does not lead back")
            at = limit = target
            continue
        if size > LONGEST_LABEL or len(out) + size + 2 > LONGEST_NAME:
            raise MalformedMessage("a name that is too long")
        out += data[at : at + 1 + size]
        at += size + 1
    out.append(0)
    return bytes(out), end
