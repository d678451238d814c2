"""What is mounted where, and how directories go without what was mounted in them."""

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

from kedge.node.parts import VolumeFailure
from kedge.supervisor import libc

_SAFE: Final = libc.MS_NOSUID | libc.MS_NODEV
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def memory(place: Path, *options: str, flags: int = 0) -> None:
    """Mount a file system that is kept in memory, and on no disk either if the kernel can."""
    text = ",".join(options)
    try:
        libc.mount("tmpfs", str(place), "tmpfs", _SAFE | flags, f"{text},noswap")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        libc.mount("tmpfs", str(place), "tmpfs", _SAFE | flags, text)


def huge_pages(place: Path, page: int, *options: str) -> None:
    """Mount a file system whose files are made of pages of that many bytes."""
    text = ",".join((f"pagesize={page}", *options))
    libc.mount("hugetlbfs", str(place), "hugetlbfs", _SAFE, text)


def mounted(place: Path) -> bool:
    """Whether something is mounted just there."""
    return str(place.resolve()) in _places()


def below(place: Path) -> list[str]:
    """Where something is mounted, there and below; once for each mount, the deepest first."""
    # The kernel knows places by their real names.
    top = str(place.resolve())
    found = [each for each in _places() if each == top or each.startswith(f"{top}/")]
    return sorted(found, reverse=True)


def take_down(place: Path) -> None:
    """Unmount all that is mounted there and below and delete the directory with what is in it, but
    nothing of what was mounted. Raises VolumeFailure if something is left."""
    for where in below(place):
        with contextlib.suppress(OSError):
            libc.unmount(where)
    if left := below(place):
        raise VolumeFailure("FailedUnmount", f"{left[0]} is still in use")
    try:
        _remove(place)
    except FileNotFoundError:
        return
    except OSError as error:
        raise VolumeFailure("FailedUnmount", f"{place} cannot be removed: {error}") from error


def _remove(top: Path) -> None:
    """Delete a directory, however deep: each directory in it is first moved to its top level.

    The kernel moves no directory that something is mounted on, so this cannot end up in somebody
    else's files, even if a mount was overlooked.
    """
    names = (top / f"..{secrets.token_hex(4)}-{number}" for number in count())
    _open_up(top)
    waiting = [_moved(each, names) for each in _emptied(top)]
    while waiting:
        directory = waiting.pop()
        waiting += [_moved(each, names) for each in _emptied(directory)]
        try:
            directory.rmdir()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            # Not every file system shows all entries to who deletes while it looks.
            waiting.append(directory)
    top.rmdir()


def _emptied(directory: Path) -> list[str]:
    """Delete all that is in a directory but directories; returns those."""
    inner = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
            else:
                os.unlink(entry.path)
    return inner


def _moved(directory: str, names: Iterator[Path]) -> Path:
    target = next(names)
    try:
        os.rename(directory, target)
    except PermissionError:
        _open_up(directory)
        os.rename(directory, target)
    _open_up(target)
    return target


def _open_up(directory: str | Path) -> None:
    """Whoever made it may have locked it, which keeps out all but root."""
    with contextlib.suppress(OSError):
        os.chmod(directory, 0o700)


def _places() -> list[str]:
    with open("/proc/self/mountinfo", errors="surrogateescape") as mounts:
        return [_unescaped(line.split(" ", 5)[4]) for line in mounts]


def _unescaped(text: str) -> str:
    """The kernel writes spaces and the like as octal numbers."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)
