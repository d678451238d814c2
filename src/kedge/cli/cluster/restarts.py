"""The record of the parent of a cluster's processes, and how to stop it."""

import os
from pathlib import Path
from typing import Final

import msgspec

from kedge.cli.cluster import process
from kedge.cli.cluster.process import Process
from kedge.cli.failure import Failure
from kedge.restarter.restarter import PART, RECORD

_GRACE: Final = 7.0
"""Seconds that the parent gets: it waits for programs that are starting."""
_LARGEST: Final = 1 << 20


class ProgramStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One of the programs."""

    name: str
    state: str
    """starting, running, waiting (for its next start) or stopped (given up)."""
    pid: int = 0
    restarts: int = 0
    reason: str = ""
    """How it last ended."""
    why: str = ""
    """Why it was given up."""
    last_lines: tuple[str, ...] = ()
    """The end of its log when it ended."""
    ended: float = 0.0
    """When it last ended, in seconds since the epoch."""
    next: float = 0.0
    """When it is restarted."""
    log: str = ""
    flags: tuple[str, ...] = ()


class RestartRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file `restarts.json`."""

    policy: str
    pid: int
    parts: tuple[ProgramStatus, ...]


def read(directory: Path) -> RestartRecord | None:
    """Return the record of the programs; None if there is none."""
    try:
        descriptor = os.open(directory / RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        # Programs are started with the flags in this file, so another user must not have written
        # it.
        if os.fstat(descriptor).st_uid != os.geteuid():
            return None
        try:
            return msgspec.json.decode(file.read(_LARGEST), type=RestartRecord)
        except (OSError, msgspec.MsgspecError):
            return None


def running(directory: Path) -> Process | None:
    """Return the parent, if it runs."""
    return process.running(directory, PART)


def stop(directory: Path) -> None:
    """End the parent and the programs that are starting; ready programs keep running."""
    stop_process(directory, PART, _GRACE)


def stop_process(state: Path, part: str, grace: float) -> bool | None:
    """End one process of a cluster; returns whether it had to be killed, None if it was not
    running."""
    found = process.running(state, part)
    if found is None:
        return None
    try:
        return process.stop(found, grace)
    except Failure:
        # It may have exited between the two checks.
        if process.running(state, part) is None:
            return False
        raise


def forget(directory: Path) -> None:
    """Delete the record of a cluster that is down."""
    (directory / RECORD).unlink(missing_ok=True)
