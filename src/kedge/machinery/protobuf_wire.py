"""The wire format of protocol buffers: tags, varints and length-delimited fields, without schemas.

Errors have the words of Go's generated decoders, which clients see in the API server's answers.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5
_FIXED_SIZES: Final = {FIXED64: 8, FIXED32: 4}
_MASK: Final = (1 << 64) - 1

Field = tuple[int, int, Any]
"""Number, wire type and value: an int if the wire type is VARINT, else bytes."""


def encode_varint(value: int) -> bytes:
    """Return a number, 7 bits per byte, lowest first. Negative numbers are encoded as two's
    complement in 64 bits, which takes ten bytes."""
    value &= _MASK
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint_field(number: int, value: int) -> bytes:
    """Return a field of type int32, int64, uint32, uint64, bool or enum."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value)


def bytes_field(number: int, content: bytes) -> bytes:
    """Return a field of type string, bytes or message."""
    return bytes_head(number, len(content)) + content


def bytes_head(number: int, length: int) -> bytes:
    """Return what precedes the content of a field of type string, bytes or message."""
    return encode_varint(number << 3 | BYTES) + encode_varint(length)


def double_field(number: int, value: float) -> bytes:
    """Return a field of type double."""
    return encode_varint(number << 3 | FIXED64) + struct.pack("<d", value)


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number at an offset, and the offset after it; raises ValueError."""
    result = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("unexpected EOF")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MASK, at
    raise ValueError("integer overflow")


def signed(value: int) -> int:
    """Return an unsigned number of 64 bits as a signed one."""
    return value - (1 << 64) if value >> 63 else value


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message in their order; raises ValueError."""
    at, end = 0, len(data)
    while at < end:
        tag, at = decode_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("illegal tag 0")
        if wire == VARINT:
            value, at = decode_varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = decode_varint(data, at)
        elif wire in _FIXED_SIZES:
            size = _FIXED_SIZES[wire]
        else:
            raise ValueError(f"illegal wireType {wire}")
        if at + size > end:
            raise ValueError("unexpected EOF")
        yield number, wire, data[at : at + size]
        at += size
