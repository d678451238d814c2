"""Conceals paths of an overlay's lower layer through its upper directory, before the mount.

An empty mount on top would hide them too, but a container with CAP_SYS_ADMIN could unmount it,
and programs could not write there. The container cannot undo entries of the upper directory, and
a home directory stays writable.
"""

import contextlib
import os
import stat
from collections.abc import Iterable

TRUSTED = "trusted.overlay.opaque"
USER = "user.overlay.opaque"


def conceal(
    lower: str, upper: str, paths: Iterable[str], opaque: str, *, seen_at: str = ""
) -> None:
    """Make paths of the machine empty in `upper`, the upper directory of an overlay on `lower`,
    or on the same files mounted at `seen_at` with other owners.

    The attribute `opaque` makes the kernel ignore the lower directory. This reads the machine's
    own files before any container file exists, so following links is safe.
    """
    top = os.path.realpath(lower)
    made: set[str] = set()
    for path in paths:
        if not _may_exist(path):
            continue
        real = os.path.realpath(path)
        inside = os.path.relpath(real, top)
        if inside == "." or inside.split("/")[0] == ".." or not os.path.lexists(real):
            continue
        # A path whose parents cannot be read or copied cannot be read through the overlay either.
        with contextlib.suppress(PermissionError):
            _conceal(seen_at or lower, upper, inside, opaque, made)


def _may_exist(path: str) -> bool:
    """Return whether a path, or the target of a link there, may exist. Most paths of the list are
    missing on most machines, and one call tells."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _conceal(lower: str, upper: str, inside: str, opaque: str, made: set[str]) -> None:
    above = ""
    for name in inside.split("/")[:-1]:
        above = f"{above}/{name}"
        # Many paths have the same parents.
        if above not in made:
            directory(f"{lower}{above}", f"{upper}{above}")
            made.add(above)
    source, target = f"{lower}/{inside}", f"{upper}/{inside}"
    if stat.S_ISDIR(os.lstat(source).st_mode):
        directory(source, target)
        os.setxattr(target, opaque, b"y")
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        _dress(source, target)


def directory(source: str, target: str) -> None:
    """Make a directory with the attributes of the lower one, with which the overlay merges it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(target)
        _dress(source, target)


def _dress(source: str, target: str) -> None:
    found = os.lstat(source)
    # In a user namespace only one owner is mapped: the others stay ours.
    with contextlib.suppress(OSError):
        os.chown(target, found.st_uid, found.st_gid)
    os.chmod(target, stat.S_IMODE(found.st_mode))
