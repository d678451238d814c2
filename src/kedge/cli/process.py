"""The processes behind a cluster: each held by a lock on its pid file, so that no pid can mislead.

The kernel drops the lock with the process. The pid and the time of birth beside it say whom to
signal, and keep us from signalling a stranger who got the same pid.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final, NamedTuple

from kedge.cli.failure import AlreadyRunning, Failure

_PAUSE: Final = 0.005
_CLAIM_ATTEMPTS: Final = 200


class Process(NamedTuple):
    """One process, told from every other that has ever had its pid."""

    pid: int
    birth: str

    def lives(self) -> bool:
        """Whether it still runs."""
        return bool(self.birth) and birth(self.pid) == self.birth


def claim(state: Path, part: str = "server") -> int:
    """Make this process, for as long as it lives, the one that runs this part of the cluster;
    returns the descriptor that holds the claim."""
    held = os.open(_pid_file(state, part), os.O_RDWR | os.O_CREAT, 0o600)
    # Whoever merely looks holds the lock for an instant, hence more than one attempt.
    for _ in range(_CLAIM_ATTEMPTS):
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if (other := _recorded(held)) and other.lives():
                break
            time.sleep(_PAUSE)
            continue
        os.truncate(held, 0)
        os.pwrite(held, f"{os.getpid()} {birth(os.getpid())}\n".encode(), 0)
        # Left open on purpose: closing it would let go.
        return held
    os.close(held)
    what = "cluster" if part == "server" else part
    raise AlreadyRunning(f"the {what} in {state} is already running (see 'kedge status')")


def running(state: Path, part: str = "server") -> Process | None:
    """The process that runs this part of the cluster now."""
    try:
        looking = os.open(_pid_file(state, part), os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(looking, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _recorded(looking) or Process(0, "")
    finally:
        os.close(looking)
    return None


def stop(process: Process, grace: float) -> bool:
    """Ask the process to end, and make it end after the grace period; whether it had to be made."""
    if not process.lives():
        raise Failure(
            f"the cluster's process {process.pid} cannot be seen from here: stop it on the machine"
            " or in the container that it runs in"
        )
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            # One that is stopped (SIGSTOP) hears nothing before it is continued.
            os.kill(process.pid, signal.SIGCONT)
        if _ends_within(process, seconds):
            return number is signal.SIGKILL
    raise Failure(f"process {process.pid} does not end, not even when killed")


def _ends_within(process: Process, seconds: float) -> bool:
    for _ in range(round(seconds / _PAUSE)):
        if not process.lives():
            return True
        time.sleep(_PAUSE)
    return not process.lives()


def birth(pid: int) -> str:
    """When the process came into being, in the system's own words; empty if it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "" if Path("/proc/self/stat").exists() else _birth_by_ps(pid)
    # The second field, the program's name, is in parentheses and may hold anything.
    fields = stat.rpartition(")")[2].split()
    state, ticks = fields[0], fields[19]
    return "" if state in "ZX" else ticks


def _birth_by_ps(pid: int) -> str:
    told = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return "-".join(told.stdout.split())


def _pid_file(state: Path, part: str) -> Path:
    return state / f"{part}.pid"


def _recorded(descriptor: int) -> Process | None:
    pid, _, born = os.pread(descriptor, 128, 0).decode(errors="replace").strip().partition(" ")
    return Process(int(pid), born) if pid.isdigit() else None
