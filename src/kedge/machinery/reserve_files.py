"""Reserve files: they take up space that a start can use on a full disk.

A start writes a few small files. On a full disk it deletes a reserve file first; it is made
again once there is space. The space that a running store needs is reserved inside its own files
instead (`kedge.storage.reserve`), where other programs cannot take it.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

NAME: Final = "reserve"
SIZES: Final = (*([64 << 10] * 8), 5 << 20)
"""Bytes of each file: the files of a start are small, but a write-ahead log is large."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")


def is_full(error: BaseException) -> bool:
    """Return whether the error is a lack of space."""
    return isinstance(error, OSError) and error.errno in _FULL


def ensure(directory: Path) -> bool:
    """Make missing reserve files if there is plenty of space; returns whether all exist."""
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
    """Delete one reserve file, the smallest first; returns whether there was one."""
    for path in _pieces(directory):
        try:
            path.unlink()
        except OSError:
            continue
        return True
    return False


def with_room(directory: Path, act: Callable[[], T]) -> T:
    """Run a function that writes little into the directory; on a full disk retry after each
    `release`."""
    while True:
        try:
            return act()
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
    """Return the free space for ordinary users."""
    with contextlib.suppress(OSError):
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize
    return 0
