"""Open descriptors of the supervisor: its children close them before they reach a container."""

import contextlib
import fcntl
import os
import resource
from collections.abc import Iterable, Mapping
from typing import Final

from kedge.supervisor.kernel import libc

_LAST: Final = 0xFFFF_FFFF
"""The largest number that close_range takes."""


def keep_only(kept: Iterable[int]) -> None:
    """Close every descriptor of this process but those.

    O_CLOEXEC is not enough: until execve a descriptor can be reached as /proc/self/fd/N by every
    path that is resolved inside the container's root, as CVE-2024-21626 did with a working
    directory. Descriptors of the machine must be closed before the first such path is resolved.
    """
    for first, last in gaps(kept):
        _close(first, last)


def renumber(wanted: Mapping[int, int]) -> None:
    """Give descriptors other numbers, by number; those that had them are closed."""
    free = max([*wanted, *wanted.values()], default=0) + 1
    # None of the old numbers may be taken before all are out of the way.
    moved = {
        number: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, free)
        for number, descriptor in wanted.items()
    }
    for number, descriptor in moved.items():
        os.dup2(descriptor, number, inheritable=False)
    keep_only({0, 1, 2, *wanted})


def gaps(kept: Iterable[int]) -> list[tuple[int, int]]:
    """The ranges of numbers between the kept ones, both ends included."""
    found, first = [], 0
    for number in sorted(set(kept)):
        if number < 0:
            continue
        if number > first:
            found.append((first, number - 1))
        first = number + 1
    return [*found, (first, _LAST)]


def _close(first: int, last: int) -> None:
    # Not os.closerange: Python 3.11 takes an empty range for all descriptors, and where the kernel
    # lacks the call it tries every number up to the end.
    try:
        libc.close_range(first, last)
    except OSError:
        for number in range(first, min(last, _most()) + 1):
            with contextlib.suppress(OSError):
                os.close(number)


def _most() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
