"""Files that are replaced whole: after a crash there is the old content or the new, never half."""

import os
from pathlib import Path


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the file's content; it has `mode` from the first moment it exists."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with open(descriptor, "wb") as file:
            # The umask may have taken bits away, and a file left by a dead process may have more.
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
