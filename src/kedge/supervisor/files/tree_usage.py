"""Disk usage of directories that containers write to.

To hide its usage, a container could nest directories deeper than any path, or replace them by links
during the count. So the walk descends by descriptors, and returns by `..` only if that is still the
same directory.
"""

import os
import stat
from collections.abc import Iterable
from typing import Final, NamedTuple

_BLOCK: Final = 512
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeUsage(NamedTuple):
    """The usage of directories."""

    used: int
    """Bytes on disk."""
    is_complete: bool
    """Whether no directory refused to be read."""


def disk_usage(directories: Iterable[str]) -> TreeUsage:
    """Return the disk usage of directories; a file with several names counts once."""
    walk = _UsageWalk()
    return TreeUsage(sum(map(walk.measure, directories)), walk.is_complete)


class _UsageWalk:
    def __init__(self) -> None:
        self.is_complete = True
        self._seen: set[tuple[int, int]] = set()

    def measure(self, top: str) -> int:
        used = 0
        at = self._opened(top)
        if at < 0:
            return 0
        above: list[tuple[tuple[int, int], list[str]]] = []
        try:
            size, waiting = self._look(at)
            used += size
            while True:
                if waiting:
                    below = self._opened(waiting.pop(), at)
                    if below >= 0:
                        above.append((_identity(os.fstat(at)), waiting))
                        os.close(at)
                        at = below
                        size, waiting = self._look(at)
                        used += size
                    continue
                if not above:
                    return used
                parent = self._opened("..", at)
                if parent < 0:
                    return used
                os.close(at)
                at = parent
                identity, waiting = above.pop()
                if _identity(os.fstat(at)) != identity:
                    # The directory was moved: its new parent may be outside of the volume.
                    return used
        finally:
            os.close(at)

    def _look(self, directory: int) -> tuple[int, list[str]]:
        """Return the size of a directory's entries, and its subdirectories. Entries that disappear
        or cannot be read count as 0."""
        used, inner = 0, []
        try:
            entries = os.scandir(directory)
        except OSError:
            return 0, []
        with entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except PermissionError:
                    # A directory that may be listed but not searched.
                    self.is_complete = False
                    continue
                except OSError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    inner.append(entry.name)
                elif status.st_nlink > 1:
                    if _identity(status) in self._seen:
                        continue
                    self._seen.add(_identity(status))
                used += status.st_blocks * _BLOCK
        return used, inner

    def _opened(self, name: str, at: int | None = None) -> int:
        try:
            return os.open(name, _OPENED, dir_fd=at)
        except PermissionError:
            self.is_complete = False
            return -1
        except OSError:
            return -1


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
