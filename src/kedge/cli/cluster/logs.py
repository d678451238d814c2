"""The logs of a cluster's own processes."""

import shutil
from pathlib import Path


def log_files(state: Path) -> list[Path]:
    """Return the logs of server, agents and supervisors."""
    patterns = ("*.log", "nodes/*/*.log", "nodes/*/*/*.log")
    return [file for each in patterns for file in sorted(state.glob(each))]


def keep_logs(state: Path, place: Path) -> bool:
    """Copy the logs of a cluster to a directory; returns whether there are any."""
    found = log_files(state)
    place.mkdir(mode=0o700, exist_ok=True)
    for each in found:
        shutil.copyfile(each, place / kept_name(state, each))
    return bool(found)


def kept_name(state: Path, log: Path) -> str:
    """Return the name of the copy of a log."""
    return str(log.relative_to(state)).replace("/", "-")
