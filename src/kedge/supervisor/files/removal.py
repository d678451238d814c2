"""Removes directories that containers wrote to.

A container may try to make this fail: with directories thousands deep, too deep for paths and
for recursion; millions of files; immutable files; links to files of the machine. So there is no
recursion and no path, only names relative to two descriptors: the top, and the directory that is
being emptied. Every directory is moved to the top before it is emptied, where it is one level deep.
The kernel does not move a mount point, so this does not delete files of other file systems either.

Entries that cannot be removed are left and reported; the rest is removed.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from kedge.supervisor.kernel import inode_flags

_BATCH: Final = 1000
"""Subdirectories that are moved to the top at once, and entries between two looks at the time."""
_LOOKS: Final = 16
"""How often a directory that does not become empty is read again: some file systems skip entries
while others are deleted, and a process may still be writing."""
_TOP: Final = 0
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCKED: Final = inode_flags.IMMUTABLE | inode_flags.APPEND_ONLY


def never() -> bool:
    return False


class _Stopped(Exception):
    """There is no more time."""


def remove(path: str | os.PathLike[str], enough: Callable[[], bool] = never) -> str:
    """Remove a directory with its content, also without permissions; never follows links.

    Returns why something is left; empty if nothing is. `enough` is called now and then, and ends
    the removal if true; the rest can be removed later.
    """
    above, name = os.path.split(os.path.abspath(path))
    try:
        parent = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return _why(error, above)
    try:
        return _Removal(parent, name, enough).run()
    finally:
        os.close(parent)


def remove_all(path: str | os.PathLike[str]) -> str:
    """Remove a directory as `remove` does, also files of other users of containers if this user has
    subordinate ids; returns why something is left."""
    failure = remove(path)
    if failure and os.geteuid() != 0:
        # Rarely needed, so it is not imported by every agent.
        from kedge.supervisor.files import mapped

        return mapped.remove_rest(path, failure)
    return failure


class _Removal:
    """One directory on its way out."""

    def __init__(self, parent: int, name: str, enough: Callable[[], bool]) -> None:
        self._parent = parent
        self._name = name
        self._enough = enough
        self._top = -1
        # A container cannot guess it, so entries with this prefix were moved here by us.
        self._prefix = f"..{os.urandom(8).hex()}-"
        self._last = _TOP
        self._waiting = [_TOP]
        """Numbers of directories that are to be emptied, the last one first."""
        self._looks: dict[int, int] = {}
        self._failure = ""
        self._failed = 0

    def run(self) -> str:
        try:
            self._top = _open(self._name, self._parent)
        except FileNotFoundError:
            return ""
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                return _why(error, self._name)
            self._do(lambda: os.unlink(self._name, dir_fd=self._parent), self._name, self._parent)
        else:
            try:
                self._empty_all()
            except _Stopped:
                return f"{self._name}: there was no time for all of it"
            finally:
                os.close(self._top)
        return self._failure

    def _empty_all(self) -> None:
        while self._waiting:
            number = self._waiting[-1]
            failed = self._failed
            if self._moved_out_of(number):
                continue
            if self._finish(number, patient=self._failed == failed):
                self._waiting.pop()

    def _moved_out_of(self, number: int) -> bool:
        """Delete the files of a directory and move some of its subdirectories to the top;
        returns whether any were moved, so that they come first."""
        if number == _TOP:
            return self._empty(self._top)
        name = self._name_of(number)
        try:
            directory = _open(name, self._top)
        except OSError as error:
            self._fail(error, name)
            return False
        try:
            return self._empty(directory)
        finally:
            os.close(directory)

    def _empty(self, directory: int) -> bool:
        inner: list[str] = []
        with os.scandir(directory) as entries:
            for count, entry in enumerate(entries):
                if count % _BATCH == 0 and self._enough():
                    raise _Stopped
                if not entry.is_dir(follow_symlinks=False):
                    self._unlink(entry.name, directory)
                elif directory != self._top or not entry.name.startswith(self._prefix):
                    inner.append(entry.name)
                    if len(inner) == _BATCH:
                        break
        moved = [number for name in inner if (number := self._move(name, directory))]
        self._waiting += moved
        return bool(moved)

    def _unlink(self, name: str, at: int) -> None:
        self._do(lambda: os.unlink(name, dir_fd=at), name, at)

    def _move(self, name: str, at: int) -> int | None:
        """The number that a directory now has at the top, if it could be moved there."""
        number = self._last + 1
        target = self._name_of(number)

        def move() -> None:
            os.rename(name, target, src_dir_fd=at, dst_dir_fd=self._top)

        if not self._do(move, name, at):
            return None
        self._last = number
        return number

    def _finish(self, number: int, *, patient: bool) -> bool:
        """Remove a directory that should be empty; returns False if it has to be read again."""
        name, at = self._name_of(number), self._top
        if number == _TOP:
            name, at = self._name, self._parent
        looks = self._looks.pop(number, 0)
        try:
            os.rmdir(name, dir_fd=at)
            return True
        except OSError as error:
            if error.errno == errno.ENOTEMPTY and patient and looks < _LOOKS:
                self._looks[number] = looks + 1
                return False
        self._do(lambda: os.rmdir(name, dir_fd=at), name, at)
        return True

    def _name_of(self, number: int) -> str:
        return f"{self._prefix}{number}"

    def _do(self, action: Callable[[], None], name: str, at: int) -> bool:
        """Do something to an entry of a directory, if need be after unlocking both."""
        try:
            try:
                action()
            except PermissionError:
                _unlock(name, at, above=at != self._parent)
                action()
        except FileNotFoundError:
            # Another process may have removed it.
            return True
        except OSError as error:
            self._fail(error, name)
            return False
        return True

    def _fail(self, error: OSError, name: str) -> None:
        self._failed += 1
        self._failure = self._failure or _why(error, name)


def _open(name: str, at: int) -> int:
    """Open a directory to empty it. Its mode may exclude all users but root."""
    try:
        opened = os.open(name, _OPENED, dir_fd=at)
    except PermissionError:
        _permit(name, at)
        return os.open(name, _OPENED, dir_fd=at)
    if os.fstat(opened).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with contextlib.suppress(OSError):
            os.fchmod(opened, 0o700)
    return opened


def _permit(name: str, at: int) -> None:
    """Make a directory accessible, without following a link in its place."""
    with contextlib.suppress(OSError):
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
        try:
            os.chmod(f"/proc/self/fd/{held}", 0o700)
        finally:
            os.close(held)


def _unlock(name: str, at: int, *, above: bool) -> None:
    """Clear what prevents the removal of an entry: `chattr +i` or `+a`, or, without root, its
    mode; with `above` also the mode of its directory."""
    if above:
        with contextlib.suppress(OSError):
            inode_flags.change(at, off=_LOCKED)
        with contextlib.suppress(OSError):
            os.fchmod(at, 0o700)
    with contextlib.suppress(OSError):
        kind = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        # Other types have no flags, and opening a device may have side effects.
        if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
            inode_flags.open_and_change(name, at, off=_LOCKED)
    _permit(name, at)


def _why(error: OSError, name: str) -> str:
    return f"{name}: {os.strerror(error.errno or 0)}"
