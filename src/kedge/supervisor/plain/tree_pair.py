"""Keeps two directories alike without mounts: a file is one file with a name on each side.

The content of a file is the same on both sides at once. If an entry is created, renamed or removed
on one side, a merge does the same on the other one. It compares both sides with the entries that
they had in common before. The containers change both at any time, so everything is done by
descriptor, no link is followed, and a merge that comes too late for a change leaves it to the next
one.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection
from typing import Final

from kedge.supervisor.plain.volumes import MountRefusal

Common = dict[str, list[int]]
"""Entries of both sides, by path: the inode of a file, or mode, user and group of a directory."""

MOST_ENTRIES: Final = 50_000
MOST_LEVELS: Final = 64
_PASSING: Final = "..kedge-passing-"
"""How names of files begin that are not in their place yet; merges take no notice of them."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LATE: Final = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EMLINK)
"""Errors of a merge that comes too late: a container has changed the entry meanwhile."""


def ignore(_: int) -> None:
    pass


class TreePair:
    """Two directories of one file system, and what they had in common after the last merge."""

    def __init__(
        self,
        left: int,
        right: int,
        common: Common,
        left_out: Collection[str] = (),
        most_entries: int = MOST_ENTRIES,
    ) -> None:
        """`left_out` has the paths that belong to other volumes."""
        if os.fstat(left).st_dev != os.fstat(right).st_dev:
            why = "it is on another file system than the containers of the node"
            raise MountRefusal(errno.EXDEV, why)
        self.common = common
        self._left = left
        self._right = right
        self._left_out = left_out
        self._most_entries = most_entries
        self._found: Common = {}
        self._is_changed = False
        self._entering: Callable[[int], object] = ignore

    def merge(self, entering: Callable[[int], object] = ignore) -> bool:
        """Bring both sides up to date; returns whether anything was done. `entering` is called with
        each directory before it is read. Raises OSError."""
        self._found, self._is_changed, self._entering = {}, False, entering
        self._merge(self._left, self._right, "", MOST_LEVELS)
        is_changed = self._is_changed or self._found != self.common
        self.common = self._found
        return is_changed

    def _merge(self, left: int, right: int, path: str, levels: int) -> None:
        if not levels:
            raise MountRefusal(errno.ENAMETOOLONG, f"it has more than {MOST_LEVELS} levels")
        self._share_attributes(left, right, path)
        ours, theirs = self._entries(left), self._entries(right)
        for name in sorted({*ours, *theirs}):
            below = f"{path}/{name}" if path else name
            if below in self._left_out:
                continue
            if len(self._found) >= self._most_entries:
                raise MountRefusal(errno.EFBIG, f"it has more than {self._most_entries} files")
            try:
                self._settle((left, ours.get(name)), (right, theirs.get(name)), below, levels)
            except OSError as error:
                if isinstance(error, MountRefusal) or error.errno not in _LATE:
                    raise
                self._keep(below)

    def _settle(
        self,
        left: tuple[int, os.stat_result | None],
        right: tuple[int, os.stat_result | None],
        path: str,
        levels: int,
    ) -> None:
        """Make one entry the same on both sides."""
        (ours, here), (theirs, there) = left, right
        if here is not None and there is not None and _is_same(here, there):
            if stat.S_ISDIR(here.st_mode):
                self._descend(ours, theirs, path, levels)
            else:
                self._found[path] = [here.st_ino]
            return
        if self._comes_from_left(here, there, path):
            self._bring((ours, here), (theirs, there), path, levels, to_right=True)
        else:
            self._bring((theirs, there), (ours, here), path, levels, to_right=False)

    def _comes_from_left(
        self, here: os.stat_result | None, there: os.stat_result | None, path: str
    ) -> bool:
        """Return whether the left side has the newer state of an entry. A change wins against a
        removal, and of two changes the later one."""
        before = self.common.get(path)
        is_changed_here, is_changed_there = _is_other(here, before), _is_other(there, before)
        if is_changed_here != is_changed_there:
            return is_changed_here
        if here is None or there is None:
            return there is None
        return here.st_mtime_ns >= there.st_mtime_ns

    def _bring(
        self,
        source: tuple[int, os.stat_result | None],
        target: tuple[int, os.stat_result | None],
        path: str,
        levels: int,
        *,
        to_right: bool,
    ) -> None:
        (from_directory, new), (to_directory, old) = source, target
        name = os.path.basename(path)
        self._is_changed = True
        if old is not None and stat.S_ISDIR(old.st_mode) and not self._clear(to_directory, path):
            # It has entries that the other side never had: the next merge brings them there.
            return
        if new is None:
            if old is not None and not stat.S_ISDIR(old.st_mode):
                os.unlink(name, dir_fd=to_directory)
        elif stat.S_ISDIR(new.st_mode):
            if old is not None and not stat.S_ISDIR(old.st_mode):
                os.unlink(name, dir_fd=to_directory)
            os.mkdir(name, 0o700, dir_fd=to_directory)
            self.common[path] = _attributes_of(to_directory, name)
            pair = (from_directory, to_directory) if to_right else (to_directory, from_directory)
            self._descend(*pair, path, levels)
        else:
            passing = f"{_PASSING}{os.urandom(8).hex()}"
            os.link(
                name,
                passing,
                src_dir_fd=from_directory,
                dst_dir_fd=to_directory,
                follow_symlinks=False,
            )
            os.rename(passing, name, src_dir_fd=to_directory, dst_dir_fd=to_directory)
            self._found[path] = [new.st_ino]

    def _descend(self, left: int, right: int, path: str, levels: int) -> None:
        name = os.path.basename(path)
        ours = os.open(name, _DIRECTORY, dir_fd=left)
        try:
            theirs = os.open(name, _DIRECTORY, dir_fd=right)
            try:
                self._merge(ours, theirs, path, levels - 1)
            finally:
                os.close(theirs)
        finally:
            os.close(ours)

    def _share_attributes(self, left: int, right: int, path: str) -> None:
        """Give both directories the owner and the mode of the one that changed them last."""
        here, there = attributes(os.fstat(left)), attributes(os.fstat(right))
        if here != there:
            self._is_changed = True
            if there == self.common.get(path):
                _give(right, here)
                there = here
            else:
                _give(left, there)
        self._found[path] = there

    def _clear(self, directory: int, path: str) -> bool:
        """Remove a directory with the entries that both sides had; returns whether it is gone."""
        name = os.path.basename(path)
        inner = os.open(name, _DIRECTORY, dir_fd=directory)
        try:
            for each, status in self._entries(inner).items():
                below = f"{path}/{each}"
                if _is_other(status, self.common.get(below)) or below in self._left_out:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    os.unlink(each, dir_fd=inner)
                elif path.count("/") < MOST_LEVELS:
                    self._clear(inner, below)
        finally:
            os.close(inner)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=directory)
            return True
        return False

    def _keep(self, path: str) -> None:
        """Remember an entry, and what is below it, as it was."""
        inner = f"{path}/"
        for each, value in self.common.items():
            if each == path or each.startswith(inner):
                self._found.setdefault(each, value)

    def _entries(self, directory: int) -> dict[str, os.stat_result]:
        """Return the entries of a directory. Devices stay where they are."""
        self._entering(directory)
        found: dict[str, os.stat_result] = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(_PASSING):
                    continue
                if len(found) >= self._most_entries:
                    raise MountRefusal(errno.EFBIG, f"it has more than {self._most_entries} files")
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
                        found[entry.name] = status
        return found


def _is_same(here: os.stat_result, there: os.stat_result) -> bool:
    are_directories = stat.S_ISDIR(here.st_mode), stat.S_ISDIR(there.st_mode)
    return all(are_directories) or (not any(are_directories) and here.st_ino == there.st_ino)


def _is_other(status: os.stat_result | None, before: list[int] | None) -> bool:
    """Return whether an entry is not what both sides had: a directory stays the same if its owner
    or its mode changes."""
    if status is None or before is None:
        return (status is None) != (before is None)
    if stat.S_ISDIR(status.st_mode):
        return len(before) == 1
    return before != [status.st_ino]


def attributes(status: os.stat_result) -> list[int]:
    """Return what both sides of a directory have in common."""
    return [stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid]


def _attributes_of(directory: int, name: str) -> list[int]:
    return attributes(os.stat(name, dir_fd=directory, follow_symlinks=False))


def _give(directory: int, attributes: list[int]) -> None:
    mode, user, group = attributes
    with contextlib.suppress(PermissionError):
        os.fchown(directory, user, group)
    os.fchmod(directory, mode)
