"""Directories whose files change atomically: readers see all old files or all new ones.

The layout is the kubelet's, on which programs rely: every name is a link into `..data`, which is a
link to a directory with a timestamp in its name. Replacing that one link replaces all files.
"""

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kedge.supervisor.files import beneath
from kedge.supervisor.files.removal import remove

if TYPE_CHECKING:
    from kedge.supervisor.files.mapped import FileOwner

_DATA: Final = "..data"
_BESIDE: Final = "..data_tmp"
_LONGEST_NAME: Final = 255
_LONGEST_PATH: Final = 4096

_TOP: Final = 0o777
_INNER: Final = 0o755
_SET_GROUP: Final = 0o2000
_GROUP_READS: Final = 0o440
"""The mode bits that an fsGroup adds to every file."""


class VolumeFile(NamedTuple):
    """One file of such a directory."""

    content: bytes
    mode: int
    owner: int = -1
    """The owner's uid; -1 for the uid of this process."""


def write(place: Path, files: Mapping[str, VolumeFile], now: datetime, group: int = -1) -> bool:
    """Write exactly these files without a cache; return whether anything changed."""
    return AtomicWriter(place, group).write(files, now)


class AtomicWriter:
    """Writes one directory, with a cache of its files: unchanged files are neither read nor written
    again, but linked.

    `group` is the pod's fsGroup, which may read all files; -1 for none.
    """

    def __init__(self, place: Path, group: int = -1) -> None:
        self._place = place
        self._group = group
        self._current = ""
        """The name of the data directory; empty if it is unknown."""
        self._digests: Mapping[str, bytes] = {}
        """The files by path."""

    def write(self, files: Mapping[str, VolumeFile], now: datetime) -> bool:
        """Write exactly these files; return whether anything changed. Raises ValueError for an
        invalid path."""
        wanted = {_clean(path): file for path, file in files.items()}
        digests = {path: _digest(file) for path, file in wanted.items()}
        _make_top(self._place, self._group)
        with _opened(self._place) as top:
            if not self._current:
                return self._begin(top, wanted, digests, now)
            if digests == self._digests:
                return False
            self._replace(top, wanted, digests, now)
            return True

    def _begin(
        self,
        top: int,
        wanted: Mapping[str, VolumeFile],
        digests: Mapping[str, bytes],
        now: datetime,
    ) -> bool:
        """Write for the first time; a previous agent may have left files."""
        current = _current(top)
        changed = not current or not _holds(self._place / current, wanted)
        if changed:
            current = self._make(top, wanted, digests, now)
        _link(top, _tops(wanted))
        _sweep(self._place, current)
        self._current, self._digests = current, digests
        return changed

    def _replace(
        self,
        top: int,
        wanted: Mapping[str, VolumeFile],
        digests: Mapping[str, bytes],
        now: datetime,
    ) -> None:
        before, self._current = self._current, ""
        fresh = self._make(top, wanted, digests, now, before)
        old, new = _tops(self._digests), _tops(wanted)
        _make_links(top, new - old)
        _remove_links(top, old - new)
        remove(self._place / before)
        self._current, self._digests = fresh, digests

    def _make(
        self,
        top: int,
        wanted: Mapping[str, VolumeFile],
        digests: Mapping[str, bytes],
        now: datetime,
        before: str = "",
    ) -> str:
        """Create a new data directory with the files and switch the link to it; return its name."""
        fresh = f"{now:..%Y_%m_%d_%H_%M_%S.}{secrets.randbelow(10**10):010d}"
        same = {path for path in digests if digests[path] == self._digests.get(path)}
        try:
            _make_directory(fresh, top, self._group)
            with _opened(fresh, top) as target:
                if before:
                    with _opened(before, top) as source:
                        self._fill(target, wanted, same, source)
                else:
                    self._fill(target, wanted, set(), -1)
            self._own_all(self._place / fresh, wanted)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_BESIDE, dir_fd=top)
            os.symlink(fresh, _BESIDE, dir_fd=top)
            os.rename(_BESIDE, _DATA, src_dir_fd=top, dst_dir_fd=top)
        except BaseException:
            remove(self._place / fresh)
            raise
        return fresh

    def _own_all(self, directory: Path, wanted: Mapping[str, VolumeFile]) -> None:
        """Give the files to their owners with the help of subordinate ids, where this process is
        not root."""
        if os.geteuid() == 0:
            return
        files = list(_owners(directory, wanted, self._group))
        if files:
            from kedge.supervisor.files import mapped

            with contextlib.suppress(PermissionError):
                mapped.own([*_top_owner(self._place, self._group), *files])

    def _fill(
        self, target: int, wanted: Mapping[str, VolumeFile], same: set[str], source: int
    ) -> None:
        made: set[str] = set()
        for path, file in wanted.items():
            _make_parents(path, target, made, self._group)
            if path not in same or not _linked(path, source, target):
                self._write_file(path, file, target)

    def _write_file(self, path: str, file: VolumeFile, at: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600, dir_fd=at)
        with open(descriptor, "wb") as written:
            written.write(file.content)
            _own(descriptor, file.owner, self._group)
            # After chown, which clears mode bits, and not by open, which applies the umask.
            os.fchmod(descriptor, file.mode if self._group < 0 else file.mode | _GROUP_READS)


def _owners(directory: Path, wanted: Mapping[str, VolumeFile], group: int) -> Iterator["FileOwner"]:
    """Yield the owners of files and directories that belong to a group or to another user."""
    if group < 0 and all(file.owner < 0 for file in wanted.values()):
        return
    from kedge.supervisor.files.mapped import FileOwner

    if group >= 0:
        inner = {above for path in wanted for above in Path(path).parents}
        for each in sorted(inner | {Path()}):
            yield FileOwner(str(directory / each), -1, group, _INNER | _SET_GROUP)
    for path, file in wanted.items():
        if group >= 0 or file.owner >= 0:
            mode = file.mode if group < 0 else file.mode | _GROUP_READS
            yield FileOwner(str(directory / path), file.owner, group, mode)


def _top_owner(place: Path, group: int) -> Iterator["FileOwner"]:
    from kedge.supervisor.files.mapped import FileOwner

    if group >= 0 and place.stat().st_gid != group:
        yield FileOwner(str(place), -1, group, _TOP | _SET_GROUP)


def _clean(path: str) -> str:
    """Return the normalized path; the API has refused most invalid ones."""
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or parts[0].startswith(".."):
        raise ValueError(f"invalid path: {path}")
    if len(path) > _LONGEST_PATH or max(map(len, parts)) > _LONGEST_NAME:
        raise ValueError("invalid path: must be less than or equal to 4096 characters, 255 a name")
    return os.path.normpath(path)


def _digest(file: VolumeFile) -> bytes:
    made = hashlib.blake2b(b"%d %d " % (file.mode, file.owner), digest_size=16)
    made.update(file.content)
    return made.digest()


def _make_top(place: Path, group: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    mode = _TOP if group < 0 else _TOP | _SET_GROUP
    if stat.S_IMODE(place.stat().st_mode) != mode:
        _own(place, -1, group)
        place.chmod(mode)


@contextlib.contextmanager
def _opened(directory: str | Path, at: int | None = None) -> Iterator[int]:
    """Open a directory; fail for a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(directory, flags, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _current(top: int) -> str:
    """Return the name of the data directory; empty if there is none or the link leads elsewhere."""
    try:
        name = os.readlink(_DATA, dir_fd=top)
        found = os.stat(name, dir_fd=top, follow_symlinks=False)
    except OSError:
        return ""
    inside = name.startswith("..") and "/" not in name and name != ".."
    return name if inside and stat.S_ISDIR(found.st_mode) else ""


def _holds(directory: Path, wanted: Mapping[str, VolumeFile]) -> bool:
    found = {
        os.path.relpath(os.path.join(above, name), directory)
        for above, _, names in os.walk(directory)
        for name in names
    }
    if found != wanted.keys():
        return False
    try:
        with beneath.directory(directory) as top:
            return all(_has(top, path, file.content) for path, file in wanted.items())
    except OSError:
        return False


def _has(top: int, path: str, content: bytes) -> bool:
    with beneath.regular(top, path) as file:
        return beneath.beginning(file, len(content) + 1) == content


def _make_parents(path: str, at: int, made: set[str], group: int) -> None:
    missing: list[str] = []
    above = os.path.dirname(path)
    while above and above not in made:
        missing.append(above)
        above = os.path.dirname(above)
    for directory in reversed(missing):
        _make_directory(directory, at, group)
        made.add(directory)


def _make_directory(path: str, at: int, group: int) -> None:
    os.mkdir(path, dir_fd=at)
    with _opened(path, at) as made:
        _own(made, -1, group)
        os.fchmod(made, _INNER if group < 0 else _INNER | _SET_GROUP)


def _linked(path: str, source: int, target: int) -> bool:
    """Link an unchanged file; return False if that is not possible."""
    try:
        os.link(path, path, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError:
        return False
    return True


def _own(what: Path | int, owner: int, group: int) -> None:
    """Change the owner; only root can. `_own_all` does it for others."""
    if (owner, group) != (-1, -1):
        with contextlib.suppress(PermissionError):
            os.chown(what, owner, group)


def _tops(paths: Iterable[str]) -> set[str]:
    return {path.split("/", 1)[0] for path in paths}


def _link(top: int, names: set[str]) -> None:
    """Link every top-level name into the data, and remove old names."""
    with os.scandir(top) as entries:
        links = {each.name for each in entries if each.is_symlink() and each.name[:2] != ".."}
    _make_links(top, names - links)
    _remove_links(top, links - names)


def _make_links(top: int, names: Iterable[str]) -> None:
    for name in names:
        # An existing entry is such a link, or a directory that a subPath created.
        with contextlib.suppress(FileExistsError):
            os.symlink(f"{_DATA}/{name}", name, dir_fd=top)


def _remove_links(top: int, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(name, dir_fd=top)


def _sweep(place: Path, kept: str) -> None:
    """Remove the previous data, and the unfinished data of a writer that died."""
    for entry in list(os.scandir(place)):
        if entry.name.startswith("..") and entry.name not in (kept, _DATA):
            remove(entry.path)
