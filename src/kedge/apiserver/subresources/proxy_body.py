"""Bodies that are changed on their way: unpacked, rewritten and packed again in small pieces.

A pod decides how much it sends and how far that unpacks, so nothing here waits for the end of a
body, and the event loop gets a turn after every piece.
"""

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Final, Protocol

from kedge.web.duplex import turn

PIECE: Final = 4 << 10
"""Bytes that are rewritten in one turn of the event loop."""
GZIP: Final = 31
_RAW_DEFLATE: Final = -15
_ZLIB: Final = 15
CODINGS: Final = ("", "gzip", "deflate")
"""The values of Content-Encoding that can be rewritten."""


class Rewriter(Protocol):
    """Changes a body that arrives in pieces."""

    def feed(self, piece: bytes) -> bytes: ...

    def end(self) -> bytes: ...


class BadCoding(ConnectionError):
    """The body is not what its Content-Encoding says."""


async def rewritten(
    pieces: AsyncIterator[bytes], coding: str, rewriter: Rewriter
) -> AsyncIterator[bytes]:
    """Yield a body as the rewriter changes it, in the same coding."""
    codec = _codec(coding)
    async for arrived in pieces:
        for at in range(0, len(arrived), PIECE):
            for plain in codec.unpack(arrived[at : at + PIECE]):
                if packed := codec.pack(rewriter.feed(plain)):
                    yield packed
                await turn()
        # Pass on what has arrived: the rest of the page may take its time.
        if packed := codec.flush():
            yield packed
    yield codec.pack(rewriter.end()) + codec.end()


class Plain:
    """A body without a coding."""

    def unpack(self, piece: bytes) -> Iterator[bytes]:
        yield piece

    def pack(self, plain: bytes) -> bytes:
        return plain

    def flush(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""


class Deflated:
    """A body in gzip or deflate."""

    def __init__(self, wbits: int | None) -> None:
        self._wbits = wbits
        self._unpacker: zlib._Decompress | None = None
        self._packer: zlib._Compress | None = None

    def unpack(self, piece: bytes) -> Iterator[bytes]:
        """Yield the content in pieces of at most PIECE bytes."""
        if self._unpacker is None:
            wbits = _deflate_bits(piece) if self._wbits is None else self._wbits
            self._unpacker = zlib.decompressobj(wbits)
            self._packer = zlib.compressobj(1, zlib.DEFLATED, wbits)
        left, is_full = piece, False
        while left or is_full:
            if self._unpacker.eof:
                if not left or self._wbits != GZIP:
                    return
                self._unpacker = zlib.decompressobj(GZIP)  # the next member
            plain = _unpacked(self._unpacker, left)
            is_full = len(plain) == PIECE
            left = self._unpacker.unconsumed_tail or self._unpacker.unused_data
            yield plain

    def pack(self, plain: bytes) -> bytes:
        return self._packer.compress(plain) if self._packer is not None else b""

    def flush(self) -> bytes:
        return self._packer.flush(zlib.Z_SYNC_FLUSH) if self._packer is not None else b""

    def end(self) -> bytes:
        if self._packer is None or self._unpacker is None:
            return b""
        if not self._unpacker.eof:
            raise BadCoding("the compressed body is not complete")
        return self._packer.flush()


def _codec(coding: str) -> Plain | Deflated:
    if not coding:
        return Plain()
    return Deflated(GZIP if coding == "gzip" else None)


def _deflate_bits(first: bytes) -> int:
    """Return the format of a deflate body. The standard means zlib's; upstream, and some servers,
    mean bare deflate."""
    is_zlib = len(first) > 1 and first[0] & 15 == 8 and (first[0] << 8 | first[1]) % 31 == 0
    return _ZLIB if is_zlib else _RAW_DEFLATE


def _unpacked(unpacker: "zlib._Decompress", piece: bytes) -> bytes:
    try:
        return unpacker.decompress(piece, PIECE)
    except zlib.error as error:
        raise BadCoding(f"the body cannot be unpacked: {error}") from error
