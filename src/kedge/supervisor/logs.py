"""Logs of containers, in the format that the container runtime interface prescribes."""

import contextlib
import os
import time
from typing import Final

PIECE: Final = 16_384
"""Longer lines are written in pieces of this many bytes."""
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


class Log:
    """The log file of one container; what cannot be written is lost, the container goes on."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self.reopen()

    def reopen(self) -> None:
        """Go on in the file that now has the name, making it if need be."""
        self.close()
        if not self._path:
            return
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), 0o755, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o640)

    def write(self, content: bytes) -> None:
        with contextlib.suppress(OSError):
            while content and self._file >= 0:
                content = content[os.write(self._file, content) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
