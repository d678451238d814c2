"""A command in a running container: for `kubectl exec`, probes and lifecycle hooks."""

import os
import stat
from collections.abc import Callable
from functools import partial
from resource import struct_rusage
from typing import Any, Final

from kedge.supervisor import subordinate_ids
from kedge.supervisor.container.container import ContainerProcess
from kedge.supervisor.host import RuntimeHost
from kedge.supervisor.kernel import devices, libc, processes
from kedge.supervisor.launch import launch, reports
from kedge.supervisor.launch.options import LaunchOptions
from kedge.supervisor.launch.reports import LaunchReport, LaunchReports
from kedge.supervisor.sandbox import namespaces
from kedge.supervisor.spec import ContainerSpec

Document = dict[str, Any]
_PTMX: Final = (5, 2)


class ExecProcess:
    """One command; its streams belong to the agent that requested it."""

    def __init__(
        self,
        identity: int,
        container: ContainerProcess,
        host: RuntimeHost,
        done: Callable[[], None],
    ) -> None:
        self.id = identity
        self.error = ""
        self.exit_code: int | None = None
        self.waiting: list[Callable[[], None]] = []
        self._container = container
        self._host = host
        self._done: Callable[[], None] | None = done
        """Called once, when the program runs or has failed to start."""
        self._ready = False
        self._pid = 0
        self._reaped = 0
        """A process that was reaped; the kernel may have given its pid to another one."""
        self._reports: LaunchReports | None = None

    def start(self, argv: list[str], *, terminal: bool, stdin: bool) -> list[int]:
        """Fork its process; returns the caller's ends of its streams: a terminal, or standard input
        (if requested), output and error."""
        spec = self._command_spec(argv, terminal)
        controlling = self._open_terminal() if terminal else -1
        stdio, kept = _pipes(stdin=stdin) if not terminal else (_null_streams(), [controlling])
        ours, theirs = reports.pair()
        options = LaunchOptions(theirs.fileno(), stdio)
        options.terminal = controlling
        if group := self._container.group:
            options.cgroup_files = group.procs_files()
        try:
            self._pid = self._fork(spec, options)
        except OSError:
            ours.close()
            for descriptor in kept:
                os.close(descriptor)
            raise
        finally:
            theirs.close()
            for descriptor in set(stdio):
                os.close(descriptor)
        self._container.command_pids.add(self._pid)
        loop = self._host.loop
        loop.child(self._pid, partial(self._exited, self._pid))
        self._reports = LaunchReports(
            loop, ours, self._pid, heard=self._handle_report, ended=self._launched
        )
        return kept

    def kill(self) -> None:
        """Kill the command and its descendants."""
        if self.exit_code is None and self._pid != self._reaped:
            processes.kill_tree(self._pid)

    def _command_spec(self, argv: list[str], terminal: bool) -> ContainerSpec:
        spec = self._container.spec.copy()
        spec["argv"] = argv
        spec["terminal"] = terminal
        if terminal and not any(each.startswith("TERM=") for each in spec["env"]):
            spec["env"] = [*spec["env"], "TERM=xterm"]
        return spec

    def _open_terminal(self) -> int:
        """Open a new terminal in the container's devpts instance. The path is resolved in the
        container's root and the type is checked: the container controls its links."""
        if not self._host.isolated:
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

    def _fork(self, spec: ContainerSpec, options: LaunchOptions) -> int:
        launcher, target = self._host.launcher, self._container.pid
        if not self._host.isolated:
            options.links = self._container.links
            arguments = (spec, vars(options), self._container.directory)
            return launcher.fork("plain", arguments, options.descriptors())
        rootless = self._host.rootless
        options.target = self._container.pidfd, namespaces.different(target)
        options.target_pidns = _open(target, "pid")
        # The pod's own namespace, not one that its first process may have entered later.
        options.userns, options.first_id = self._container.pod.userns, self._container.pod.first_id
        if rootless and not subordinate_ids.are_present(spec["user"], spec["group"]):
            options.target_userns = _open(target, "user")
        try:
            return launcher.fork("command", (spec, vars(options), rootless), options.descriptors())
        finally:
            for descriptor in {options.target_pidns, options.target_userns} - {-1}:
                os.close(descriptor)

    def _handle_report(self, report: LaunchReport) -> None:
        if report.pid:
            self._announced(report.pid)
        self.error = report.error or self.error
        self._ready = self._ready or report.is_ready

    def _launched(self) -> None:
        if self.error:
            # A child that reports an error exits; one about which another process reports does not.
            self.kill()
        elif self._ready:
            self._settle()

    def _announced(self, pid: int) -> None:
        """Handle the pid of the process that stays in the container."""
        self._pid = pid
        self._container.command_pids.add(pid)
        self._host.loop.child(pid, partial(self._exited, pid))

    def _exited(self, pid: int, status: int, usage: struct_rusage) -> None:
        assert self._reports is not None
        self._reaped = pid
        self._container.command_pids.discard(pid)
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
        for callback in waiting:
            callback()

    def _settle(self) -> None:
        done, self._done = self._done, None
        if done:
            done()


def _open(pid: int, kind: str) -> int:
    return os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def _pipes(*, stdin: bool) -> tuple[tuple[int, int, int], list[int]]:
    """Return the command's ends of its streams, and the caller's."""
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


def _null_streams() -> tuple[int, int, int]:
    null = devices.open_null()
    return null, null, null
