"""Paths inside a container's root, which its links must not lead out of."""

import contextlib
import errno
import os
import stat
from typing import Final

from kedge.supervisor.kernel import libc

_MOST_LINKS: Final = 40


def find(root: int, path: str) -> int | None:
    """A descriptor that stands for the path, or None if there is nothing."""
    try:
        return libc.open_in(root, path, os.O_PATH)
    except (FileNotFoundError, NotADirectoryError):
        return None


def directory(root: int, path: str) -> int:
    """The directory at a path, made with all that is missing above it."""
    return _make(root, path, _MOST_LINKS, is_directory=True)


def file(root: int, path: str) -> int:
    """The file at a path, made empty, with all that is missing above it."""
    return _make(root, path, _MOST_LINKS, is_directory=False)


def plain_directory(root: int, name: str) -> int:
    """The directory of that name at the top of the root, made if it is missing.

    A kernel file system is mounted there. A link in its place would move the mount elsewhere, so
    that later lookups by its well-known name, for masks for example, find other files
    (CVE-2019-19921, CVE-2023-27561). runc refuses such images too.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=root)
    try:
        return libc.open_at(root, name, os.O_PATH | os.O_DIRECTORY, libc.BENEATH | libc.NO_LINKS)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise OSError(error.errno, f'"/{name}" of the image is not a directory') from error


def like(root: int, path: str, tree: int) -> int:
    """A place where the file or directory behind a descriptor can be mounted."""
    return (directory if stat.S_ISDIR(os.fstat(tree).st_mode) else file)(root, path)


def _make(root: int, path: str, links: int, *, is_directory: bool) -> int:
    found = find(root, path)
    if found is not None:
        return found
    if not links:
        raise OSError(40, f"too many links: {path}")
    parent, name = os.path.split(path.rstrip("/"))
    above = _make(root, parent or "/", links - 1, is_directory=True)
    try:
        if linked := _link(above, name):
            # A link to what is not there: that is what is missing.
            return _make(root, os.path.join(parent, linked), links - 1, is_directory=is_directory)
        if is_directory:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=above)
        else:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o644, dir_fd=above))
    finally:
        os.close(above)
    return libc.open_in(root, path, os.O_PATH)


def _link(above: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=above)
    except OSError:
        return ""
