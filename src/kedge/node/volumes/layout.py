"""Directories whose files all change at once: readers see the old ones or the new, never a mix.

Laid out as upstream does, since programs know it: every name is a link into `..data`, which is a
link to a directory with a time in its name. To replace that one link is to replace everything.
"""

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

_DATA: Final = "..data"
_BESIDE: Final = "..data_tmp"
_LONGEST_NAME: Final = 255
_LONGEST_PATH: Final = 4096

_TOP: Final = 0o777
_INNER: Final = 0o755
_SET_GROUP: Final = 0o2000
_GROUP_READS: Final = 0o440
"""What a group that owns the volume adds to the rights of every file."""


class File(NamedTuple):
    """One file of such a directory."""

    content: bytes
    mode: int
    owner: int = -1
    """-1 leaves it to whoever writes."""


def write(place: Path, files: Mapping[str, File], now: datetime, group: int = -1) -> bool:
    """Make the directory hold these files and no others; whether that changed anything.

    `group` is the pod's fsGroup, which may read everything; -1 for none. Raises ValueError for a
    path that no file can have.
    """
    wanted = {_clean(path): file for path, file in files.items()}
    _make_top(place, group)
    current = _current(place)
    changed = current is None or not _holds(current, wanted)
    if current is None or changed:
        current = _replace(place, wanted, now, group)
    _link(place, wanted)
    _sweep(place, current.name)
    return changed


def _clean(path: str) -> str:
    """The path without what means nothing; the API has refused most that is wrong already."""
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or parts[0].startswith(".."):
        raise ValueError(f"invalid path: {path}")
    if len(path) > _LONGEST_PATH or max(map(len, parts)) > _LONGEST_NAME:
        raise ValueError("invalid path: must be less than or equal to 4096 characters, 255 a name")
    return os.path.normpath(path)


def _make_top(place: Path, group: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    mode = _TOP if group < 0 else _TOP | _SET_GROUP
    if stat.S_IMODE(place.stat().st_mode) != mode:
        _own(place, -1, group)
        place.chmod(mode)


def _current(place: Path) -> Path | None:
    try:
        found = place / os.readlink(place / _DATA)
    except FileNotFoundError:
        return None
    return found if found.is_dir() else None


def _holds(directory: Path, wanted: Mapping[str, File]) -> bool:
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}
    return found == wanted.keys() and all(
        (directory / path).read_bytes() == file.content for path, file in wanted.items()
    )


def _replace(place: Path, wanted: Mapping[str, File], now: datetime, group: int) -> Path:
    stamp = now.strftime("..%Y_%m_%d_%H_%M_%S.")
    fresh = place / f"{stamp}{secrets.randbelow(10**10):010d}"
    beside = place / _BESIDE
    try:
        _fill(fresh, wanted, group)
        beside.unlink(missing_ok=True)
        beside.symlink_to(fresh.name)
        beside.replace(place / _DATA)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return fresh


def _fill(fresh: Path, wanted: Mapping[str, File], group: int) -> None:
    _make_directory(fresh, group)
    for path, file in wanted.items():
        target = fresh / path
        for missing in reversed([each for each in target.parents if not each.exists()]):
            _make_directory(missing, group)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as opened:
            opened.write(file.content)
            _own(descriptor, file.owner, group)
            # After the owner: to change that takes rights away. And not by open, which heeds the
            # umask.
            os.fchmod(descriptor, file.mode if group < 0 else file.mode | _GROUP_READS)


def _make_directory(path: Path, group: int) -> None:
    path.mkdir()
    _own(path, -1, group)
    path.chmod(_INNER if group < 0 else _INNER | _SET_GROUP)


def _own(what: Path | int, owner: int, group: int) -> None:
    """Only root gives files away; for others whoever runs containers is the owner already."""
    if (owner, group) != (-1, -1):
        with contextlib.suppress(PermissionError):
            os.chown(what, owner, group)


def _link(place: Path, wanted: Mapping[str, File]) -> None:
    """Let every name at the top lead into the data; names that are no more go."""
    tops = {path.split("/")[0] for path in wanted}
    for top in tops:
        # What is there already is such a link, or a directory that a subPath asked for.
        with contextlib.suppress(FileExistsError):
            (place / top).symlink_to(f"{_DATA}/{top}")
    for entry in list(os.scandir(place)):
        if entry.is_symlink() and entry.name not in tops and not entry.name.startswith(".."):
            os.unlink(entry.path)


def _sweep(place: Path, kept: str) -> None:
    """Remove what the data was before, and what a writer that died had begun."""
    for entry in list(os.scandir(place)):
        if not entry.name.startswith("..") or entry.name in (kept, _DATA):
            continue
        if entry.is_symlink():
            os.unlink(entry.path)
        else:
            shutil.rmtree(entry.path, ignore_errors=True)
