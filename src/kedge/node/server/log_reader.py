"""Logs of containers as users want to see them: from files in CRI's format, rotated ones too."""

import os
from dataclasses import dataclass
from typing import Final

from kedge.supervisor.container.logs import older_parts

_CHUNK: Final = 256 << 10


@dataclass(frozen=True)
class Wanted:
    """What of a log is to be shown, and how."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    """Lines from the end."""
    since: str = ""
    """Nothing from before this moment, which is written as the log writes it."""
    limit: int | None = None
    """Bytes."""
    stream: str = ""
    """stdout or stderr; empty for both."""


class Lines:
    """Lines of a log file in, what users see out."""

    def __init__(self, wanted: Wanted) -> None:
        self._timestamps = wanted.timestamps
        self._since = wanted.since.encode()
        self._stream = wanted.stream.encode()
        self._left = wanted.limit
        self._rest = b""
        self._fresh = True
        """Whether the next piece begins a line."""

    @property
    def done(self) -> bool:
        """Whether nothing that follows will be shown."""
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
        # The pieces of a long line are joined.
        self._fresh = tag[:1] != b"P"
        if self._fresh:
            shown.append(b"\n")


class Reader:
    """Reads a log from some place on, through all files that it has been cut into."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = [_open(each) for each in [*older_parts(path), path]]
        self._files = [file for file in self._files if file >= 0]
        """Open from the beginning, so that none is lost when it is removed meanwhile."""

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []

    def skip_to_tail(self, lines: int) -> None:
        """Leave out all but the last lines."""
        for number in range(len(self._files) - 1, -1, -1):
            found, start = tail(self._files[number], lines)
            lines -= found
            if lines <= 0 or number == 0:
                self._drop(number)
                os.lseek(self._files[0], start, os.SEEK_SET)
                return

    def read(self) -> bytes:
        """What comes next; empty at the end, for now."""
        while self._files:
            if data := os.read(self._files[0], _CHUNK):
                return data
            if len(self._files) == 1:
                return b""
            self._drop(1)
        return b""

    def has_more(self) -> bool:
        """Whether something has been written since the last look."""
        if not self._files:
            return os.path.exists(self._path)
        file = self._files[0]
        return os.fstat(file).st_size > os.lseek(file, 0, os.SEEK_CUR) or not _same(
            file, self._path
        )

    def goes_on(self) -> bool:
        """Whether the log has been cut since, so that there is more to read in another file. By
        then nothing is written to this one any more."""
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
    """How many of the last lines a file has, at most that many, and where they begin. The pieces
    of a long line count as one."""
    end = os.fstat(file).st_size
    if lines <= 0:
        return 0, end
    found, at, rest, start = 0, end, b"", end
    newest = True
    while at > 0:
        size = min(_CHUNK, at)
        at -= size
        block = os.pread(file, size, at) + rest
        # The first line of the block may have begun before it.
        rest, newline, whole = block.partition(b"\n") if at else (b"", b"\n", block)
        rest += newline if at else b""
        position = at + len(rest)
        entries = []
        for entry in whole.splitlines(keepends=True):
            entries.append((position, entry))
            position += len(entry)
        for offset, entry in reversed(entries):
            # A whole line, or the last piece of one that never ended, ends what came before.
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
    """Whether a file has this name; a name that is nobody's for a moment counts as its own."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return True
    return os.path.samestat(os.fstat(file), there)
