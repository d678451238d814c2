"""Links on the machine in place of mounts, for containers that have no root of their own.

The link at a mount path leads to /proc/self/fd/N, and each container starts with its volume open
under that number. So two containers with the same mount path each find their own volume there. A
process that closes inherited descriptors finds nothing.

All supervisors of a user share one register, which is written before the links. The next
supervisor removes the links of one that was killed.
"""

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kedge.supervisor.plain import steps

FIRST: Final = 600
LAST: Final = 999
"""The numbers of descriptors: above those of programs, below the usual limit of open files."""
_REGISTER: Final = "links.json"

Entry = dict[str, Any]
"""number, made (directories), holders (directories of containers), and if an empty directory of the
machine stood there: stood (its mode, user and group)."""


class PathTaken(Exception):
    """There can be no link at a mount path; the text says why."""


def register_directory() -> str:
    """Return the directory of the register of this user."""
    user = os.geteuid()
    return f"/tmp/kedge-links-{user}" if user else "/var/lib/kedge-links"


class MountLinks:
    """The links of this user's containers. A holder is the directory of a container: what it
    holds ends with it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def take(self, holder: str, paths: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        """Make a link at each path, unless another container has made it. Returns the numbers of
        descriptors by path, and for the other paths why there is no link."""
        numbers: dict[str, int] = {}
        refused: dict[str, str] = {}
        with self._locked() as entries:
            for path in paths:
                try:
                    numbers[path] = self._take(entries, holder, path)
                except PathTaken as error:
                    refused[path] = str(error)
        return numbers, refused

    def release(self, holder: str) -> None:
        """Remove the links that only this container needs."""
        self._drop(lambda each: each == holder)

    def release_below(self, directory: str) -> None:
        """Remove the links that only containers with a directory below this one need."""
        self._drop(lambda each: each.startswith(f"{directory}/"))

    def _drop(self, is_dropped: Callable[[str], bool]) -> None:
        if not os.path.exists(f"{self._directory}/{_REGISTER}"):
            return
        with self._locked() as entries:
            for path, entry in list(entries.items()):
                held = entry["holders"]
                entry["holders"] = [
                    each for each in held if not is_dropped(each) and os.path.isdir(each)
                ]
                if not entry["holders"]:
                    del entries[path]
                    _remove_link(path, entry, entries)

    def _take(self, entries: dict[str, Entry], holder: str, path: str) -> int:
        entry = entries.setdefault(path, {"number": 0, "made": [], "holders": []})
        try:
            entry["number"] = entry["number"] or _free_number(entries)
            if not _is_linked(path, entry):
                self._make_link(entries, path, entry)
        except OSError as error:
            del entries[path]
            if "stood" in entry:
                _restore(path, *entry["stood"])
            _remove_directories(entry, entries)
            raise PathTaken(error.strerror or str(error)) from error
        entry["holders"] = list(dict.fromkeys((*entry["holders"], holder)))
        return int(entry["number"])

    def _make_link(self, entries: dict[str, Entry], path: str, entry: Entry) -> None:
        self._write(entries)
        with steps.parent(path, entry["made"]) as (above, name):
            self._write(entries)
            try:
                os.symlink(_target(entry), name, dir_fd=above)
            except FileExistsError:
                self._replace_empty(entries, entry, above, name)

    def _replace_empty(
        self, entries: dict[str, Entry], entry: Entry, above: int, name: str
    ) -> None:
        """Replace an empty directory, which is made again when the link is removed."""
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        if not _is_replaceable(found):
            raise OSError(17, "the machine has a file or directory there")
        entry["stood"] = [stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid]
        self._write(entries)
        try:
            os.rmdir(name, dir_fd=above)
        except OSError:
            del entry["stood"]
            raise OSError(17, "the machine has a directory with files there") from None
        os.symlink(_target(entry), name, dir_fd=above)

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Entry]]:
        """Yield the register, and write it afterwards. Without entries, it is removed."""
        lock = self._lock()
        try:
            entries = self._read()
            try:
                yield entries
            finally:
                self._write(entries)
        finally:
            os.close(lock)

    def _lock(self) -> int:
        while True:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._directory, 0o700)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                lock = os.open(self._directory, flags)
            except FileNotFoundError:
                continue
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = os.fstat(lock)
            if held.st_uid != os.geteuid():
                os.close(lock)
                raise PermissionError(1, f"{self._directory} belongs to another user")
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(held, os.stat(self._directory, follow_symlinks=False)):
                    return lock
            # Another supervisor has removed it meanwhile.
            os.close(lock)

    def _read(self) -> dict[str, Entry]:
        try:
            with open(f"{self._directory}/{_REGISTER}") as file:
                entries: dict[str, Entry] = json.load(file)
        except (FileNotFoundError, ValueError):
            return {}
        return entries

    def _write(self, entries: dict[str, Entry]) -> None:
        path = f"{self._directory}/{_REGISTER}"
        if not entries:
            with contextlib.suppress(OSError):
                os.unlink(path)
            with contextlib.suppress(OSError):
                os.rmdir(self._directory)
            return
        with open(f"{path}.new", "w") as file:
            json.dump(entries, file)
        os.rename(f"{path}.new", path)


def _free_number(entries: dict[str, Entry]) -> int:
    used = {each["number"] for each in entries.values()}
    for number in range(FIRST, LAST + 1):
        if number not in used:
            return number
    raise OSError(28, f"containers of this machine use {len(used) - 1} mount paths already")


def _target(entry: Entry) -> str:
    return f"/proc/self/fd/{entry['number']}"


def _is_linked(path: str, entry: Entry) -> bool:
    with contextlib.suppress(OSError), steps.parent(path) as (above, name):
        return os.readlink(name, dir_fd=above) == _target(entry)
    return False


def _remove_link(path: str, entry: Entry, others: dict[str, Entry]) -> None:
    # Not what another program has put there since.
    if _is_linked(path, entry):
        with contextlib.suppress(OSError), steps.parent(path) as (above, name):
            os.unlink(name, dir_fd=above)
    if "stood" in entry:
        _restore(path, *entry["stood"])
    _remove_directories(entry, others)


def _is_replaceable(found: os.stat_result) -> bool:
    """Return whether a directory may give way to a link: not one such as /tmp, in which other users
    of the machine make files."""
    is_shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_ours = found.st_uid in (0, os.geteuid())
    return stat.S_ISDIR(found.st_mode) and is_ours and not is_shared


def _restore(path: str, mode: int, user: int, group: int) -> None:
    """Make a directory that gave way to a link, unless something is there."""
    with contextlib.suppress(OSError), steps.parent(path) as (above, name):
        os.mkdir(name, 0o700, dir_fd=above)
        made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        try:
            os.fchown(made, user, group)
            os.fchmod(made, mode)
        finally:
            os.close(made)


def _remove_directories(entry: Entry, others: dict[str, Entry]) -> None:
    """Remove the directories that were made for a link, as far as they are empty. One with
    another link is removed with that."""
    for directory in reversed(entry["made"]):
        with contextlib.suppress(OSError), steps.parent(directory) as (above, name):
            os.rmdir(name, dir_fd=above)
            continue
        heir = next((each for each in others if _is_below(each, directory)), None)
        if heir is not None and directory not in others[heir]["made"]:
            others[heir]["made"].insert(0, directory)


def _is_below(path: str, directory: str) -> bool:
    above = os.path.realpath(os.path.dirname(path))
    return f"{above}/".startswith(f"{directory}/")
