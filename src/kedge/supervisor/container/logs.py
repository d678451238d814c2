"""Logs of containers, in the format of the container runtime interface (CRI)."""

import contextlib
import os
import stat
import time
from typing import Final

PIECE: Final = 16_384
"""Longer lines are written in pieces of this many bytes."""
MOST_BYTES: Final = 10 << 20
"""Bytes of one log file, as the kubelet's containerLogMaxSize."""
MOST_FILES: Final = 5
"""Log files of one container, the current one included, as the kubelet's containerLogMaxFiles."""
_SECOND: Final = 1_000_000_000


def stamp(nanoseconds: int) -> bytes:
    """Return a timestamp as the log shows it."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:09d}Z", time.gmtime(seconds)).encode()


class LineSplitter:
    """Splits one stream into log entries; holds back an unfinished line."""

    def __init__(self, stream: str, *, terminal: bool = False) -> None:
        self._stream = stream.encode()
        self._terminal = terminal
        self._rest = b""

    def cut(self, chunk: bytes, at: int) -> bytes:
        """Return the log entries for another chunk of output."""
        full, partial = self._heads(at)
        *lines, rest = (self._rest + chunk).split(b"\n")
        parts: list[bytes] = []
        for line in lines:
            if self._terminal:
                line = line.removesuffix(b"\r")
            while len(line) > PIECE:
                parts += (partial, line[:PIECE], b"\n")
                line = line[PIECE:]
            parts += (full, line, b"\n")
        while len(rest) > PIECE:
            parts += (partial, rest[:PIECE], b"\n")
            rest = rest[PIECE:]
        self._rest = rest
        return b"".join(parts)

    def end(self, at: int) -> bytes:
        """Return the log entry for an unfinished last line."""
        rest, self._rest = self._rest, b""
        return self._heads(at)[1] + rest + b"\n" if rest else b""

    def _heads(self, at: int) -> tuple[bytes, bytes]:
        head = stamp(at) + b" " + self._stream
        return head + b" F ", head + b" P "


def older_parts(path: str) -> list[str]:
    """Return the rotated files of a log, the oldest first."""
    directory, name = os.path.split(path)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [os.path.join(directory, each) for each in sorted(names) if each.startswith(f"{name}.")]


class ContainerLog:
    """The log of one container. Output that cannot be written is lost; the container continues.

    A container could write gigabytes between two periodic checks, so the writer itself keeps the
    limits: no file is ever longer than MOST_BYTES, and there are never more than MOST_FILES.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._size = 0
        self._cut_at = 0
        self._ended = False
        self._open()

    def _open(self) -> None:
        """Open the current file, making it if needed. A container that shares the machine's
        files could put a FIFO in its place, which would block all containers' logs."""
        if not self._path:
            return
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), 0o755, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o640)
            status = os.fstat(self._file)
            self._size = status.st_size
            if not stat.S_ISREG(status.st_mode):
                self._let_go()

    def write(self, content: bytes) -> None:
        if self._ended:
            return
        with contextlib.suppress(OSError):
            if self._file < 0:
                # The disk may have been full before.
                self._open()
            if self._size and self._size + len(content) > MOST_BYTES:
                self._cut()
            self._size += len(content)
            while content and self._file >= 0:
                content = content[os.write(self._file, content) :]

    def _cut(self) -> None:
        """Rotate the file under a timestamp, as the kubelet does, and continue in a new one.
        Parts may follow each other within a second, and the time of day may be set back."""
        self._cut_at = max(self._cut_at + 1, time.time_ns())
        seconds, rest = divmod(self._cut_at, _SECOND)
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))
        os.rename(self._path, f"{self._path}.{moment}.{rest:09d}")
        self._let_go()
        self._open()
        for old in older_parts(self._path)[: -(MOST_FILES - 1)]:
            os.unlink(old)

    def close(self) -> None:
        self._ended = True
        self._let_go()

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
