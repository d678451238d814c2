"""Bounded streams of untrusted bytes: read forward only, counted, hashed and decompressed."""

import hashlib
import importlib
import io
import os
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from kedge.node.images.oci import InvalidImage

if TYPE_CHECKING:
    import tarfile

CHUNK: Final = 1 << 20
_HEADERS: Final = 4 << 20
"""More than any tar header needs; the size in a header is not trusted."""

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"

BROKEN: Final = (EOFError, OSError, OverflowError, RecursionError, ValueError, zlib.error)
"""The errors that the libraries raise for invalid data."""


class ByteSource(Protocol):
    """A readable stream."""

    def read(self, size: int = -1, /) -> bytes: ...


class SeekableSource(ByteSource, Protocol):
    """A readable stream with random access."""

    def seek(self, offset: int, whence: int = 0, /) -> int: ...


class ForwardReader:
    """Reads another stream forward only, at most `limit` bytes, and computes its digest.

    It has the methods that `tarfile` needs. Some versions of `tarfile` follow a crafted header
    backwards forever, or fill the memory with another; both are refused here.
    """

    def __init__(self, source: ByteSource, limit: int, algorithm: str = "sha256") -> None:
        self._source = source
        self._limit = limit
        self._algorithm = algorithm
        self._hash = hashlib.new(algorithm)
        self._position = 0
        self.last = b""
        """The bytes that were read last."""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _HEADERS:
            raise InvalidImage("it holds a tar header of an impossible size")
        data = self._source.read(size)
        while len(data) < size and (more := self._source.read(size - len(data))):
            data += more
        self._position += len(data)
        if self._position > self._limit:
            raise InvalidImage(f"it is larger than the {self._limit} bytes that are allowed")
        self._hash.update(data)
        self.last = data
        return data

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        if position < self._position:
            raise InvalidImage("it holds a tar header that leads backwards")
        while (ahead := position - self._position) and self.read(min(ahead, CHUNK)):
            pass
        return self._position

    def digest(self) -> str:
        """Return the digest of the whole stream; the rest of it is read first."""
        while self.read(CHUNK):
            pass
        return f"{self._algorithm}:{self._hash.hexdigest()}"


class SkippingReader:
    """Reads a file forward only, like ForwardReader, but skips unneeded parts."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _HEADERS:
            raise InvalidImage("it holds a tar header of an impossible size")
        self.last = self._file.read(size)
        return self.last

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, position: int) -> int:
        if position < self._file.tell():
            raise InvalidImage("it holds a tar header that leads backwards")
        return self._file.seek(position)


def members(
    reader: "ForwardReader | SkippingReader",
) -> Iterator[tuple["tarfile.TarFile", "tarfile.TarInfo"]]:
    """Yield the members of a tar file one by one, without keeping them."""
    # Not above, here and in the modules beside: a node that pulls no images does without.
    import tarfile

    file: Any = reader
    # Not "r|": with its own buffering, tarfile would read ahead.
    with tarfile.open(mode="r:", fileobj=file, errors="surrogateescape") as archive:
        while (member := archive.next()) is not None:
            remembered: Any = archive
            remembered.members.clear()
            yield archive, member
    # tarfile takes everything that is not a header for the end.
    if reader.last.strip(b"\0"):
        raise InvalidImage("it holds something between its files that is no tar header")


class FileSlice(io.RawIOBase):
    """A part of a file as a file of its own; the file must stay open."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._start = start
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = max(0, min(len(buffer), self._size - self._position))
        data = os.pread(self._descriptor, wanted, self._start + self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def algorithm(digest: str) -> str:
    """Return the hash algorithm of a digest. Raises InvalidImage if it is not supported."""
    name = digest.partition(":")[0]
    if name not in ("sha256", "sha512"):
        raise InvalidImage(f'"{digest}" is not a digest that kedge can check')
    return name


def verify(stream: ForwardReader, digest: str) -> None:
    """Read a stream to its end and verify its digest."""
    try:
        found = stream.digest()
    except OSError as error:
        if error.errno is not None:
            raise
        raise InvalidImage(f"it cannot be decompressed: {error}") from error
    except BROKEN as error:
        raise InvalidImage(f"it cannot be decompressed: {error}") from error
    if found != digest:
        raise InvalidImage(f"its content is damaged: {digest} was expected, {found} was found")


def is_packed(source: SeekableSource) -> bool:
    """Return whether the stream, at its beginning, has a known compression."""
    start = source.read(4)
    source.seek(0)
    return start.startswith(_GZIP) or start == _ZSTD


def unpacker(source: SeekableSource) -> Callable[[ByteSource], ByteSource]:
    """Return the decompressor of a stream at its beginning."""
    start = source.read(4)
    source.seek(0)
    if start.startswith(_GZIP):
        import gzip

        return lambda packed: gzip.GzipFile(fileobj=_file(packed))
    if start == _ZSTD:
        return _zstd()
    return lambda packed: packed


def _file(source: ByteSource) -> Any:
    return source


def _zstd() -> Callable[[ByteSource], ByteSource]:
    """Return the zstd decompressor of an installed library; newer Python versions include one."""
    for name in ("compression.zstd", "backports.zstd", "pyzstd"):
        try:
            library: Any = importlib.import_module(name)
        except ImportError:
            continue
        return lambda packed: _source(library.ZstdFile(packed))
    try:
        library = importlib.import_module("zstandard")
    except ImportError:
        raise InvalidImage(
            "it is compressed with zstd, for which this Python has no library: install one with"
            " 'pip install zstandard', or compress the image with gzip"
        ) from None
    decompressor = library.ZstdDecompressor()
    return lambda packed: _source(decompressor.stream_reader(packed, read_across_frames=True))


def _source(stream: Any) -> ByteSource:
    found: ByteSource = stream
    return found
