"""The process that `kedge up` leaves running: the parent of the server and of the agents.

It sleeps in poll(2) until one of them ends. Its state is in the file RECORD of the cluster's
directory, for `kedge status` and for the next `kedge up`. Its only input is signals: SIGTERM
ends it. Programs that are ready then keep running. Programs that are not ready are killed, so
that none is left half started.

If it is killed, its children become children of process 1 and keep running. The next `kedge up`
starts another one, which watches the programs by pidfd because it is not their parent.
"""

import contextlib
import errno
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from kedge.restarter import decision
from kedge.restarter.decision import Failures, ProgramEnd
from kedge.restarter.program import (
    LOG_LIMIT,
    REASON_VARIABLE,
    Pipes,
    Program,
    make_room,
    spawn,
    tail,
)

PART: Final = "restarter"
"""The name of its pid file and its log."""
RECORD: Final = "restarts.json"
_CLUSTER: Final = "cluster.json"
"""Without this file, the directory no longer holds a cluster."""
SERVER: Final = "server"

STARTING: Final = "starting"
RUNNING: Final = "running"
WAITING: Final = "waiting"
"""Ended; restarted when the delay is over."""
STOPPED: Final = "stopped"
"""Given up."""

_PATIENCE: Final = 5.0
"""Seconds that programs have to end when the start of their cluster has failed."""
_PAUSE: Final = 0.01
_LOOK_MILLISECONDS: Final = 1000
"""Between two looks at programs whose end the kernel does not tell."""

Document = dict[str, Any]


class ManagedProgram:
    """One program of the cluster, and its current process."""

    def __init__(self, name: str, pid: int, birth: str) -> None:
        self.name = name
        self.pid = pid
        self.is_child = not birth
        self.pidfd = -1
        """Pidfd of a process that is not a child of this one."""
        self.birth = ""
        """Start time of such a process where the kernel has no pidfds, as gVisor; else empty."""
        self.ready = -1
        """The pipe on which it reports readiness; -1 if there is none."""
        self.state = STARTING
        self.program: Program | None = None
        """How it is restarted; None if it is not."""
        self.flags: list[str] = []
        """The command and its flags among the program's arguments."""
        self.line = ""
        """The line that it waits for, if any."""
        self.since: float | None = None
        """When it became ready, by the monotonic clock."""
        self.due = 0.0
        """When it is restarted, by the monotonic clock."""
        self.early: int | None = None
        """Its exit code, if it has ended while the cluster was being started."""
        self.log_begin = 0
        self.failures = Failures()
        self.restarts = 0
        self.reason = ""
        self.why = ""
        self.last_lines: list[str] = []
        self.ended = 0.0
        self.next = 0.0
        if birth:
            self._adopt(birth)

    def _adopt(self, birth: str) -> None:
        """Watch a process that is not a child of this one. Its start time distinguishes it from
        another process that got the same pid."""
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno == errno.ENOSYS:
                self.birth = birth
            return
        if start_time(self.pid) != birth:
            os.close(self.pidfd)
            self.pidfd = -1

    def is_seen(self) -> bool:
        """Whether it is a process without a pidfd that still runs."""
        return bool(self.birth) and start_time(self.pid) == self.birth

    def settle(self, given: Document) -> None:
        """Take over how it is restarted, and its earlier restarts."""
        if given["arguments"]:
            words = given["arguments"]
            self.program = Program(given["what"], words, given["log"], given["told"])
        self.line, self.flags = given["line"], given["flags"]
        self.restarts = given["restarts"]
        self.reason = given["reason"]
        self.ended = given["ended"]

    def status(self) -> int | None:
        """Return the exit code of a process that ended. Raises BlockingIOError if it still runs."""
        if not self.is_child:
            self.birth = ""
            if self.pidfd >= 0:
                os.close(self.pidfd)
                self.pidfd = -1
            return None
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if not pid:
            raise BlockingIOError
        return os.waitstatus_to_exitcode(status)

    def document(self) -> Document:
        return {
            "name": self.name,
            "state": self.state,
            "pid": self.pid,
            "restarts": self.restarts,
            "reason": self.reason,
            "why": self.why,
            "lastLines": self.last_lines,
            "ended": self.ended,
            "next": self.next if self.state == WAITING else 0.0,
            "log": self.program.log if self.program else "",
            "flags": self.flags,
        }


class Restarter:
    """All parts of one cluster."""

    def __init__(self, directory: int, control: int, parts: list[ManagedProgram]) -> None:
        self._directory = directory
        self._control = control
        self._parts = parts
        self._killed_for_memory = out_of_memory_kills()
        self._ending = False
        self._poll = select.poll()
        self._wake, woken = os.pipe()
        for descriptor in (self._wake, woken):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._told_to_end)
        # Ignore the signals that a terminal sends.
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(control, select.POLLIN)
        for part in parts:
            if part.pidfd >= 0:
                self._poll.register(part.pidfd, select.POLLIN)

    def _told_to_end(self, *_: object) -> None:
        self._ending = True

    # The start: `kedge up` decides whether it has succeeded.

    def start(self) -> bool:
        """Wait until `kedge up` reports that everything is ready; returns whether to keep
        running."""
        received = b""
        # No signal tells of a program that ended before this process handled SIGCHLD.
        self._report()
        while not received.endswith(b"\n"):
            ready = dict(self._poll.poll(self._patience()))
            if self._ending:
                return self._abandon()
            self._drain()
            self._report()
            if self._control in ready:
                data = os.read(self._control, 1 << 16)
                if not data:
                    return self._abandon()
                received += data
        go: Document = json.loads(received)
        given = {each["name"]: each for each in go["parts"]}
        for part in self._parts:
            part.settle(given[part.name])
            part.since = monotonic()
            if part.state == STARTING:
                part.state = RUNNING
            else:
                # It was ready, and died while `kedge up` finished the start.
                self._consider(part, part.early)
        self._write(go["policy"])
        with contextlib.suppress(OSError):
            os.write(self._control, b'{"kept": true}\n')
        self._poll.unregister(self._control)
        os.close(self._control)
        return bool(go["policy"] == "always")

    def _report(self) -> None:
        """Report ended programs to `kedge up`, which waits for them."""
        for part, status in self._ended():
            part.state, part.early = STOPPED, status
            line = json.dumps({"name": part.name, "status": status}) + "\n"
            with contextlib.suppress(OSError):
                os.write(self._control, line.encode())

    def _abandon(self) -> bool:
        """End the programs: `kedge up` has failed or was killed."""
        for part in self._parts:
            if part.is_child and part.state == STARTING:
                kill(part.pid, signal.SIGTERM)
        self._wait_for_children(_PATIENCE)
        self._end_unready()
        return False

    # Afterwards.

    def run(self) -> None:
        """Restart programs that end, until SIGTERM or until no program is left to watch."""
        while not self._ending and any(part.state != STOPPED for part in self._parts):
            seen = dict(self._poll.poll(self._patience()))
            self._drain()
            for part in self._parts:
                if part.ready in seen:
                    self._hear(part)
            if self._ending:
                break
            changed = False
            for part, status in self._ended():
                if not self._consider(part, status):
                    return
                changed = True
            for part in self._parts:
                if part.state == WAITING and part.due <= monotonic():
                    self._start_again(part)
                    changed = True
            if changed:
                self._write("always")
        self._end_unready()
        self._write("always")

    def _patience(self) -> int | None:
        due = [part.due for part in self._parts if part.state == WAITING]
        waits = [max(0, int((min(due) - monotonic()) * 1000) + 1)] if due else []
        if any(part.birth for part in self._parts):
            waits.append(_LOOK_MILLISECONDS)
        return min(waits, default=None)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _hear(self, part: ManagedProgram) -> None:
        """Handle the readiness report of a restarted program, or the end of its pipe."""
        said = os.read(part.ready, 1 << 16)
        if said and not said.endswith(b"\n"):
            return
        self._forget_pipe(part)
        if said:
            part.state, part.since = RUNNING, monotonic()
            note(f"{part.name} is ready again, process {part.pid}")
            self._write("always")

    def _ended(self) -> Iterator[tuple[ManagedProgram, int | None]]:
        for part in self._parts:
            if part.state in (STARTING, RUNNING) and not part.is_seen():
                if part.pidfd >= 0:
                    if not is_readable(part.pidfd):
                        continue
                    self._poll.unregister(part.pidfd)
                with contextlib.suppress(BlockingIOError):
                    yield part, part.status()

    def _consider(self, part: ManagedProgram, status: int | None) -> bool:
        """Decide about a program that ended; returns False if the cluster was deleted."""
        self._forget_pipe(part)
        ready = None if part.since is None else monotonic() - part.since
        log = part.program.log if part.program else ""
        part.last_lines = tail(log, part.log_begin) if log else []
        killed, self._killed_for_memory = self._killed_for_memory, out_of_memory_kills()
        part.reason = decision.explain(
            status, out_of_memory=self._killed_for_memory > killed, lines=part.last_lines
        )
        part.ended, part.since, part.pid = epoch(), None, 0
        if not exists(_CLUSTER, self._directory):
            note(f"{part.name} {part.reason}; the cluster was deleted")
            return False
        if part.program is None:
            # It runs in a terminal, so it is not restarted.
            note(f"{part.name} {part.reason}")
            return False
        verdict = decision.decide(part.failures, ProgramEnd(status, ready))
        part.failures = verdict.failures
        if verdict.delay is None:
            part.state, part.why = STOPPED, verdict.why
            note(f"{part.name} {part.reason}; given up: {verdict.why}")
        else:
            part.state, part.due = WAITING, monotonic() + verdict.delay
            part.next = part.ended + verdict.delay
            note(f"{part.name} {part.reason}; restarted in {verdict.delay:g} s")
        return True

    def _start_again(self, part: ManagedProgram) -> None:
        assert part.program is not None
        part.ready, ready = os.pipe()
        heard = -1
        if part.program.told:
            heard, tell = os.pipe()
            os.write(tell, f"{part.line}\n".encode())
            os.close(tell)
        part.log_begin = make_room(part.program.log)
        environment = {**os.environ, REASON_VARIABLE: part.reason}
        part.restarts += 1
        try:
            part.pid = spawn(part.program, Pipes(ready, heard), environment)
            part.is_child = True
        except OSError as error:
            # No memory or no free process: temporary errors.
            os.close(part.ready)
            part.ready = -1
            part.reason = f"cannot be started: {error.strerror}"
            verdict = decision.decide(part.failures, ProgramEnd(decision.TRY_LATER, None))
            part.failures, delay = verdict.failures, verdict.delay or 0.0
            part.due, part.next = monotonic() + delay, epoch() + delay
            note(f"{part.name} {part.reason}")
            return
        part.state = STARTING
        self._poll.register(part.ready, select.POLLIN)

    def _forget_pipe(self, part: ManagedProgram) -> None:
        if part.ready >= 0:
            self._poll.unregister(part.ready)
            os.close(part.ready)
            part.ready = -1

    def _end_unready(self) -> None:
        """Kill programs that are not ready. Nothing is lost: acknowledged writes of a server are
        on disk, and the next agent finds all containers."""
        for part in self._parts:
            if part.is_child and part.state == STARTING:
                kill(part.pid, signal.SIGKILL)
        self._wait_for_children(_PATIENCE)

    def _wait_for_children(self, patience: float) -> None:
        """Wait until the killed programs have ended, for a limited time."""
        deadline = monotonic() + patience
        while starting := [p for p in self._parts if p.is_child and p.state == STARTING]:
            for part in starting:
                with contextlib.suppress(BlockingIOError):
                    part.status()
                    part.state, part.pid = STOPPED, 0
            if monotonic() > deadline:
                return
            time.sleep(_PAUSE)  # noqa: TID251 - no event loop runs here

    def _write(self, policy: str) -> None:
        """Write the record. A full disk must not end the parent."""
        known = {
            "policy": policy,
            "pid": os.getpid(),
            "parts": [part.document() for part in self._parts],
        }
        with contextlib.suppress(OSError):
            write(RECORD, json.dumps(known, indent=1).encode() + b"\n", self._directory)


def monotonic() -> float:
    """Return monotonic seconds. kedge's Clock is not used because importing it takes memory."""
    return time.monotonic_ns() / 1e9


def epoch() -> float:
    """Seconds since the epoch."""
    return time.time_ns() / 1e9


def write(name: str, content: bytes, directory: int) -> None:
    """Replace a file atomically, relative to an open directory: a directory that was deleted,
    and maybe recreated under the same name, is not written to."""
    new = f".{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    made = os.open(new, flags, 0o600, dir_fd=directory)
    try:
        # A disk that is nearly full takes a part of it, and says no only to the next part.
        while content:
            content = content[os.write(made, content) :]
    finally:
        os.close(made)
    os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)


def exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def start_time(pid: int) -> str:
    """Return the start time of a process, in ticks since boot; empty if it does not run."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def out_of_memory_kills() -> int:
    """Return how many processes of this control group the kernel has killed for lack of memory;
    of the whole machine, if groups do not count it. Programs are in the same group as their
    parent, containers are not."""
    places = ["/proc/vmstat"]
    for line in _read("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            places.insert(0, f"/sys/fs/cgroup{path}/memory.events.local")
        elif "memory" in controllers.split(","):
            places.insert(0, f"/sys/fs/cgroup/memory{path}/memory.oom_control")
    for place in places:
        for line in _read(place).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def note(text: str) -> None:
    """A line for the log, which begins anew when it is large: there may be a line a minute for
    ever, and what is known of the last ends is in RECORD."""
    with contextlib.suppress(OSError):
        if os.fstat(sys.stderr.fileno()).st_size > LOG_LIMIT:
            os.ftruncate(sys.stderr.fileno(), 0)
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=sys.stderr, flush=True)


def main(directory: str, control: str, claim: str, *parts: str) -> NoReturn:
    """Watch the programs that this process started before its execve: each is NAME:PID, or
    NAME:PID:BIRTH if another process started it. `claim` is the lock on the pid file, which the
    programs must not inherit."""
    os.set_inheritable(int(control), False)
    os.set_inheritable(int(claim), False)
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.chdir("/")
    found = []
    for each in parts:
        name, pid, birth = (*each.split(":"), "")[:3]
        found.append(ManagedProgram(name, int(pid), birth))
    # A program that crashes again and again would fill the disk with images of its memory, secrets
    # included. The first crash may leave one, if the user wants that: it was started before.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    restarter = Restarter(place, int(control), found)
    if restarter.start():
        restarter.run()
    # Nothing needs cleanup, and this exits fast.
    os._exit(0)
