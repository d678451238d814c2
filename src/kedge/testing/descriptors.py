"""The open descriptors of this process.

A test counts those of its own files and sockets, never all: an object that an earlier test left may
be collected, and its descriptor closed, at any moment.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path


def regular_files() -> set[int]:
    return {number for number, found in _open() if stat.S_ISREG(found.st_mode)}


def copies_of(inode: int) -> int:
    """How often a file or socket is open."""
    return sum(found.st_ino == inode for _, found in _open())


def below(top: Path) -> list[int]:
    """The descriptors of a file, or of the files and directories in a directory."""
    return [number for number, _ in _open() if _is_below(number, str(top))]


def _is_below(number: int, top: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        path = os.readlink(f"/proc/self/fd/{number}")
        return path == top or path.startswith(f"{top}/")
    return False


def _open() -> Iterator[tuple[int, os.stat_result]]:
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            yield number, os.fstat(number)
