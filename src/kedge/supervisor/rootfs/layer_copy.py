"""Copies of whole directories, where overlays are not available."""

import contextlib
import fcntl
import os
import stat
from typing import Final

from kedge.supervisor.files.removal import remove

_CHUNK: Final = 1 << 24
_FICLONE: Final = 0x4004_9409
"""The ioctl that makes a file share the blocks of another (ioctl_ficlone(2))."""


def merge(lowers: list[str], into: str) -> None:
    """Copy layers of an image, the uppermost first, into one directory."""
    os.makedirs(into, exist_ok=True)
    for lower in reversed(lowers):
        _over(lower, into)


def _over(source: str, target: str) -> None:
    """Merge a directory over another as an overlay would: a whiteout removes the lower entry.
    Iterative, since an image may nest deeper than Python's stack."""
    waiting = [iter([*_entries(source)])]
    made: list[tuple[str, os.stat_result]] = []
    paths = [target]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            paths.pop()
            if made:
                # At the end: adding entries changes a directory's times, and needs write
                # permission.
                _own(*made.pop())
            continue
        path = f"{paths[-1]}/{entry.name}"
        status = entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            if _is_opaque(entry.path) or not _is_directory(path):
                _clear(path)
                os.mkdir(path, 0o700)
            waiting.append(iter([*_entries(entry.path)]))
            paths.append(path)
            made.append((path, status))
            continue
        _clear(path)
        if not (stat.S_ISCHR(status.st_mode) and status.st_rdev == 0):
            _copy(entry.path, path, status)
            _own(path, status)


def _entries(directory: str) -> list["os.DirEntry[str]"]:
    with os.scandir(directory) as entries:
        return list(entries)


def _copy(source: str, path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), path)
    elif stat.S_ISFIFO(status.st_mode):
        os.mkfifo(path, 0o600)
    elif stat.S_ISREG(status.st_mode):
        with open(source, "rb") as content, open(path, "xb") as copy:
            _fill(copy.fileno(), content.fileno())


def _fill(copy: int, content: int) -> None:
    """Copy a file: by sharing its blocks where the file system can (btrfs, XFS), else its bytes."""
    try:
        fcntl.ioctl(copy, _FICLONE, content)
    except OSError:
        # Not supported, or another file system: a failed attempt leaves the copy empty.
        while os.sendfile(copy, content, None, _CHUNK):
            pass


def _own(path: str, status: os.stat_result) -> None:
    with contextlib.suppress(OSError):
        os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)
    with contextlib.suppress(OSError):
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(path, stat.S_IMODE(status.st_mode))
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(path, ns=times, follow_symlinks=False)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _is_opaque(path: str) -> bool:
    for name in ("trusted.overlay.opaque", "user.overlay.opaque"):
        with contextlib.suppress(OSError):
            if os.getxattr(path, name, follow_symlinks=False) == b"y":
                return True
    return False


def _clear(path: str) -> None:
    if _is_directory(path):
        remove(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
