"""Atomic file replacement: after a crash a file has its old content or its new content."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_SYNC: Final[list[Callable[[int], None]]] = [os.fsync]


def forgo_sync() -> None:
    """Let this process and its forks no longer wait until the disk has what they write: the files
    of a cluster for a test are of no use after a crash of the machine."""
    _SYNC.clear()


def sync(descriptor: int) -> None:
    """Return when the disk has the content of a file."""
    for act in _SYNC:
        act(descriptor)


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the file's content; it has `mode` from the first moment it exists."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = _create(beside, mode)
    try:
        with open(descriptor, "wb") as file:
            # The umask may have taken bits away.
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            sync(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _create(path: Path, mode: int) -> int:
    """Create a file exclusively, after removing one that a dead process left.

    An existing file could be a link that another user made to a file of ours.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        path.unlink()
        return os.open(path, flags, mode)


@contextlib.contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """Wait for another process that makes files in the directory: `kedge up` makes those of a new
    cluster while the server loads its modules."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
