"""Checks that other users of the machine cannot change a path, as sshd's StrictModes does.

A user who can write to a directory can replace its entries between two system calls. If every
directory of a path belongs to us or to root and others cannot write to it, the path always names
the same file, and need not be resolved by descriptors.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_OTHERS_WRITE: Final = 0o022


class UntrustedPath(Exception):
    """Another user made the path or can change it; the message names the user and the path."""


def check_directory(path: Path) -> None:
    """Raise UntrustedPath if other users can change the directory or a directory above it.

    For a path that does not exist yet, the existing directories above it are checked.
    """
    real = Path(os.path.realpath(path))
    check_parents(real)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found = os.stat(real)
        if found.st_uid != os.geteuid():
            raise UntrustedPath(f"{real} belongs to {user_name(found.st_uid)}")
        if _others_write(found):
            raise UntrustedPath(f"{real} may be written to by other users")


def check_parents(path: Path) -> None:
    """Raise UntrustedPath if a user other than us and root can replace a directory above the path.

    In a directory with the sticky bit, such as /tmp, others can add entries but not replace
    entries of another user. So each directory below it must have the right owner, which is
    checked too.
    """
    for above in reversed(Path(os.path.realpath(path)).parents):
        try:
            found = os.stat(above)
        except (FileNotFoundError, NotADirectoryError):
            return
        if found.st_uid not in _trusted_owners():
            raise UntrustedPath(f"{above} belongs to {user_name(found.st_uid)}")
        if _others_write(found) and not found.st_mode & stat.S_ISVTX:
            raise UntrustedPath(f"{above} may be written to by other users")


def open_file(path: Path) -> int:
    """Open a regular file of ours for reading; UntrustedPath if it is a link, a device or another
    user's.

    Links are not followed, since they could lead anywhere. The open does not block, since
    opening a FIFO would block for ever.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if path.is_symlink():
        raise UntrustedPath(f"{path} is a link")
    descriptor = os.open(path, flags)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid in (0, os.geteuid()):
        return descriptor
    os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise UntrustedPath(f"{path} is not a regular file")
    raise UntrustedPath(f"{path} belongs to {user_name(found.st_uid)}")


def read(path: Path, limit: int = 1 << 20) -> bytes:
    """Return the content of a regular file of ours."""
    with open(open_file(path), "rb") as file:
        return file.read(limit)


def user_name(uid: int) -> str:
    """Return the user's name for messages."""
    import pwd

    try:
        return f'"{pwd.getpwuid(uid).pw_name}"'
    except KeyError:
        return f"the user with the id {uid}"


def _others_write(found: os.stat_result) -> bool:
    writable = found.st_mode & _OTHERS_WRITE
    if writable == stat.S_IWGRP and found.st_uid == os.geteuid():
        # Where each user has a group of their own, a umask of 002 is usual, as Debian's sshd knows.
        return not _is_own_group(found.st_gid)
    return bool(writable)


def _is_own_group(gid: int) -> bool:
    """Return whether the group is the user's private group, without other members."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (
        user.pw_gid == gid and user.pw_name == group.gr_name and {*group.gr_mem} <= {user.pw_name}
    )


def _trusted_owners() -> Iterator[int]:
    yield 0
    yield os.geteuid()
    # In a user namespace without it, the machine's root shows as the overflow id.
    with contextlib.suppress(OSError, ValueError):
        if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
            yield int(Path("/proc/sys/kernel/overflowuid").read_text())
