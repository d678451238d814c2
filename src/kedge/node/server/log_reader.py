"""Reads the logs of containers from files in CRI format, including rotated files."""

import os
from typing import Final

import msgspec

from kedge.supervisor.container.logs import older_parts

_CHUNK: Final = 256 << 10


class LogOptions(msgspec.Struct, frozen=True):
    """The options of a log request (PodLogOptions)."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    """The number of lines from the end."""
    since: str = ""
    """The earliest timestamp, in the format of the log."""
    limit: int | None = None
    """Bytes."""
    stream: str = ""
    """stdout or stderr; empty for both."""


class LogLines:
    """Converts lines of a log file to the output for the client."""

    def __init__(self, wanted: LogOptions) -> None:
        self._timestamps = wanted.timestamps
        self._since = wanted.since.encode()
        self._stream = wanted.stream.encode()
        self._left = wanted.limit
        self._rest = b""
        self._fresh = True
        """Whether the next part begins a line."""

    @property
    def done(self) -> bool:
        """Whether no further output follows."""
        return self._left == 0

    def feed(self, data: bytes) -> bytes:
        *lines, self._rest = (self._rest + data).split(b"\n")
        shown: list[bytes] = []
        for line in lines:
            self._show(line, shown)
        text = b"".join(shown)
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text

    def _show(self, line: bytes, shown: list[bytes]) -> None:
        fields = line.split(b" ", 3)
        if len(fields) < 4:
            return
        stamp, stream, tag, text = fields
        if stamp < self._since or (self._stream and stream != self._stream):
            return
        if self._timestamps and self._fresh:
            shown += (stamp, b" ")
        shown.append(text)
        # The parts of a long line are joined.
        self._fresh = tag[:1] != b"P"
        if self._fresh:
            shown.append(b"\n")


class LogReader:
    """Reads a log from a position, through all its rotated files."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = [_open(each) for each in [*older_parts(path), path]]
        self._files = [file for file in self._files if file >= 0]
        """Open all files at the beginning, so that none is lost by a later removal."""

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []

    def skip_to_tail(self, lines: int) -> None:
        """Skip all but the last lines."""
        for number in range(len(self._files) - 1, -1, -1):
            found, start = tail(self._files[number], lines)
            lines -= found
            if lines <= 0 or number == 0:
                self._drop(number)
                os.lseek(self._files[0], start, os.SEEK_SET)
                return

    def read(self) -> bytes:
        """Return the next data; empty at the current end."""
        while self._files:
            if data := os.read(self._files[0], _CHUNK):
                return data
            if len(self._files) == 1:
                return b""
            self._drop(1)
        return b""

    def has_more(self) -> bool:
        """Return whether data was written since the last read."""
        if not self._files:
            return os.path.exists(self._path)
        file = self._files[0]
        return os.fstat(file).st_size > os.lseek(file, 0, os.SEEK_CUR) or not _same(
            file, self._path
        )

    def goes_on(self) -> bool:
        """Return whether the log was rotated since, so that another file continues it. Nothing is
        written to this file after that."""
        if not self._files:
            self._files = [file for file in [_open(self._path)] if file >= 0]
            return bool(self._files)
        if len(self._files) > 1 or _same(self._files[0], self._path):
            return False
        paths = [*older_parts(self._path), self._path]
        ours = [number for number, each in enumerate(paths) if _same(self._files[0], each)]
        later = paths[ours[0] + 1 :] if ours else paths
        opened = [_open(each) for each in later]
        self._files += [file for file in opened if file >= 0]
        return len(self._files) > 1

    def _drop(self, number: int) -> None:
        for file in self._files[:number]:
            os.close(file)
        del self._files[:number]


def tail(file: int, lines: int) -> tuple[int, int]:
    """Return how many of the last lines a file has, at most `count`, and their position. The parts
    of a long line count as one line."""
    end = os.fstat(file).st_size
    if lines <= 0:
        return 0, end
    found, at, rest, start = 0, end, b"", end
    newest = True
    while at > 0:
        size = min(_CHUNK, at)
        at -= size
        block = os.pread(file, size, at) + rest
        # The first line of the block may begin before the block.
        rest, newline, whole = block.partition(b"\n") if at else (b"", b"\n", block)
        rest += newline if at else b""
        position = at + len(rest)
        entries = []
        for entry in whole.splitlines(keepends=True):
            entries.append((position, entry))
            position += len(entry)
        for offset, entry in reversed(entries):
            # A full line, or the last part of an unfinished one, ends the lines before it.
            if newest or not _is_piece(entry):
                newest = False
                if found == lines:
                    return found, start
                found += 1
            start = offset
    return found, start


def _is_piece(entry: bytes) -> bool:
    fields = entry.split(b" ", 3)
    return len(fields) == 4 and fields[2][:1] == b"P"


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def _same(file: int, path: str) -> bool:
    """Return whether a file has this name; during a rotation the name may not exist, which counts
    as yes."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return True
    return os.path.samestat(os.fstat(file), there)
