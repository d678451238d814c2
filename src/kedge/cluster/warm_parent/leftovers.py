"""The end of a cluster for tests, and of those whose keeper was killed."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from kedge.cli.cluster import down, process
from kedge.cli.failure import Failure
from kedge.machinery.clock import SystemClock

PREFIX: Final = "kedge-test-"
PART: Final = "keeper"
"""The keeper locks the pid file of this name in the cluster's directory while it lives."""
YOUNG_SECONDS: Final = 60.0
"""A directory is left alone for so long: its keeper may not have locked the file yet."""


def end(directory: Path, *, is_kept: bool = False) -> str:
    """End the nodes of a cluster whose programs have ended, and remove its directory unless it is
    kept; returns the problems."""
    try:
        down.end_nodes(directory)
        if not is_kept:
            _delete(directory)
    except (Failure, OSError) as problem:
        return str(problem)
    return ""


def remove() -> None:
    """End all clusters of this user whose keeper was killed."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if _is_abandoned(directory):
                end(directory)
        except (Failure, OSError):
            continue  # another process removes it at the same time


def _is_abandoned(directory: Path) -> bool:
    facts = directory.lstat()
    age = SystemClock().now().timestamp() - facts.st_mtime
    if facts.st_uid != os.geteuid() or directory.is_symlink() or age < YOUNG_SECONDS:
        return False
    return process.running(directory, PART) is None


def _delete(directory: Path) -> None:
    from kedge.supervisor.files.removal import remove as remove_nodes

    # The kernel leaves directories there that not even their owner may look into.
    if (directory / "nodes").exists() and (failure := remove_nodes(f"{directory}/nodes")):
        raise Failure(f"cannot delete {directory}/nodes: {failure}")
    shutil.rmtree(directory)
