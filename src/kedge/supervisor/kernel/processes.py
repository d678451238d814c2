"""Processes in /proc: identified by pid and start time or by a handle, found by parent or session.

A handle is a descriptor that stands for one process, even after its pid was given to another one.
It is a pidfd, or where the kernel has none (gVisor, Linux before 5.3) the directory of the process
in /proc, which is empty after its end.
"""

import contextlib
import errno
import os
import signal
import sys
from typing import NamedTuple


def boot() -> str:
    """Return the id of this boot of the machine; pids are valid only within one boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except FileNotFoundError:
        # gVisor has none; its time of boot is that of the sandbox.
        with open("/proc/stat") as file:
            return next((line.strip() for line in file if line.startswith("btime ")), "")


def began(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; 0 if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program may contain blanks and parentheses.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


class ProcessTree(NamedTuple):
    """Processes, and how many tasks they have: a process has one for each of its threads."""

    pids: list[int]
    tasks: int


def tree(pid: int, most: int = sys.maxsize) -> list[int]:
    """Return a process and its descendants, as far as they are found by looking at that many
    tasks."""
    return task_tree(pid, most).pids


def task_tree(pid: int, most: int) -> ProcessTree:
    """Return a process and its descendants, and stop looking for more after that many tasks. Each
    takes a fortieth of a millisecond, and one process may have thousands."""
    found, tasks = [pid], 0
    for each in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{each}/task"):
                if tasks >= most:
                    return ProcessTree(found, tasks)
                tasks += 1
                with open(f"/proc/{each}/task/{task}/children") as file:
                    found += map(int, file.read().split())
    return ProcessTree(found, tasks)


def session(leader: int) -> list[int]:
    """Return the processes of a session; none without a leader. Session 0 is that of kernel threads
    and of processes whose session began outside of the pid namespace."""
    if leader <= 0:
        return []
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
    """Kill a process and its descendants, parents first so that they cannot react."""
    everyone = tree(pid)
    for each in everyone:
        # A stopped process cannot fork.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGSTOP)
    kill(list(dict.fromkeys(everyone + tree(pid) + session(pid))))


def kill_remains(pid: int, birth: int, *, with_session: bool) -> None:
    """Kill a process with that start time, and the rest of its session, but not another process
    that got its pid since. The kernel does not reuse a pid while its session has processes."""
    now = began(pid)
    if now not in (0, birth):
        return
    if now:
        kill([pid])
    if with_session:
        kill(session(pid))


def open_process(pid: int) -> int:
    """Return a handle of a process; raises OSError if there is none."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    try:
        return os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error


def send_signal(handle: int, pid: int, number: int) -> None:
    """Send a signal to the process of a handle; raises ProcessLookupError if it has ended."""
    try:
        signal.pidfd_send_signal(handle, number)
        return
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    _check_alive(handle)
    os.kill(pid, number)


def _check_alive(directory: int) -> None:
    try:
        # gVisor still has the file after the end of the process, but refuses to read it.
        file = os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.read(file, 1)
        finally:
            os.close(file)
    except OSError as error:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
