"""Attributes and message headers of nfnetlink. Unlike rtnetlink, numbers are big-endian."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

HEADER: Final = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence number, port id."""
_FAMILY: Final = struct.Struct(">BBH")
"""nfgenmsg: address family, version, resource id."""
_ATTRIBUTE: Final = struct.Struct("=HH")
_NUMBER: Final = struct.Struct(">I")
_NESTED: Final = 0x8000
_KIND: Final = 0x3FFF
"""The part of an attribute's type without its flags."""
PAYLOAD: Final = HEADER.size + _FAMILY.size

INET: Final = 2
"""AF_INET."""
BRIDGE: Final = 7
"""AF_BRIDGE: frames between the ports of bridges."""


def attribute(kind: int, content: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(content)
    return _ATTRIBUTE.pack(size, kind) + content + bytes(-size % 4)


def nested(kind: int, *contents: bytes) -> bytes:
    return attribute(kind | _NESTED, b"".join(contents))


def number(kind: int, value: int) -> bytes:
    return attribute(kind, _NUMBER.pack(value & 0xFFFFFFFF))


def long_number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack(">Q", value))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def items(kind: int, contents: Iterable[bytes]) -> bytes:
    """A list: each item is a nested attribute of type 1."""
    return nested(kind, *(nested(1, each) for each in contents))


def message(kind: int, flags: int, sequence: int, body: bytes, *, family: int = INET) -> bytes:
    return resource_message(kind, flags, sequence, body, family=family, resource=0)


def resource_message(
    kind: int, flags: int, sequence: int, body: bytes, *, family: int, resource: int
) -> bytes:
    """Return a message with a resource id, which only the ends of a batch have."""
    head = HEADER.pack(PAYLOAD + len(body), kind, flags, sequence, 0)
    return head + _FAMILY.pack(family, 0, resource) + body


def read_messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the type, the sequence number and the content of each message. The content begins
    after the header of netlink."""
    while len(data) >= HEADER.size:
        size, kind, _, sequence, _ = HEADER.unpack_from(data)
        if size < HEADER.size:
            return
        yield kind, sequence, data[HEADER.size : size]
        data = data[(size + 3) & ~3 :]


def read_attributes(data: bytes) -> dict[int, bytes]:
    """Return the attributes by type; of a repeated one, the last."""
    return dict(read_items(data))


def read_items(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        if size < _ATTRIBUTE.size:
            return
        yield kind & _KIND, data[_ATTRIBUTE.size : size]
        data = data[(size + 3) & ~3 :]


def read_text(content: bytes) -> str:
    return content.rstrip(b"\0").decode(errors="replace")
