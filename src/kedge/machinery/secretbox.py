"""XSalsa20-Poly1305, as `crypto_secretbox` of NaCl combines them: the provider `secretbox` of
encryption at rest.

The stream of many blocks is computed at once. A Python integer holds one word of all blocks, in
lanes of 64 bits: the upper half of a lane takes the carry of an addition and the bits that a
rotation moves out. So the price of an operation is shared by all blocks.
"""

from array import array
from struct import pack, unpack
from typing import Final

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 24
TAG_BYTES: Final = 16

_BLOCK: Final = 64
_BLOCKS_AT_ONCE: Final = 512
"""More would not fit into a processor's cache."""
_CONSTANTS: Final = unpack("<4I", b"expand 32-byte k")
_COLUMNS: Final = ((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11))
_ROWS: Final = ((0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14))
_ROTATIONS: Final = (7, 9, 13, 18)
_STEPS: Final = tuple(
    (group[(turn + 1) % 4], group[turn], group[turn - 1], rotation)
    for groups in (_COLUMNS, _ROWS)
    for group in groups
    for turn, rotation in enumerate(_ROTATIONS)
)
"""The steps of a double round: the word that changes, the two that are added, and the rotation."""


class WrongKey(ValueError):
    """The key does not fit the value, or the value was changed."""


def seal(key: bytes, nonce: bytes, message: bytes) -> bytes:
    """Return tag and ciphertext of a message."""
    stream = _stream(key, nonce, 32 + len(message))
    ciphertext = _xor(message, stream[32:])
    return _tag(stream[:32], ciphertext) + ciphertext


def open_sealed(key: bytes, nonce: bytes, sealed: bytes) -> bytes:
    """Return the message; WrongKey if the tag does not fit."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    tag, ciphertext = sealed[:TAG_BYTES], sealed[TAG_BYTES:]
    stream = _stream(key, nonce, 32 + len(ciphertext))
    try:
        Poly1305.verify_tag(stream[:32], ciphertext, tag)
    except (InvalidSignature, ValueError):
        raise WrongKey("the key does not fit") from None
    return _xor(ciphertext, stream[32:])


def _tag(key: bytes, ciphertext: bytes) -> bytes:
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    return Poly1305.generate_tag(key, ciphertext)


def _xor(data: bytes, stream: bytes) -> bytes:
    mixed = int.from_bytes(data, "little") ^ int.from_bytes(stream[: len(data)], "little")
    return mixed.to_bytes(len(data), "little")


def _stream(key: bytes, nonce: bytes, length: int) -> bytes:
    """Return the first bytes of the XSalsa20 stream."""
    subkey = _hsalsa20(key, nonce[:16])
    blocks = -(-length // _BLOCK)
    pieces = [
        _salsa20(subkey, nonce[16:], first, min(_BLOCKS_AT_ONCE, blocks - first))
        for first in range(0, blocks, _BLOCKS_AT_ONCE)
    ]
    return b"".join(pieces)[:length]


def _state(key: bytes, given: bytes) -> list[int]:
    """Return the words before the rounds; `given` is nonce and counter."""
    k, n = unpack("<8I", key), unpack("<4I", given)
    c = _CONSTANTS
    return [c[0], *k[:4], c[1], *n, c[2], *k[4:], c[3]]


def _rounds(words: list[int], mask: int) -> None:
    """Do the twenty rounds, in place, in all lanes."""
    for _ in range(10):
        for to, one, other, rotation in _STEPS:
            moved = ((words[one] + words[other]) & mask) << rotation
            words[to] ^= (moved | moved >> 32) & mask


def _hsalsa20(key: bytes, nonce: bytes) -> bytes:
    words = _state(key, nonce)
    _rounds(words, 0xFFFFFFFF)
    return pack("<8I", *(words[i] for i in (0, 5, 10, 15, 6, 7, 8, 9)))


def _salsa20(key: bytes, nonce: bytes, first: int, count: int) -> bytes:
    """Return `count` blocks of the stream from block `first` on."""
    ones = int.from_bytes(bytes([1, 0, 0, 0, 0, 0, 0, 0]) * count, "little")
    mask = ones * 0xFFFFFFFF
    begin = [word * ones for word in _state(key, nonce + bytes(8))]
    # The counter of a value below 256 GiB has one word.
    begin[8] = int.from_bytes(pack(f"<{count}Q", *range(first, first + count)), "little")
    words = list(begin)
    _rounds(words, mask)
    words = [(word + start) & mask for word, start in zip(words, begin, strict=True)]
    blocks = array("Q", bytes(_BLOCK * count))
    for i in range(8):
        pair = words[2 * i] | words[2 * i + 1] << 32
        blocks[i::8] = array("Q", pair.to_bytes(8 * count, "little"))
    return blocks.tobytes()
