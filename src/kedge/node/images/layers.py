"""File lookup in a stack of unpacked layers, as an overlay file system shows them."""

import os
import stat
from collections.abc import Sequence
from typing import Final, NamedTuple

OPAQUE: Final = ("trusted.overlay.opaque", "user.overlay.opaque")
"""Extended attributes of opaque directories; only root may write the first."""

_MOST_LINKS: Final = 40
Parts = tuple[str, ...]


class SymlinkLoop(OSError):
    """Symbolic links form a loop."""


class LayerFile(NamedTuple):
    """A file in the uppermost layer that contains it."""

    path: str
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)


def is_whiteout(status: os.stat_result) -> bool:
    """Return whether the file is a whiteout, which hides the file in lower layers."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(directory: str) -> bool:
    for name in OPAQUE:
        try:
            if os.getxattr(directory, name, follow_symlinks=False) == b"y":
                return True
        except OSError:
            continue
    return False


def look(layers: Sequence[str], parts: Parts) -> LayerFile | None:
    """Return the file at a path whose parents are directories; links are not followed."""
    for layer in layers:
        found, below = _look_in(layer, parts)
        if found or not below:
            return found
    return None


def _look_in(layer: str, parts: Parts) -> tuple[LayerFile | None, bool]:
    """Return the file in one layer, and whether lower layers are searched if it is missing."""
    path, below = layer, True
    for index, part in enumerate(parts):
        path = f"{path}/{part}"
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None, below
        if is_whiteout(status):
            return None, False
        if index == len(parts) - 1:
            return LayerFile(path, status), below
        if not stat.S_ISDIR(status.st_mode):
            return None, False
        below = below and not is_opaque(path)
    return LayerFile(layer, os.stat(layer)), below


def resolve(layers: Sequence[str], path: str) -> LayerFile | None:
    """Return the file at any path, with links followed inside of the image."""
    done: list[str] = []
    ahead = path.split("/")[::-1]
    links = 0
    found: LayerFile | None = LayerFile(layers[0], os.stat(layers[0]))
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            del done[-1:]
            found = look(layers, tuple(done))
            continue
        found = look(layers, (*done, part))
        if found is None:
            return None
        if found.is_link:
            links += 1
            if links > _MOST_LINKS:
                raise SymlinkLoop(f"too many symbolic links in {path}")
            target = os.readlink(found.path)
            if target.startswith("/"):
                done.clear()
            ahead.extend(target.split("/")[::-1])
            # If the link was the last part, its target is the result.
            found = look(layers, tuple(done))
            continue
        if ahead and not found.is_directory:
            return None
        done.append(part)
    return found


def children(layers: Sequence[str], parts: Parts) -> dict[str, LayerFile]:
    """Return the entries of a directory by name."""
    held: dict[str, LayerFile] = {}
    hidden: set[str] = set()
    for layer in layers:
        found, below = _look_in(layer, parts)
        if found and found.is_directory:
            for entry in os.scandir(found.path):
                status = entry.stat(follow_symlinks=False)
                if is_whiteout(status):
                    hidden.add(entry.name)
                elif entry.name not in hidden and entry.name not in held:
                    held[entry.name] = LayerFile(entry.path, status)
            below = below and not is_opaque(found.path)
        elif found:
            break
        if not below:
            break
    return held
