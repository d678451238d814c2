"""Programs in the background: how to start one, and how to read the end of its log."""

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

REASON_VARIABLE: Final = "KEDGE_RESTART_REASON"
"""Gives a restarted program the reason for its restart. It is in the environment because other
users of the machine can read command lines."""
_TAIL_BYTES: Final = 8192
_TAIL_LINES: Final = 10
LOG_LIMIT: Final = 10 * 2**20
"""Bytes from which on a log is set aside."""


class Program(NamedTuple):
    """The program to run."""

    what: str
    """Its name for users: "the server"."""
    arguments: Sequence[str]
    log: str
    told: str = ""
    """The flag that names a file descriptor on which it waits for a line; empty if it does not."""


class Pipes(NamedTuple):
    """The ends of a program's pipes that are its own; -1 if there is none."""

    ready: int
    heard: int = -1

    def close(self) -> None:
        for descriptor in self:
            if descriptor >= 0:
                os.close(descriptor)


def spawn(program: Program, pipes: Pipes, environment: Mapping[str, str]) -> int:
    """Start a program in a session of its own, and return its pid; the pipes are closed here."""
    flags = [f"--ready-fd={pipes.ready}"]
    if program.told:
        flags.append(f"{program.told}={pipes.heard}")
    for descriptor in pipes:
        if descriptor >= 0:
            os.set_inheritable(descriptor, True)
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        return os.posix_spawn(
            program.arguments[0],
            [*program.arguments, *flags],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, program.log, appending, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            # Python ignores these two, and a program inherits what its parent ignores.
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
    finally:
        pipes.close()


def make_room(log: str) -> int:
    """Rotate a large log; returns the offset at which new output begins."""
    try:
        size = os.stat(log).st_size
        if size < LOG_LIMIT:
            return size
        os.replace(log, f"{log}.1")
    except OSError:
        pass
    return 0


def tail(log: str, begin: int) -> list[str]:
    """The last lines of a log, of those that were written after the first `begin` bytes."""
    try:
        with open(log, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # A program sets a log aside that grows large while it runs, and begins a new one.
            file.seek(max(begin if begin <= size else 0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        return []
