"""Packing of frames: bytes of equal weight beside each other, then zlib.

The numbers of a frame differ in their low bytes and agree in their high ones. Bytes of equal weight
beside each other make the rows half as long after compression as the rows as they are.
"""

import zlib


class Unpackable(ValueError):
    """The bytes are not packed, or longer than allowed."""


def pack(plain: bytes) -> bytes:
    # The lowest level: the others take several times as long for a few percent.
    return zlib.compress(plain, 1)


def unpack(packed: bytes, most: int) -> bytes:
    """The bytes before `pack`, if they are not more than `most`; raises Unpackable."""
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(packed, most)
    except zlib.error as error:
        raise Unpackable("not compressed as they should be") from error
    if not unpacker.eof or unpacker.unused_data:
        raise Unpackable("longer than allowed, or cut off")
    return plain


def by_weight(numbers: bytes, width: int) -> bytes:
    """The lowest bytes of all numbers of `width` bytes, then the next ones."""
    return b"".join(numbers[at::width] for at in range(width))


def by_number(weights: bytes, width: int) -> bytes:
    """The bytes before `by_weight`; their count is a multiple of `width`."""
    found = bytearray(len(weights))
    each = len(weights) // width
    for at in range(width):
        found[at::width] = weights[at * each : (at + 1) * each]
    return bytes(found)
