"""Opens files in directories that a container writes to, without trusting the container.

Between two system calls a container can replace a file by a link to a file of the machine, by a
FIFO without a writer, or by a device. So the kernel resolves a path in one call that cannot
leave the top directory (openat2 with RESOLVE_BENEATH, as runc and the kubelet's subPath do since
CVE-2017-1002101 and CVE-2021-25741), the type is checked by descriptor before the file is opened
for reading, and reads are limited in size.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from kedge.supervisor.kernel import libc

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class NotRegular(OSError):
    """Something other than a file with content: a FIFO, a socket, a device, a directory."""


@contextlib.contextmanager
def directory(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open a trusted directory, for paths beneath it."""
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def locate(top: int, path: str, *, across_mounts: bool = False) -> int:
    """Return an O_PATH descriptor of a path beneath a directory. Links are followed if they stay
    beneath it, magic links of /proc never. Opening with O_PATH does not open a FIFO or a device.
    Raises OSError: EXDEV if the path leads out."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts:
        return os.open(f"/proc/self/fd/{top}", os.O_PATH | os.O_CLOEXEC)
    resolve = libc.BENEATH | libc.NO_MAGIC_LINKS | (0 if across_mounts else libc.NO_CROSSING)
    # A path that begins with a slash would be refused as one that leads out.
    joined = "/".join(parts)
    try:
        return libc.open_at(top, joined, os.O_PATH, resolve)
    except OSError as error:
        # A kernel before 5.6, or a seccomp filter that does not know the call.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return _walked(top, parts, across_mounts=across_mounts)


def _walked(top: int, parts: list[str], *, across_mounts: bool) -> int:
    """The same, step by step. No link is followed, because only the kernel can do that safely."""
    device = os.fstat(top).st_dev
    at = os.dup(top)
    try:
        for part in parts:
            if part == "..":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
            below = os.open(part, _STEP, dir_fd=at)
            os.close(at)
            at = below
            status = os.fstat(at)
            if stat.S_ISLNK(status.st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part)
            if status.st_dev != device and not across_mounts:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
    except BaseException:
        os.close(at)
        raise
    return at


def open_regular(located: int) -> int:
    """Open the file of an O_PATH descriptor for reading; raises NotRegular unless it is a
    regular file. Opening a regular file blocks too while a container holds a lease on it
    (F_SETLEASE), so the open is non-blocking and may raise BlockingIOError."""
    kind = os.fstat(located).st_mode
    if not stat.S_ISREG(kind):
        raise NotRegular(errno.EINVAL, "not a regular file")
    return os.open(f"/proc/self/fd/{located}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


@contextlib.contextmanager
def regular(top: int, path: str) -> Iterator[int]:
    """Open a regular file beneath a directory for reading."""
    located = locate(top, path)
    try:
        opened = open_regular(located)
    finally:
        os.close(located)
    try:
        yield opened
    finally:
        os.close(opened)


def beginning(file: int, most: int) -> bytes:
    """Return the first bytes of a file, up to a limit."""
    return _read(file, 0, most)


def ending(file: int, most: int) -> bytes:
    """Return the last bytes of a file, up to a limit, even if it grows meanwhile."""
    return _read(file, max(os.fstat(file).st_size - most, 0), most)


def _read(file: int, at: int, most: int) -> bytes:
    pieces: list[bytes] = []
    while most > 0 and (piece := os.pread(file, most, at)):
        pieces.append(piece)
        at += len(piece)
        most -= len(piece)
    return b"".join(pieces)
