"""Files that only take up space, so that there is some to be had when the disk is full.

A start has a few small files to write. On a full disk it deletes one of these first; they are made
again once there is room. What a running store needs is reserved inside of its own files instead
(`kedge.storage.reserve`): there nobody else can take it.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

NAME: Final = "reserve"
SIZES: Final = (*([64 << 10] * 8), 5 << 20)
"""Bytes of each piece: the files of a start are small, but a write-ahead log is large."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")


def is_full(error: BaseException) -> bool:
    """Whether it was lack of space that made something fail."""
    return isinstance(error, OSError) and error.errno in _FULL


def ensure(directory: Path) -> bool:
    """Take the space that is not taken, if there is plenty; whether all of it is taken now."""
    try:
        missing = [path for path in _pieces(directory) if not path.exists()]
        if missing and free_bytes(directory) < 2 * sum(SIZES):
            return False
        for path in missing:
            _take(path, SIZES[int(path.suffix[1:])])
    except OSError:
        return False
    return True


def release(directory: Path) -> bool:
    """Give a piece of the space back, the smallest first; whether there was any to give."""
    for path in _pieces(directory):
        try:
            path.unlink()
        except OSError:
            continue
        return True
    return False


def with_room(directory: Path, deed: Callable[[], T]) -> T:
    """Do what writes a little into the directory; on a full disk once more after each `release`."""
    while True:
        try:
            return deed()
        except OSError as error:
            if not is_full(error) or not release(directory):
                raise


def _pieces(directory: Path) -> list[Path]:
    return [directory / f"{NAME}.{number}" for number in range(len(SIZES))]


def _take(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def free_bytes(directory: Path) -> int:
    """How much an ordinary user could still write there."""
    with contextlib.suppress(OSError):
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize
    return 0
