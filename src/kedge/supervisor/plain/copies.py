"""Copies of volumes in the root of a container, in place of mounts.

The container may change its root at any time, so both ends are descriptors, nothing that exists is
written to, and no link is followed. A copy is bounded: it is made for files of objects.
"""

import contextlib
import errno
import os
import stat
from typing import Final

from kedge.supervisor.files.removal import remove
from kedge.supervisor.plain.volumes import MountRefusal

DATA: Final = "..data"
"""The link of a volume that follows objects to the directory with their current files."""
MOST_BYTES: Final = 256 << 20
MOST_ENTRIES: Final = 10_000
_MOST_LEVELS: Final = 64
_CHUNK: Final = 1 << 24
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeCopier:
    """Copies directories, up to a limit for all of them."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_entries: int = MOST_ENTRIES) -> None:
        self._most_bytes = self._bytes = most_bytes
        self._most_entries = self._entries = most_entries

    def copy(self, source: int, target: int, levels: int = _MOST_LEVELS) -> None:
        """Copy the entries of a directory to an empty one, with modes and owners. Special files are
        left out. Raises OSError."""
        if not levels:
            raise MountRefusal(errno.ENAMETOOLONG, f"it has more than {_MOST_LEVELS} levels")
        for name in os.listdir(source):
            self._spend(0)
            status = os.stat(name, dir_fd=source, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                self.copy_only(source, target, name, levels)
            elif stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
                os.chown(name, status.st_uid, status.st_gid, dir_fd=target, follow_symlinks=False)
            elif stat.S_ISREG(status.st_mode):
                self._copy_file(source, target, name)
        own(source, target)

    def copy_only(self, source: int, target: int, name: str, levels: int = _MOST_LEVELS) -> None:
        """Copy one directory of a directory."""
        os.mkdir(name, 0o700, dir_fd=target)
        here = os.open(name, _DIRECTORY, dir_fd=source)
        try:
            there = os.open(name, _DIRECTORY, dir_fd=target)
            try:
                self.copy(here, there, levels - 1)
            finally:
                os.close(there)
        finally:
            os.close(here)

    def _copy_file(self, source: int, target: int, name: str) -> None:
        here = os.open(name, _OLD, dir_fd=source)
        try:
            self.copy_content(here, target, name)
        finally:
            os.close(here)

    def copy_content(self, file: int, target: int, name: str) -> None:
        """Copy an open file to a new one in a directory."""
        there = os.open(name, _NEW, 0o600, dir_fd=target)
        try:
            while sent := os.sendfile(there, file, None, _CHUNK):
                self._spend(sent)
            own(file, there)
        finally:
            os.close(there)

    def _spend(self, size: int) -> None:
        self._bytes -= size
        self._entries -= 1
        if self._bytes < 0 or self._entries < 0:
            most = f"{self._most_bytes >> 20} MiB or {self._most_entries} files"
            raise MountRefusal(errno.EFBIG, f"it has more than {most}")


def own(source: int, target: int) -> None:
    """Give a file or directory the owner and the mode of another."""
    status = os.fstat(source)
    with contextlib.suppress(PermissionError):
        os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, stat.S_IMODE(status.st_mode))


def refresh(source: int, target: int) -> bool:
    """Bring the copy of a volume that follows objects up to date, all files at once; returns
    whether there was something to do. Raises OSError."""
    current, before = os.readlink(DATA, dir_fd=source), _link(target)
    if current == before:
        return False
    if "/" in current or not current.startswith(".."):
        raise OSError(errno.EINVAL, f"{DATA} of the volume leads to {current}")
    # Left by a refresh that was killed.
    remove(f"/proc/self/fd/{target}/{current}")
    TreeCopier().copy_only(source, target, current)
    _replace_link(target, DATA, current)
    shown = {name for name in os.listdir(source) if not name.startswith("..")}
    for name in os.listdir(target):
        if not name.startswith("..") and name not in shown:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=target)
    for name in shown:
        with contextlib.suppress(FileExistsError):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
    if before.startswith("..") and "/" not in before:
        remove(f"/proc/self/fd/{target}/{before}")
    return True


def _link(directory: int) -> str:
    try:
        return os.readlink(DATA, dir_fd=directory)
    except OSError:
        return ""


def _replace_link(directory: int, name: str, target: str) -> None:
    passing = f"{name}_tmp"
    with contextlib.suppress(OSError):
        os.unlink(passing, dir_fd=directory)
    os.symlink(target, passing, dir_fd=directory)
    os.rename(passing, name, src_dir_fd=directory, dst_dir_fd=directory)
