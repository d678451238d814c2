"""The root of a container without an image (`image: host`): the machine's own files, minus
concealed ones, with writes kept in the container's directory."""

import contextlib
import os
from collections.abc import Sequence
from typing import Final

from kedge.supervisor.kernel import devices, libc
from kedge.supervisor.rootfs import conceal, inside, mounts, overlay
from kedge.supervisor.rootfs.options import Note, RootfsOptions
from kedge.supervisor.spec import ContainerSpec

_SCRATCH: Final = ("tmp", "run", "var/tmp")
"""Directories that are empty and in memory, because programs expect to write there."""
_VIRTUAL: Final = ("proc", "sys", "dev")
_WRITABLE: Final = ("usr/local", "var", "var/cache", "var/lib", "var/log", "var/spool")
"""Directories in whose subdirectories programs expect to write."""
_MOST_ENTRIES: Final = 256
"""Entries of such a directory, or of one that is mounted by its entries, that are prepared."""
_DEEPEST: Final = 3
"""Levels down to which a directory that cannot be overlaid is mounted by its entries."""


def mount(spec: ContainerSpec, options: RootfsOptions, note: Note) -> None:
    """Mount the machine's own file system as the root."""
    if options.rootless:
        _mount_by_parts(spec, options)
        note(
            "files of the machine cannot be changed in the container, and new ones can be made only"
            " at the top of its directories, in /usr/local and in /var"
        )
    else:
        overlay.mount_or_keep_in_memory(["/"], options, note, concealed=spec["concealed"])
        _show(spec, options, "")


def _mount_by_parts(spec: ContainerSpec, options: RootfsOptions) -> None:
    """Mount each directory of / by itself, since the kernel does not let a user namespace overlay
    / with the mounts below it."""
    place = options.mount_point
    parts = sorted(os.scandir("/"), key=lambda each: each.name)
    libc.mount("tmpfs", place, "tmpfs", libc.MS_NODEV, "mode=755")
    for part in parts:
        path = f"{place}/{part.name}"
        if part.is_symlink():
            os.symlink(os.readlink(part.path), path)
        elif part.is_dir():
            os.mkdir(path)
            if part.name not in (*_VIRTUAL, *_SCRATCH) and part.path not in spec["concealed"]:
                home = f"{options.home}/parts/{part.name}"
                _mount_part(
                    part.path, home, path, spec["concealed"], overlay.USER_XATTR, options.userns
                )
    for name in _SCRATCH:
        if os.path.isdir(f"{place}/{name}"):
            libc.mount("tmpfs", f"{place}/{name}", "tmpfs", mounts.SAFE, "mode=1777")
    _show(spec, options, overlay.USER_XATTR)


def _mount_part(
    path: str,
    home: str,
    place: str,
    concealed: Sequence[str],
    extra: str,
    userns: int,
    depth: int = 0,
) -> None:
    """Mount one directory of the machine: as an overlay, else by its entries, else read-only."""
    for name in ("upper", "work"):
        os.makedirs(f"{home}/{name}", exist_ok=True)
    try:
        if extra:
            _make_writable(path, f"{home}/upper")
        overlay.mount([path], home, place, extra, concealed, userns=userns)
    except OSError:
        # The kernel refuses a user namespace an overlay on a directory with mounts below it.
        entries = _entries(path) if extra and depth < _DEEPEST else []
        if entries:
            for entry in entries:
                _mount_entry(entry, home, place, concealed, extra, userns, depth + 1)
            return
        _mount_read_only(path, place, userns)
        _cover_below(path, place, concealed)


def _mount_entry(
    entry: "os.DirEntry[str]",
    home: str,
    place: str,
    concealed: Sequence[str],
    extra: str,
    userns: int,
    depth: int,
) -> None:
    """Mount one entry of a directory below `place`, which is in memory."""
    at = f"{place}/{entry.name}"
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), at)
    elif entry.is_dir():
        conceal.directory(entry.path, at)
        if entry.path not in concealed:
            inner = f"{home}/entries/{entry.name}"
            _mount_part(entry.path, inner, at, concealed, extra, userns, depth)
    elif entry.is_file():
        os.close(os.open(at, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        if entry.path not in concealed:
            _mount_read_only(entry.path, at, userns)


def _mount_read_only(path: str, place: str, userns: int) -> None:
    target = os.open(place, os.O_PATH | os.O_CLOEXEC)
    mounts.bind_read_only(path, target, userns)
    os.close(target)


def _entries(path: str) -> list["os.DirEntry[str]"]:
    """Return the entries of a directory; none if it cannot be read, or has too many."""
    try:
        found = sorted(os.scandir(path), key=lambda each: each.name)
    except OSError:
        return []
    return found if len(found) <= _MOST_ENTRIES else []


def _make_writable(path: str, upper: str) -> None:
    """Let the container's root write in directories below `path` that belong to the machine's root,
    who does not exist in the container: a directory of the upper layer belongs to the container's,
    and shows the entries of the one below it."""
    for parent in (f"/{each}" for each in _WRITABLE):
        if not f"{parent}/".startswith(f"{path}/"):
            continue
        for source in (parent, *(each.path for each in _entries(parent))):
            relative = os.path.relpath(source, path)
            if relative != "." and os.path.isdir(source) and not os.path.islink(source):
                # Its parent may be a link.
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    conceal.directory(source, f"{upper}/{relative}")


def _cover_below(path: str, place: str, concealed: Sequence[str]) -> None:
    """Mount empty directories on concealed paths below a directory that could not be overlaid."""
    root, null = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), devices.null()
    for each in concealed:
        inside_it = os.path.relpath(os.path.realpath(each), os.path.realpath(path))
        if not inside_it.startswith(".."):
            mounts.hide(root, inside_it, null)
    os.close(null)
    os.close(root)


def _show(spec: ContainerSpec, options: RootfsOptions, extra: str) -> None:
    """Mount files and directories of the machine that lie below concealed directories. Paths that
    are concealed below them again, such as kedge's own files, stay concealed."""
    mounts.own_new_files(options.userns, options.first_id)
    root = os.open(options.mount_point, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, path in enumerate(filter(os.path.exists, spec["shown"])):
        is_directory = os.path.isdir(path)
        target = (inside.directory if is_directory else inside.file)(root, path)
        if is_directory:
            home = f"{options.home}/shown/{number}"
            at = mounts.path_of(target)
            _mount_part(path, home, at, spec["concealed"], extra, options.userns)
        else:
            mounts.bind_read_only(path, target, options.userns)
        os.close(target)
    os.close(root)
