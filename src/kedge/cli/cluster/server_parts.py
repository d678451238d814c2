"""The servers of a cluster on one machine: the first is the part `server`, others `server-2` and so
on. All of them listen on one address."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from kedge.cli.cluster import process
from kedge.cli.cluster.process import Process
from kedge.cli.cluster.state import ServerRecord

FIRST: Final = "server"
_FURTHER: Final = re.compile(r"server-[1-9][0-9]{0,2}")


def part_of(replica: int) -> str:
    """Return the part of a server, by its number; 0 and 1 are the first one."""
    return FIRST if replica <= 1 else f"{FIRST}-{replica}"


def is_server(part: str) -> bool:
    return part == FIRST or _FURTHER.fullmatch(part) is not None


def parts(directory: Path) -> list[str]:
    """Return the parts that have run in a directory, the first server at first. Only the first if
    the directory cannot be read: those who read its files say so."""
    found: list[str] = []
    with suppress(OSError):
        found = [each.stem for each in directory.glob("server-*.pid") if is_server(each.stem)]
    return [FIRST, *sorted(found, key=lambda part: int(part.rpartition("-")[2]))]


def running(directory: Path) -> dict[str, Process]:
    """Return the servers that run."""
    found = {part: process.running(directory, part) for part in parts(directory)}
    return {part: each for part, each in found.items() if each is not None}


def is_shared(record: ServerRecord) -> bool:
    """Whether other servers listen at the address of a record, while the one that wrote it may
    be starting again."""
    return any(flag.startswith("--servers=") and flag != "--servers=1" for flag in record.flags)


def any_running(directory: Path) -> Process | None:
    """Return a server that runs, the first one if it does; None if the cluster is down."""
    return next(iter(running(directory).values()), None)
