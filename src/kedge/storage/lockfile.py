"""Lock files: one process at a time opens a store; the kernel drops the lock when it dies.

The file also holds the newest acknowledged revision, so that a store without its newest writes,
because of a lost write-ahead log or an older copy, is detected.
"""

import fcntl
import mmap
import os
from pathlib import Path
from typing import Final

from kedge.storage.store import StoreError

_PID_BYTES: Final = 16
_BYTES: Final = _PID_BYTES + 8


class StoreInUse(StoreError):
    """Another process, or another store in this one, has the file open."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is in use by process {holder or 'unknown'}: stop that one first")
        self.path = path
        self.holder = holder


class StoreLock:
    """The lock of one store, until it is closed."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        there = os.pread(descriptor, _BYTES, 0)
        self.reached = int.from_bytes(there[_PID_BYTES:], "little") if len(there) == _BYTES else 0
        """The newest revision that the last holder acknowledged; 0 if that is not known."""
        # Overwritten in place: that needs no new space on a full disk.
        os.pwrite(descriptor, str(os.getpid()).encode().ljust(_PID_BYTES), 0)
        os.ftruncate(descriptor, _BYTES)
        # Through shared memory and not by a system call, which would release the interpreter
        # lock after every commit. The content survives if this process is killed.
        self._memory = mmap.mmap(descriptor, _BYTES)

    def reach(self, revision: int) -> None:
        """Record that writes up to this revision are acknowledged."""
        self._memory[_PID_BYTES:] = revision.to_bytes(8, "little")

    def close(self) -> None:
        self._memory.close()
        os.close(self._descriptor)


def hold(path: Path) -> StoreLock:
    """Lock the file through a second file beside it."""
    held = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(held, _PID_BYTES).decode().strip()
        os.close(held)
        raise StoreInUse(path, holder) from None
    return StoreLock(path, held)
