"""Bodies that are unpacked, rewritten and packed again in pieces."""

import gzip
import zlib
from collections.abc import AsyncIterator, Callable

import pytest

from kedge.apiserver.subresources.proxy_body import PIECE, BadCoding, rewritten


class Upper:
    """Rewrites to capital letters, and keeps count."""

    def __init__(self) -> None:
        self.longest = 0

    def feed(self, piece: bytes) -> bytes:
        self.longest = max(self.longest, len(piece))
        return piece.upper()

    def end(self) -> bytes:
        return b"!"


async def pieces(body: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


async def whole(body: bytes, coding: str, rewriter: Upper | None = None) -> bytes:
    return b"".join([each async for each in rewritten(pieces(body), coding, rewriter or Upper())])


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


CODINGS: list[tuple[str, Callable[[bytes], bytes], Callable[[bytes], bytes]]] = [
    ("", bytes, bytes),
    ("gzip", gzip.compress, gzip.decompress),
    ("deflate", zlib.compress, zlib.decompress),
    ("deflate", raw_deflate, lambda packed: zlib.decompress(packed, -15)),
]


@pytest.mark.parametrize(("coding", "pack", "unpack"), CODINGS)
@pytest.mark.parametrize("size", [1, 3 * PIECE, 100_000])
async def test_a_body_is_rewritten_in_its_own_coding(
    coding: str,
    pack: Callable[[bytes], bytes],
    unpack: Callable[[bytes], bytes],
    size: int,
) -> None:
    body = bytes(range(97, 123)) * size
    assert unpack(await whole(pack(body), coding)) == body.upper() + b"!"


async def test_an_empty_body_of_any_coding_is_accepted() -> None:
    assert await whole(b"", "gzip") == b""


async def test_what_unpacks_to_much_is_rewritten_in_small_pieces() -> None:
    rewriter = Upper()
    packed = gzip.compress(b"a" * (10 << 20))
    assert len(await whole(packed, "gzip", rewriter)) < 100_000
    assert rewriter.longest <= PIECE


async def test_a_page_of_several_members_is_read_to_its_end() -> None:
    body = gzip.compress(b"one ", mtime=0) + gzip.compress(b"two")
    assert gzip.decompress(await whole(body, "gzip")) == b"ONE TWO!"


async def test_what_has_arrived_is_passed_on_before_the_rest() -> None:
    packed = zlib.compressobj(wbits=31)
    first = packed.compress(b"first") + packed.flush(zlib.Z_SYNC_FLUSH)
    out = rewritten(pieces(first), "gzip", Upper())
    unpacker = zlib.decompressobj(31)
    seen = b""
    while len(seen) < 5:
        seen += unpacker.decompress(await anext(out))
    assert seen == b"FIRST"
    await out.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("body", [b"not packed", gzip.compress(b"x" * 1000, mtime=0)[:-4]])
async def test_a_body_that_is_not_packed_as_it_says_ends_the_connection(body: bytes) -> None:
    with pytest.raises(BadCoding):
        await whole(body, "gzip")
