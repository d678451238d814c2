"""Walks through directories of the machine by descriptor, past nothing that a container made.

Containers without a root of their own may own directories of the machine, such as one below /tmp.
A walk follows links and enters directories only of root and of kedge's own user.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_STEP: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_STEPS: Final = 256
"""Parts of a path, with those of the links on the way."""


class ForeignPath(OSError):
    """A directory or link on the way belongs to another user."""


@contextmanager
def parent(path: str, made: list[str] | None = None) -> Iterator[tuple[int, str]]:
    """Open the directory of an absolute path; yields it with the last name of the path.

    Missing directories are made if there is a list for them; the list gets each path first, so
    that the caller can remove what an interrupted walk made.
    """
    above, name = os.path.split(path)
    at = _walk([part for part in above.split("/") if part], made)
    try:
        yield at, name
    finally:
        os.close(at)


def _walk(parts: list[str], made: list[str] | None) -> int:
    waiting, at, here = parts[::-1], os.open("/", _STEP | os.O_DIRECTORY), ""
    try:
        for _ in range(_MOST_STEPS):
            if not waiting:
                return at
            part = waiting.pop()
            below = _below(at, part, f"{here}/{part}", made)
            if target := _link_target(below):
                os.close(below)
                if target.startswith("/proc/"):
                    raise OSError(errno.EXDEV, f'"{here}/{part}" is a mount path too')
                waiting += [each for each in reversed(target.split("/")) if each not in ("", ".")]
                if not target.startswith("/"):
                    continue
                below, part, here = os.open("/", _STEP | os.O_DIRECTORY), "", ""
            os.close(at)
            at, here = below, f"{here}/{part}" if part else ""
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except BaseException:
        os.close(at)
        raise


def _below(at: int, part: str, path: str, made: list[str] | None) -> int:
    try:
        found = os.open(part, _STEP, dir_fd=at)
    except FileNotFoundError:
        if made is None:
            raise
        made.append(path)
        os.mkdir(part, 0o755, dir_fd=at)
        found = os.open(part, _STEP, dir_fd=at)
    status = os.fstat(found)
    if status.st_uid not in (0, os.geteuid()):
        os.close(found)
        raise ForeignPath(errno.EPERM, f'"{path}" belongs to user {status.st_uid}')
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        os.close(found)
        raise OSError(errno.ENOTDIR, f'"{path}" is not a directory')
    return found


def _link_target(descriptor: int) -> str:
    if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
        return ""
    return os.readlink("", dir_fd=descriptor)
