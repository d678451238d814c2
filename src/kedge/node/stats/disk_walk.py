"""DiskWalk: adds up the disk usage of directories, a few entries at a time.

The directories belong to containers, which may be hostile: a million files, trees deeper than any
path, links to elsewhere, FIFOs, directories that move during the walk. So nothing is opened but
directories, each from the descriptor of the one above and never through a link; the walk returns by
`..` only if that is still the same directory; and everything that it remembers is bounded.
"""

import contextlib
import os
import stat
from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

_BLOCK: Final = 512
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
MOST_REMEMBERED: Final = 1 << 16
"""Directories to visit, levels above, and files with several names, each at most so many."""
DIRECTORY_COST: Final = 5
"""Entries that cost as much as opening a directory."""


class DiskTotal(NamedTuple):
    """The content of directories."""

    bytes: int = 0
    inodes: int = 0


class DiskWalk:
    """One walk over some directories."""

    def __init__(self, directories: Sequence[str], *, top_only: bool = False) -> None:
        """`top_only` leaves out subdirectories."""
        self._bytes = self._inodes = 0
        self._top_only = top_only
        self._linked: set[tuple[int, int]] = set()
        self._waiting = 0
        """Directories that are to be visited."""
        self._steps = self._walk(directories)
        self.done = False
        self.is_complete = True
        """Whether everything was counted, so far; else there is at least so much."""

    @property
    def total(self) -> DiskTotal:
        return DiskTotal(self._bytes, self._inodes)

    def advance(self, entries: int) -> int:
        """Look at about so many more entries; returns at how many."""
        looked = 0
        for cost in self._steps:
            looked += cost
            if looked >= entries:
                return looked
        self.done = True
        return looked

    def close(self) -> None:
        """Close the directory that is open."""
        self._steps.close()

    def _walk(self, directories: Sequence[str]) -> Generator[int, None, None]:
        for top in directories:
            with contextlib.suppress(OSError):
                yield from self._walk_one(os.open(top, _OPENED))

    def _walk_one(self, at: int) -> Iterator[int]:
        above: list[tuple[tuple[int, int], list[str]]] = []
        try:
            yield DIRECTORY_COST
            waiting: list[str] = []
            yield from self._look(at, waiting)
            while True:
                if waiting:
                    name = waiting.pop()
                    self._waiting -= 1
                    if len(above) >= MOST_REMEMBERED:
                        self.is_complete = False
                        continue
                    # Nothing may be open here but `at`: a walk can be closed at each yield.
                    yield DIRECTORY_COST
                    below = _opened(name, at)
                    if below >= 0:
                        above.append((_identity(os.fstat(at)), waiting))
                        os.close(at)
                        at, waiting = below, []
                        yield from self._look(at, waiting)
                    continue
                if not above:
                    return
                parent = _opened("..", at)
                if parent < 0:
                    self.is_complete = False
                    return
                os.close(at)
                at = parent
                identity, waiting = above.pop()
                if _identity(os.fstat(at)) != identity:
                    # The directory was moved: its new parent may be outside of the container.
                    self.is_complete = False
                    return
                yield 1
        finally:
            os.close(at)

    def _look(self, directory: int, waiting: list[str]) -> Iterator[int]:
        """Count the entries of a directory, and remember its subdirectories. Entries that disappear
        count as nothing."""
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                yield 1
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                is_directory = stat.S_ISDIR(status.st_mode)
                if is_directory and self._top_only:
                    continue
                if is_directory:
                    self._remember(entry.name, waiting)
                elif status.st_nlink > 1 and not self._is_first_name(status):
                    continue
                self._inodes += 1
                self._bytes += status.st_blocks * _BLOCK

    def _remember(self, name: str, waiting: list[str]) -> None:
        if self._waiting >= MOST_REMEMBERED:
            self.is_complete = False
            return
        self._waiting += 1
        waiting.append(name)

    def _is_first_name(self, status: os.stat_result) -> bool:
        """Whether a file with several names was not met before. If there are too many of them, the
        others count with each name."""
        identity = _identity(status)
        if identity in self._linked:
            return False
        if len(self._linked) < MOST_REMEMBERED:
            self._linked.add(identity)
        return True


def _opened(name: str, at: int) -> int:
    try:
        return os.open(name, _OPENED, dir_fd=at)
    except OSError:
        return -1


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
