"""Logs of containers, in the format that the container runtime interface prescribes."""

import contextlib
import os
import stat
import time
from typing import Final

PIECE: Final = 16_384
"""Longer lines are written in pieces of this many bytes."""
MOST_BYTES: Final = 10 << 20
"""Of one file of a log, as the kubelet has it (containerLogMaxSize)."""
MOST_FILES: Final = 5
"""Files of one container, the one it writes to included (containerLogMaxFiles)."""
_SECOND: Final = 1_000_000_000


def stamp(nanoseconds: int) -> bytes:
    """A moment as the log shows it."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:09d}Z", time.gmtime(seconds)).encode()


class Lines:
    """Cuts what one stream says into the lines of a log; holds back a line that is not ended."""

    def __init__(self, stream: str, *, terminal: bool = False) -> None:
        self._stream = stream.encode()
        self._terminal = terminal
        self._rest = b""

    def cut(self, chunk: bytes, at: int) -> bytes:
        """What to write to the log after some more was said."""
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
        """What to write when no more will come."""
        rest, self._rest = self._rest, b""
        return self._heads(at)[1] + rest + b"\n" if rest else b""

    def _heads(self, at: int) -> tuple[bytes, bytes]:
        head = stamp(at) + b" " + self._stream
        return head + b" F ", head + b" P "


def older_parts(path: str) -> list[str]:
    """The files that a log was cut into before the one that it goes on in, the eldest first."""
    directory, name = os.path.split(path)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [os.path.join(directory, each) for each in sorted(names) if each.startswith(f"{name}.")]


class Log:
    """The log file of one container; what cannot be written is lost, the container goes on.

    A container writes gigabytes in the time between two looks at its log, so that the limit is kept
    where it is written: no file of it is ever longer than MOST_BYTES, and there are never more of
    them than MOST_FILES.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._size = 0
        self._cut_at = 0
        self._ended = False
        self._open()

    def _open(self) -> None:
        """Go on in the file that has the name, making it if need be. Where containers are not kept
        apart from the machine's files, one could put a FIFO in its place, which would stop all of
        them."""
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
                # The disk was full, maybe, and is not any more.
                self._open()
            if self._size and self._size + len(content) > MOST_BYTES:
                self._cut()
            self._size += len(content)
            while content and self._file >= 0:
                content = content[os.write(self._file, content) :]

    def _cut(self) -> None:
        """Set the file aside under the time of day, as the kubelet does, and go on in a new one.
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
