"""Processes as the machine knows them: told apart by when they began, found by who began them."""

import contextlib
import os
import signal


def boot() -> str:
    """Which start of the machine this is: pids mean nothing across it."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def began(pid: int) -> int:
    """When a process began, in ticks since the machine did; 0 if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may hold anything, blanks and brackets too.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{task}/children") as file:
                    found += map(int, file.read().split())
    return found


def session(leader: int) -> list[int]:
    """The processes of one session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(name)) == leader:
                    found.append(int(name))
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants, parents first so that they notice nothing."""
    everyone = tree(pid)
    for each in everyone:
        # Nobody forks while it is stopped.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGSTOP)
    kill(list(dict.fromkeys(everyone + tree(pid) + session(pid))))


def kill_remains(pid: int, birth: int, *, with_session: bool) -> None:
    """Kill a process that began then, and what it may have left of its session; but no stranger who
    has got its pid since. As long as anybody is left of a session, nobody else gets its number."""
    now = began(pid)
    if now not in (0, birth):
        return
    if now:
        kill([pid])
    if with_session:
        kill(session(pid))
