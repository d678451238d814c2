"""The processes behind a cluster: each held by a lock on its pid file, so that no pid can mislead.

The kernel drops the lock with the process. The pid and the time of birth beside it say whom to
signal, and keep us from signalling a stranger who got the same pid.
"""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kedge.cli.failure import AlreadyRunning, Failure
from kedge.machinery import reserve_files

_PAUSE: Final = 0.005
_END_SECONDS: Final = 5.0
"""How long the kernel may take to clear a killed process away: its memory goes before its files."""
_DOUBTFUL: Final = 40
"""Pauses after which a lock of a dead process is taken for a file that was damaged."""
_EXITING: Final = 0x4
"""PF_EXITING in the flags of /proc/PID/stat."""
_DELETED: Final = " (deleted)"
_CLAIMS: Final = (
    "restarter.pid",
    "node-autoscaler.pid",
    "node.pid",
    "server.pid",
    "supervisor.lock",
)
"""The files that a cluster's processes lock for as long as they live."""
_FURTHER: Final = re.compile(r"^server-[1-9][0-9]*\.pid$")
_KILLED: Final = 1 << (signal.SIGKILL - 1)


class Process(NamedTuple):
    """One process: its pid, and its start time because pids are reused."""

    pid: int
    birth: str

    def lives(self) -> bool:
        """Whether it still runs."""
        return bool(self.birth) and birth(self.pid) == self.birth


def claim(state: Path, part: str = "server") -> int:
    """Lock the pid file of this part of the cluster for the lifetime of this process; returns
    the locked descriptor."""
    held = os.open(_pid_file(state, part), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    # A process that only reads the lock holds it for an instant, hence several attempts.
    for _ in range(round(_END_SECONDS / _PAUSE)):
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if (other := _recorded(held)) and not is_ending(other):
                break
            time.sleep(_PAUSE)  # noqa: TID251 - no event loop runs here
            continue
        # Overwritten in place: that needs no new space on a full disk.
        reserve_files.with_room(state, lambda: _record(held))
        # Left open on purpose: closing it would let go.
        return held
    os.close(held)
    what = "cluster" if part == "server" else part
    raise AlreadyRunning(f"the {what} in {state} is already running (see 'kedge status')")


def running(state: Path, part: str = "server") -> Process | None:
    """Return the process that runs this part of the cluster.

    The lock proves that it runs. A killed process keeps the lock until the kernel has freed its
    memory, up to a second for a large one; this function waits for that.
    """
    try:
        looking = os.open(_pid_file(state, part), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Failure(f"{_pid_file(state, part)} cannot be used: {error.strerror}") from error
    try:
        for attempt in range(round(_END_SECONDS / _PAUSE)):
            if not _is_locked(looking):
                return None
            recorded = _recorded(looking)
            if recorded is not None and not is_ending(recorded):
                break
            if attempt == _DOUBTFUL and not is_ending(found := _holder(looking)):
                return found
            time.sleep(_PAUSE)  # noqa: TID251 - no event loop runs here
        return _holder(looking)
    finally:
        os.close(looking)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _holder(descriptor: int) -> Process:
    """Return the recorded process if it has the file open. Otherwise the file is damaged: return
    the kedge process that has it open, or a process without a pid.

    The pid in the file proves nothing: signalling it would let a user who can write the file
    choose a victim.
    """
    recorded, file = _recorded(descriptor), os.fstat(descriptor)
    if recorded is not None and _has_open(recorded.pid, file):
        return recorded
    return next((each for each in _own() if _has_open(each.pid, file)), Process(0, ""))


def strays(state: Path) -> list[Process]:
    """The processes of a cluster whose pid files were deleted while they ran, as programs do that
    tidy up /tmp: nothing else leads to them. Each comes before those that it would start again."""
    above = f"{os.path.realpath(state)}/"
    found = {each: claim for each in _own() if (claim := _deleted_claim(each.pid, above))}
    return sorted(found, key=lambda each: _CLAIMS.index(found[each]))


def _deleted_claim(pid: int, above: str) -> str:
    """The file in that directory that the process holds as its claim, although it is gone."""
    with contextlib.suppress(OSError):
        for number in _descriptors(pid):
            link = os.readlink(f"/proc/{pid}/fd/{number}")
            name = os.path.basename(link).removesuffix(_DELETED)
            # Those of further servers, such as server-2.pid, count as those of the first.
            name = _FURTHER.sub("server.pid", name)
            if link.startswith(above) and link.endswith(_DELETED) and name in _CLAIMS:
                return name
    return ""


def _own() -> Iterator[Process]:
    """All that runs kedge on behalf of this user."""
    for pid in map(int, filter(str.isdecimal, _processes())):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid() or pid == os.getpid():
                continue
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(map(_names_kedge, words)):
                yield Process(pid, birth(pid))


def _names_kedge(word: bytes) -> bool:
    """`-m kedge`, `.../bin/kedge`, or a program that imports a small part of it."""
    if word.startswith(b"import sys;"):
        return b" kedge." in word
    return word.rpartition(b"/")[2] == b"kedge"


def _processes() -> list[str]:
    try:
        return os.listdir("/proc")
    except OSError:
        return []


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Return whether the process has the file open. It must belong to this user, or this user be
    root."""
    if not Path("/proc/self/fd").exists():
        return True
    try:
        return any(_is_same(f"/proc/{pid}/fd/{number}", file) for number in _descriptors(pid))
    except OSError:
        return False


def _descriptors(pid: int) -> list[str]:
    return os.listdir(f"/proc/{pid}/fd")


def _is_same(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)
    except OSError:
        return False


def is_ending(process: Process) -> bool:
    """Return whether the process is dead, or killed and not yet cleaned up by the kernel."""
    if not process.lives():
        return True
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text()
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return Path("/proc/self/stat").exists()
    flags = int(stat.rpartition(")")[2].split()[6])
    pending = [line.split()[1] for line in status.splitlines() if line[:6] in ("SigPnd", "ShdPnd")]
    return bool(flags & _EXITING) or any(int(mask, 16) & _KILLED for mask in pending)


def stop(process: Process, grace: float) -> bool:
    """Ask the process to end, and make it end after the grace period; whether it had to be made."""
    # `kedge up` imports this module and stops nothing.
    from kedge.supervisor.kernel import processes

    with _handle(process) as handle:
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                processes.send_signal(handle, process.pid, number)
                # A stopped process (SIGSTOP) handles no signal until it is continued.
                processes.send_signal(handle, process.pid, signal.SIGCONT)
            if _ends_within(process, seconds):
                return number is signal.SIGKILL
    raise Failure(f"process {process.pid} does not end, not even when killed")


@contextlib.contextmanager
def _handle(process: Process) -> Iterator[int]:
    """Return a handle of this process. The process is checked after opening it, so that another
    process that got the same pid is not signalled."""
    from kedge.supervisor.kernel import processes

    try:
        handle = processes.open_process(process.pid) if process.pid > 0 else -1
    except OSError:
        handle = -1
    try:
        if handle < 0 or not process.lives():
            raise Failure(
                f"the cluster's process {process.pid or 'with an unknown number'} cannot be seen"
                " from here: stop it on the machine or in the container that it runs in"
            )
        yield handle
    finally:
        if handle >= 0:
            os.close(handle)


def _ends_within(process: Process, seconds: float) -> bool:
    for _ in range(round(seconds / _PAUSE)):
        if not process.lives():
            return True
        time.sleep(_PAUSE)  # noqa: TID251 - no event loop runs here
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


def _record(descriptor: int) -> None:
    line = f"{os.getpid()} {birth(os.getpid())}\n".encode()
    os.pwrite(descriptor, line, 0)
    os.truncate(descriptor, len(line))


def _recorded(descriptor: int) -> Process | None:
    pid, _, born = os.pread(descriptor, 128, 0).decode(errors="replace").strip().partition(" ")
    return Process(int(pid), born) if pid.isascii() and pid.isdecimal() else None
