"""Directories whose files all change at once: readers see the old ones or the new, never a mix.

Laid out as upstream does, since programs know it: every name is a link into `..data`, which is a
link to a directory with a time in its name. To replace that one link is to replace everything.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

_DATA: Final = "..data"
_BESIDE: Final = "..data_tmp"


class File(NamedTuple):
    """One file of such a directory."""

    content: bytes
    mode: int
    owner: int = -1
    """-1 leaves it to whoever writes."""


class Ownership(NamedTuple):
    """Whom the files are for, beside their owner."""

    group: int = -1
    """The pod's fsGroup, which may read everything; -1 for none."""


def write(
    place: Path, files: Mapping[str, File], now: datetime, ownership: Ownership | None = None
) -> bool:
    """Make the directory hold these files and no others; whether that changed anything."""
    wanted = {_clean(path): file for path, file in files.items()}
    place.mkdir(parents=True, exist_ok=True)
    current = _current(place)
    if current is not None and _holds(current, wanted):
        _link(place, wanted)
        return False
    stamp = now.strftime("..%Y_%m_%d_%H_%M_%S.")
    fresh = place / f"{stamp}{secrets.randbelow(10**10):010d}"
    try:
        _fill(fresh, wanted, ownership or Ownership())
        beside = place / _BESIDE
        beside.unlink(missing_ok=True)
        beside.symlink_to(fresh.name)
        beside.replace(place / _DATA)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _link(place, wanted)
    _sweep(place, fresh.name)
    return True


def _clean(path: str) -> str:
    return str(PurePosixPath(os.path.normpath(path)))


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


def _fill(fresh: Path, wanted: Mapping[str, File], ownership: Ownership) -> None:
    _make_directory(fresh, ownership)
    for path, file in wanted.items():
        target = fresh / path
        for missing in reversed([each for each in target.parents if not each.exists()]):
            _make_directory(missing, ownership)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as opened:
            opened.write(file.content)
            # After the owner: to change that takes rights away.
            if (file.owner, ownership.group) != (-1, -1):
                os.fchown(descriptor, file.owner, ownership.group)
            readable = 0o040 if ownership.group >= 0 and file.mode & 0o400 else 0
            os.fchmod(descriptor, file.mode | readable)


def _make_directory(path: Path, ownership: Ownership) -> None:
    path.mkdir()
    path.chmod(0o755)
    if ownership.group >= 0:
        os.chown(path, -1, ownership.group)
        path.chmod(0o2755)


def _link(place: Path, wanted: Mapping[str, File]) -> None:
    """Let every name at the top lead into the data; names that are no more go."""
    tops = {path.split("/")[0] for path in wanted}
    for top in tops:
        link = place / top
        if not link.is_symlink():
            link.symlink_to(f"{_DATA}/{top}")
    for entry in place.iterdir():
        if entry.is_symlink() and entry.name not in tops and not entry.name.startswith(".."):
            entry.unlink()


def _sweep(place: Path, kept: str) -> None:
    """Remove what the data was before, and what a writer that died had begun."""
    for entry in place.iterdir():
        if entry.name.startswith("..") and entry.name not in (kept, _DATA):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(entry)
