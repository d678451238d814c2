"""Lock files: a store belongs to one process at a time, and to nobody once that process is dead."""

import fcntl
import os
from pathlib import Path

from kedge.storage.store import StoreError


class InUse(StoreError):
    """Another process, or another store in this one, has the file open."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is in use by process {holder or 'unknown'}: stop that one first")
        self.path = path
        self.holder = holder


def hold(path: Path) -> int:
    """Lock the file by way of one beside it; closing the returned descriptor lets go."""
    held = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(held, 32).decode()
        os.close(held)
        raise InUse(path, holder) from None
    os.truncate(held, 0)
    os.write(held, str(os.getpid()).encode())
    return held
