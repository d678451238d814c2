"""Copies the content of a volume that no pod uses. Copies share blocks where the disk can do that.

It is not `cp`, which would continue after a kill of the agent and write to a volume in use.
"""

import errno
import fcntl
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_FICLONE: Final = 0x40049409
_CHUNK: Final = 16 << 20
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def copy(source: Path, target: Path) -> None:
    """Copy a file or a directory with everything in it; `target` does not exist. Raises OSError."""
    TreeCopy().copy(str(source), str(target))


class TreeCopy:
    """One copy: modes, times, owners, extended attributes, links, holes and special files stay."""

    def __init__(self) -> None:
        self._linked: dict[tuple[int, int], str] = {}
        """The copies of files with several names."""

    def copy(self, source: str, target: str) -> None:
        if not stat.S_ISDIR(os.lstat(source).st_mode):
            self._copy_entry(source, target)
            return
        waiting, made = [(source, target)], []
        while waiting:
            here, there = waiting.pop()
            os.mkdir(there, 0o700)
            made.append((here, there))
            with os.scandir(here) as entries:
                for entry in entries:
                    place = os.path.join(there, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, place))
                    else:
                        self._copy_entry(entry.path, place)
        # Last, and from the bottom: a directory may not be writable, and writing changes its time.
        for here, there in reversed(made):
            _dress(here, there)

    def _copy_entry(self, source: str, target: str) -> None:
        status = os.lstat(source)
        if status.st_nlink > 1:
            identity = status.st_dev, status.st_ino
            if identity in self._linked:
                os.link(self._linked[identity], target, follow_symlinks=False)
                return
            self._linked[identity] = target
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            _copy_file(source, target)
        elif kind == stat.S_IFLNK:
            os.symlink(os.readlink(source), target)
        elif kind == stat.S_IFSOCK:
            # The process that listened on it has ended.
            return
        else:
            os.mknod(target, kind | 0o600, status.st_rdev)
        _dress(source, target)


def _dress(source: str, target: str) -> None:
    """Give a copy the owner, then mode, times and attributes."""
    status = os.lstat(source)
    with suppress(PermissionError):
        os.lchown(target, status.st_uid, status.st_gid)
    shutil.copystat(source, target, follow_symlinks=False)


def _copy_file(source: str, target: str) -> None:
    old = os.open(source, _OLD)
    try:
        new = os.open(target, _NEW, 0o600)
        try:
            if not _share(old, new):
                _copy_data(old, new)
            os.fsync(new)
        finally:
            os.close(new)
    finally:
        os.close(old)


def _share(old: int, new: int) -> bool:
    """Return whether the disk lets both files have the same blocks."""
    try:
        fcntl.ioctl(new, _FICLONE, old)
    except OSError:
        return False
    return True


def _copy_data(old: int, new: int) -> None:
    """Copy everything but holes."""
    size = os.fstat(old).st_size
    os.ftruncate(new, size)
    at = 0
    while at < size:
        try:
            begin = os.lseek(old, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = at = os.lseek(old, begin, os.SEEK_HOLE)
        _copy_range(old, new, begin, end)


def _copy_range(old: int, new: int, begin: int, end: int) -> None:
    while begin < end:
        data = os.pread(old, min(_CHUNK, end - begin), begin)
        if not data:
            return
        written = 0
        while written < len(data):
            written += os.pwrite(new, data[written:], begin + written)
        begin += len(data)
