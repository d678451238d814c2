"""Gives the files of a volume to a group.

Containers fill volumes: with millions of files, with directories deeper than any path, with links.
So the walk goes by descriptors, follows no link, leaves no file system and can be stopped.
"""

import os
import stat
from collections.abc import Callable
from typing import Final

_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE: Final = 0o660
"""Added to the mode of files."""
DIRECTORY: Final = 0o2110
"""Added for directories: entries can be reached, and new ones get the group."""
_DEEPEST: Final = 256
"""Levels of directories; deeper ones keep their group."""


def give(place: str | os.PathLike[str], group: int, *, is_stopped: Callable[[], bool]) -> int:
    """Change the group and the mode of everything in a volume; return the number of entries."""
    top = os.open(place, _OPENED)
    try:
        walk = _GroupWalk(group, is_stopped, os.fstat(top))
        walk.directory(top, 0)
        return walk.count
    finally:
        os.close(top)


class _GroupWalk:
    def __init__(self, group: int, is_stopped: Callable[[], bool], top: os.stat_result) -> None:
        self.count = 0
        self._group = group
        self._is_stopped = is_stopped
        self._device = top.st_dev

    def directory(self, at: int, depth: int) -> None:
        """Content first: an interrupted walk leaves the top unchanged, and is repeated."""
        with os.scandir(at) as entries:
            for entry in entries:
                if self._is_stopped():
                    return
                self._entry(entry, at, depth)
        if not self._is_stopped():
            self._change(at, os.fstat(at), FILE | DIRECTORY)

    def _entry(self, entry: "os.DirEntry[str]", at: int, depth: int) -> None:
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEEPEST:
                    self._descend(entry.name, at, depth)
                return
            flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            opened = os.open(entry.name, flags, dir_fd=at)
        except FileNotFoundError:
            return
        try:
            self._change(opened, os.fstat(opened), FILE)
        finally:
            os.close(opened)

    def _descend(self, name: str, at: int, depth: int) -> None:
        below = os.open(name, _OPENED, dir_fd=at)
        try:
            if os.fstat(below).st_dev == self._device:
                self.directory(below, depth + 1)
        finally:
            os.close(below)

    def _change(self, opened: int, status: os.stat_result, mode: int) -> None:
        self.count += 1
        own = f"/proc/self/fd/{opened}"
        if stat.S_ISLNK(status.st_mode):
            return
        if status.st_gid != self._group:
            os.chown(own, -1, self._group)
        # After the group: the kernel clears set-id bits with a change of the group.
        wanted = stat.S_IMODE(status.st_mode) | mode
        if stat.S_IMODE(os.stat(own).st_mode) != wanted:
            os.chmod(own, wanted)
