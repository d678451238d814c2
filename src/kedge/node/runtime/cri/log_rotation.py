"""Rotation of logs that a runtime writes: it appends, and opens its file again on request."""

import contextlib
import os
import time
from collections.abc import Iterable
from typing import Final

from kedge.node.runtime.runtime import RuntimeFailure
from kedge.supervisor.container.logs import MOST_BYTES, MOST_FILES, older_parts

_SECOND: Final = 1_000_000_000


def make_directory(path: str) -> None:
    """Make the directory of a log: CRI-O does not. Raises RuntimeFailure."""
    try:
        if path:
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    except OSError as error:
        raise RuntimeFailure(f"cannot make the directory of the log {path}: {error}") from error


def needs_rotation(path: str) -> bool:
    """Return whether a log file is too long."""
    try:
        return os.path.getsize(path) > MOST_BYTES
    except OSError:
        return False


def rotate(path: str, now: int) -> str:
    """Rename a log file and return its new name; the runtime must open its log again."""
    seconds, rest = divmod(now, _SECOND)
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))
    renamed = f"{path}.{moment}.{rest:09d}"
    os.rename(path, renamed)
    return renamed


def undo(path: str, renamed: str) -> None:
    """Give a log file its name back, unless the runtime has opened a new one."""
    if not os.path.exists(path):
        os.rename(renamed, path)


def remove_oldest(path: str) -> None:
    """Delete the rotated files of a log that are too many."""
    _remove(older_parts(path)[: -(MOST_FILES - 1)])


def remove(path: str) -> None:
    """Delete a log with its rotated files. Idempotent."""
    if path:
        _remove([path, *older_parts(path)])


def _remove(paths: Iterable[str]) -> None:
    for each in paths:
        with contextlib.suppress(OSError):
            os.unlink(each)
