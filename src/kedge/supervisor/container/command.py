"""A command in a container that runs: for probes, hooks and people."""

import os
import stat
from collections.abc import Callable
from functools import partial
from resource import struct_rusage
from typing import Any, Final

from kedge.supervisor.container.container import Container, Machine
from kedge.supervisor.kernel import devices, libc, processes
from kedge.supervisor.launch import launch, reports
from kedge.supervisor.launch.reports import Report, Reports
from kedge.supervisor.sandbox import namespaces
from kedge.supervisor.spec import ContainerSpec

Document = dict[str, Any]
_PTMX: Final = (5, 2)


class Command:
    """One command; its streams belong to whoever asked for it."""

    def __init__(
        self, identity: int, container: Container, machine: Machine, done: Callable[[], None]
    ) -> None:
        self.id = identity
        self.error = ""
        self.exit_code: int | None = None
        self.waiting: list[Callable[[], None]] = []
        self._container = container
        self._machine = machine
        self._done: Callable[[], None] | None = done
        """Called once, when it runs or is known not to."""
        self._ready = False
        self._pid = 0
        self._reaped = 0
        """A process whose number may be another one's by now."""
        self._reports: Reports | None = None

    def start(self, argv: list[str], *, terminal: bool, stdin: bool) -> list[int]:
        """Fork it; returns the caller's ends of its streams: a terminal, or input (if wanted),
        output and error."""
        plan = self._plan(argv, terminal)
        controlling = self._open_terminal() if terminal else -1
        stdio, kept = _pipes(stdin=stdin) if not terminal else (_nowhere(), [controlling])
        ours, theirs = reports.pair()
        start = launch.Start(theirs.fileno(), stdio)
        start.terminal = controlling
        if group := self._container.group:
            start.doors = group.doors()
        try:
            self._pid = self._fork(plan, start)
        except OSError:
            ours.close()
            for descriptor in kept:
                os.close(descriptor)
            raise
        finally:
            theirs.close()
            for descriptor in set(stdio):
                os.close(descriptor)
        loop = self._machine.loop
        loop.child(self._pid, partial(self._exited, self._pid))
        self._reports = Reports(loop, ours, self._pid, heard=self._hear, ended=self._set_off)
        return kept

    def kill(self) -> None:
        """The command and all it began."""
        if self.exit_code is None and self._pid != self._reaped:
            processes.kill_tree(self._pid)

    def _plan(self, argv: list[str], terminal: bool) -> ContainerSpec:
        plan = self._container.plan.copy()
        plan["argv"] = argv
        plan["terminal"] = terminal
        if terminal and not any(each.startswith("TERM=") for each in plan["env"]):
            plan["env"] = [*plan["env"], "TERM=xterm"]
        return plan

    def _open_terminal(self) -> int:
        """A terminal of the container's own: opened through its root, whose links are its own."""
        if not self._machine.isolated:
            return os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        path = f"/proc/{self._container.pid}/root"
        root = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = libc.open_in(root, launch.PTMX, os.O_PATH)
        finally:
            os.close(root)
        try:
            status = os.fstat(found)
            numbers = os.major(status.st_rdev), os.minor(status.st_rdev)
            if not stat.S_ISCHR(status.st_mode) or numbers != _PTMX:
                raise OSError(19, f"{launch.PTMX} in the container is no terminal")
            flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{found}", flags)
        finally:
            os.close(found)

    def _fork(self, plan: ContainerSpec, start: launch.Start) -> int:
        launcher, target = self._machine.launcher, self._container.pid
        if not self._machine.isolated:
            arguments = (plan, vars(start), self._container.directory)
            return launcher.fork("plain", arguments, start.descriptors())
        mapped = self._machine.mapped
        start.entered = self._container.pidfd, namespaces.different(target)
        start.entered_pids = _open(target, "pid")
        # The pod's own namespace, not one that its first process may have entered later.
        start.users, start.first_id = self._container.pod.users, self._container.pod.first_id
        if mapped and (plan["user"] or plan["group"]):
            start.entered_users = _open(target, "user")
        try:
            return launcher.fork("command", (plan, vars(start), mapped), start.descriptors())
        finally:
            for descriptor in {start.entered_pids, start.entered_users} - {-1}:
                os.close(descriptor)

    def _hear(self, report: Report) -> None:
        if report.pid:
            self._announced(report.pid)
        self.error = report.error or self.error
        self._ready = self._ready or report.is_ready

    def _set_off(self) -> None:
        if self.error:
            # It ends by itself, unless the error is what others say about it.
            self.kill()
        elif self._ready:
            self._settle()

    def _announced(self, pid: int) -> None:
        """Handle the pid of the process that stays in the container."""
        self._pid = pid
        self._machine.loop.child(pid, partial(self._exited, pid))

    def _exited(self, pid: int, status: int, usage: struct_rusage) -> None:
        assert self._reports is not None
        self._reaped = pid
        self._reports.listen()
        if pid != self._pid:
            return
        self._reports.close()
        code = os.waitstatus_to_exitcode(status)
        self.exit_code = 128 - code if code < 0 else code
        if not self._ready and not self.error:
            self.error = f"it ended with {self.exit_code} before its program could run"
        self._settle()
        waiting, self.waiting = self.waiting, []
        for deed in waiting:
            deed()

    def _settle(self) -> None:
        done, self._done = self._done, None
        if done:
            done()


def _open(pid: int, kind: str) -> int:
    return os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _pipes(*, stdin: bool) -> tuple[tuple[int, int, int], list[int]]:
    """The command's ends of its streams, and the caller's."""
    kept = []
    if stdin:
        source, ours = os.pipe2(os.O_CLOEXEC)
        kept.append(ours)
    else:
        source = devices.open_null()
    ends = []
    for _ in ("stdout", "stderr"):
        read, write = os.pipe2(os.O_CLOEXEC)
        kept.append(read)
        ends.append(write)
    return (source, ends[0], ends[1]), kept


def _nowhere() -> tuple[int, int, int]:
    null = devices.open_null()
    return null, null, null
