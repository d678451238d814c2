"""Mount and unmount of file systems for volumes."""

import contextlib
import errno
import re
from pathlib import Path
from typing import Final

from kedge.node.pod.dependencies import VolumeFailure
from kedge.supervisor.files.removal import remove_all
from kedge.supervisor.kernel import libc

_SAFE: Final = libc.MS_NOSUID | libc.MS_NODEV
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def memory(place: Path, *options: str, flags: int = 0) -> None:
    """Mount a tmpfs, without swap if the kernel supports that."""
    text = ",".join(options)
    try:
        libc.mount("tmpfs", str(place), "tmpfs", _SAFE | flags, f"{text},noswap")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        libc.mount("tmpfs", str(place), "tmpfs", _SAFE | flags, text)


def huge_pages(place: Path, page: int, *options: str) -> None:
    """Mount a hugetlbfs with that page size in bytes."""
    text = ",".join((f"pagesize={page}", *options))
    libc.mount("hugetlbfs", str(place), "hugetlbfs", _SAFE, text)


def mounted(place: Path) -> bool:
    """Return whether the path is a mount point."""
    return str(place.resolve()) in places()


def is_shared(place: Path) -> bool:
    """Return whether mounts at the path appear in other mount namespaces too."""
    path, best, found = str(place.resolve()), "", False
    with open("/proc/self/mountinfo", errors="surrogateescape") as lines:
        for line in lines:
            fields = line.partition(" - ")[0].split(" ")
            where = _unescaped(fields[4])
            if f"{path}/".startswith(where.rstrip("/") + "/") and len(where) >= len(best):
                best, found = where, any(each.startswith("shared:") for each in fields[6:])
    return found


def below(place: Path) -> list[str]:
    """Return the mount points at and below a path, once for each mount, deepest first."""
    # mountinfo has resolved paths.
    top = str(place.resolve())
    found = [each for each in places() if each == top or each.startswith(f"{top}/")]
    return sorted(found, reverse=True)


def take_down(place: Path) -> None:
    """Unmount everything at and below a path and delete the directory, but nothing in the mounted
    file systems. Raises VolumeFailure if something is left."""
    for where in below(place):
        with contextlib.suppress(OSError):
            libc.unmount(where)
    if left := below(place):
        raise VolumeFailure("FailedUnmount", f"{left[0]} is still in use")
    if failure := remove_all(place):
        raise VolumeFailure("FailedUnmount", f"{place} cannot be removed: {failure}")


def take_down_binds(place: Path) -> None:
    """Take down mounts of other directories. They may share their events with the original, so
    that what is mounted below it would be unmounted there too."""
    for where in reversed(below(place)):
        with contextlib.suppress(OSError):
            libc.mount("", where, flags=libc.MS_REC | libc.MS_PRIVATE)
    take_down(place)


def places() -> list[str]:
    with open("/proc/self/mountinfo", errors="surrogateescape") as mounts:
        return [_unescaped(line.split(" ", 5)[4]) for line in mounts]


def _unescaped(text: str) -> str:
    """Decode the octal escapes of mountinfo."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)
