"""Streams of untrusted bytes: read forward only, counted, hashed, unpacked, never without bound."""

import gzip
import hashlib
import importlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, Protocol

from kedge.node.images.oci import InvalidImage

CHUNK: Final = 1 << 20
_HEADERS: Final = 4 << 20
"""More than any header of a tar file takes; what asks to be read at once is not trusted."""

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"

BROKEN: Final = (EOFError, OSError, OverflowError, RecursionError, ValueError, zlib.error)
"""What the libraries raise when they are fed nonsense."""


class ByteSource(Protocol):
    """Anything that can be read."""

    def read(self, size: int = -1, /) -> bytes: ...


class SeekableSource(ByteSource, Protocol):
    """Anything that can be read from anywhere."""

    def seek(self, offset: int, whence: int = 0, /) -> int: ...


class ForwardReader:
    """Reads another stream forward only, at most `limit` bytes; knows the digest of it all.

    It has what `tarfile` needs of a file. Some versions of `tarfile` would follow a crafted header
    backwards for ever, or fill the memory with another: both end here.
    """

    def __init__(self, source: ByteSource, limit: int, algorithm: str = "sha256") -> None:
        self._source = source
        self._limit = limit
        self._algorithm = algorithm
        self._hash = hashlib.new(algorithm)
        self._position = 0
        self.last = b""
        """What was read last."""

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
        """Of the whole stream: what has not been read yet is read now."""
        while self.read(CHUNK):
            pass
        return f"{self._algorithm}:{self._hash.hexdigest()}"


class SkippingReader:
    """Reads a file forward only, as Forward does, but leaps over what is not wanted."""

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
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The members of a tar file one after the other, none of them remembered."""
    file: Any = reader
    # Not "r|": with its own buffering tarfile would read before it asks us.
    with tarfile.open(mode="r:", fileobj=file, errors="surrogateescape") as archive:
        while (member := archive.next()) is not None:
            remembered: Any = archive
            remembered.members.clear()
            yield archive, member
    # tarfile takes anything that is no header for the end.
    if reader.last.strip(b"\0"):
        raise InvalidImage("it holds something between its files that is no tar header")


class FileSlice(io.RawIOBase):
    """A part of a file, as a file of its own; the file must outlive it."""

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
    """How a digest is computed; Refused if kedge does not know."""
    name = digest.partition(":")[0]
    if name not in ("sha256", "sha512"):
        raise InvalidImage(f'"{digest}" is not a digest that kedge can check')
    return name


def verify(stream: ForwardReader, digest: str) -> None:
    """Read a stream to its end and see that it has the digest."""
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
    """Whether the stream, which stands at its beginning, is compressed in a way we know."""
    start = source.read(4)
    source.seek(0)
    return start.startswith(_GZIP) or start == _ZSTD


def unpacker(source: SeekableSource) -> Callable[[ByteSource], ByteSource]:
    """How a stream that stands at its beginning, as this one does, is to be decompressed."""
    start = source.read(4)
    source.seek(0)
    if start.startswith(_GZIP):
        return lambda packed: gzip.GzipFile(fileobj=_file(packed))
    if start == _ZSTD:
        return _zstd()
    return lambda packed: packed


def _file(source: ByteSource) -> Any:
    return source


def _zstd() -> Callable[[ByteSource], ByteSource]:
    """Decompression of zstd by whichever library is installed; newer Pythons bring their own."""
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
