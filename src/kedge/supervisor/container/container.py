"""One container: from its plan to its end."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from resource import struct_rusage
from typing import Any, Final, NamedTuple

from kedge.supervisor.container.streams import Streams
from kedge.supervisor.kernel import cgroups, devices, libc, processes
from kedge.supervisor.launch import launch, reports
from kedge.supervisor.launch.launcher import Launcher
from kedge.supervisor.launch.reports import Report, Reports
from kedge.supervisor.loop import READABLE, Loop
from kedge.supervisor.records import Records
from kedge.supervisor.rootfs import rootfs
from kedge.supervisor.sandbox.namespaces import Pod
from kedge.supervisor.spec import ContainerSpec

Document = dict[str, Any]
Waiting = Callable[[], None]

CREATED: Final = "created"
RUNNING: Final = "running"
EXITED: Final = "exited"
START_ERROR: Final = 128
UNKNOWN: Final = 137
_OOM_LOOKS: Final = (0.02, 0.1, 0.5)
"""When to look for a victim after memory ran out: the news comes before the kill."""
_REMOVALS: Final = (0.01, 0.05, 0.2, 1.0, 5.0)


class Machine:
    """What all containers of a supervisor have in common."""

    def __init__(
        self,
        loop: Loop,
        launcher: Launcher,
        *,
        root: str,
        outer: int,
        isolated: bool,
        limited: bool,
    ) -> None:
        self.loop = loop
        self.launcher = launcher
        self.isolated = isolated
        """Whether there are namespaces."""
        self.root = root
        """The directory that roots are mounted at."""
        os.makedirs(root, 0o700, exist_ok=True)
        self.mapped = outer >= 0
        """Whether we are root in a user namespace only."""
        self._outer = outer
        self.cgroups = cgroups.here() if limited else None
        self.boot = processes.boot()
        self.made: set[str] = set()
        """Groups above those of containers that we had to make, and remove when they are empty."""

    def own_pid(self) -> int:
        """This process, as the machine counts."""
        return int(os.readlink("self", dir_fd=self._outer)) if self.mapped else os.getpid()

    def outer_pid(self, pid: int, process: int) -> int:
        """A process, also given as a descriptor, as the machine counts."""
        if not self.mapped:
            return pid
        path = f"self/fdinfo/{process}"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._outer)
        with open(descriptor) as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))


class Pids(NamedTuple):
    """The pid namespace that a container is in."""

    is_new: bool
    """Whether it is created for the container."""
    shared: int = -1
    """An existing namespace; -1 for a new one or the machine's own."""
    proc: tuple[int, str] = (-1, "")
    """A mount namespace, and where in it the /proc of the shared one is."""


class Container:
    """A container, its record and, while it runs, its process."""

    def __init__(
        self,
        record: Document,
        plan: ContainerSpec | None,
        machine: Machine,
        *,
        records: Records,
        tell: Callable[[Document, str], None],
    ) -> None:
        self.record = record
        self._plan = plan
        """In memory only: its variables and arguments hold secrets. It is not needed after a
        restart, since a container ends with its supervisor."""
        self.directory = records.directory(record["id"])
        self.pidfd = -1
        """Stands for its first process."""
        self.streams: Streams | None = None
        self.pod = Pod()
        """The namespaces that it shares with the other containers of its pod."""
        self._machine = machine
        self._records = records
        self._tell = tell
        self._reports: Reports | None = None
        self._error = ""
        self._ready = False
        self._started: list[Waiting] = []
        self._ended: list[Waiting] = []
        self._cleared: list[Waiting] = []
        self._clearing = False
        self._oom: tuple[int, int] | None = None
        self._oom_seen = 0
        self._any_device = not machine.mapped

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def plan(self) -> ContainerSpec:
        assert self._plan is not None
        return self._plan

    @property
    def is_planned(self) -> bool:
        """False for a container of an earlier supervisor."""
        return self._plan is not None

    @property
    def pid(self) -> int:
        return int(self.record["pid"])

    @property
    def state(self) -> str:
        return str(self.record["state"])

    @property
    def alive(self) -> bool:
        """Whether it has a process, be it still on its way to the program."""
        return self.pidfd >= 0

    @property
    def group(self) -> cgroups.Group | None:
        path, all_groups = self.record["cgroup"], self._machine.cgroups
        return all_groups.group(path) if path and all_groups else None

    def start(self, pod: Pod, pids: Pids, done: Waiting) -> None:
        """Fork it; `done` is called when the program runs or is known not to."""
        self.pod = pod
        self._arrange_group()
        self.streams = Streams(self._machine.loop, self.plan["log"])
        stdio = self._pipes()
        ours, theirs = reports.pair()
        start = launch.Start(theirs.fileno(), stdio)
        start.terminal = self._plain_terminal()
        start.namespaces = pod.joined()
        start.own_namespaces = libc.NEW_CGROUP
        start.users, start.first_id = pod.users, pod.first_id
        start.entered_pids = pids.shared
        if group := self.group:
            start.doors = group.doors()
        # Should we be killed before it is known to run: nobody may take it for one that never did.
        self.record["begun"] = True
        self._records.save(self.record)
        try:
            self._follow(self._fork(start, pod, pids), ours)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            for descriptor in {*stdio, start.terminal} - {-1}:
                os.close(descriptor)
        self._started.append(done)

    def _arrange_group(self) -> None:
        group = self.group
        if group is None:
            self._do_without_nodes("control groups are not available")
            return
        group.make()
        self.note(*group.limit(self.plan["resources"]))
        if not self.plan["privileged"]:
            self._confine_devices(group)
        self._oom = group.watch_oom()
        if self._oom:
            self._machine.loop.on(*self._oom, self._out_of_memory)

    def _confine_devices(self, group: cgroups.Group) -> None:
        rules = [*devices.ALWAYS, *map(devices.rule, self.plan["devices"])]
        if group.allow_devices(rules):
            return
        try:
            devices.attach(group.attach_point(), rules)
        except OSError as error:
            self._do_without_nodes(error.strerror or str(error))

    def _do_without_nodes(self, reason: str) -> None:
        """Allow only the devices that are mounted one by one, because no control group limits
        devices: a process that can make a device node could open the machine's disk."""
        if self.plan["privileged"]:
            return
        self._any_device = False
        is_root = os.geteuid() == 0 and not self._machine.mapped
        if is_root and self.plan["capabilities"] & devices.MKNOD:
            # Later commands in the container use the same plan.
            self.plan["capabilities"] &= ~devices.MKNOD
            self.note(f"it does not get CAP_MKNOD: its devices cannot be limited: {reason}")

    def _pipes(self) -> tuple[int, int, int]:
        assert self.streams is not None
        if self.plan["terminal"]:
            null = devices.open_null()
            return null, null, null
        return self.streams.pipes(stdin=self.plan["stdin"])

    def _plain_terminal(self) -> int:
        """One of the machine's own terminals, where the container cannot have its own."""
        if not self.plan["terminal"] or self._machine.isolated:
            return -1
        assert self.streams is not None
        controlling = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self.streams.terminal(controlling)
        return os.dup(controlling)

    def _fork(self, start: launch.Start, pod: Pod, pids: Pids) -> int:
        launcher, fields = self._machine.launcher, vars(start)
        if not self._machine.isolated:
            return launcher.fork("plain", (self.plan, fields, self.directory), start.descriptors())
        group = self.group
        given = rootfs.Given(
            home=self.directory,
            place=self._machine.root,
            mapped=self._machine.mapped,
            views=group.views() if group else [],
            shm=pod.shm,
            any_device=self._any_device,
            proc=pids.proc,
            users=pod.users,
            first_id=pod.first_id,
        )
        sent = start.descriptors() | {given.shm, given.proc[0]}
        arguments = (self.plan, fields, vars(given))
        return launcher.fork("container", arguments, sent, is_new_pid_namespace=pids.is_new)

    def _follow(self, pid: int, status: socket.socket) -> None:
        self._hold(pid)
        self._reports = Reports(
            self._machine.loop, status, pid, heard=self._hear, ended=self._set_off
        )

    def _hold(self, pid: int) -> None:
        """Record the container's first process."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = os.pidfd_open(pid)
        self.record["pid"] = pid
        self.record["outer_pid"] = self._machine.outer_pid(pid, self.pidfd)
        self._machine.loop.child(pid, partial(self._exited, pid))

    def _hear(self, report: Report) -> None:
        """What the child says on its way to the program; its silence is success."""
        if report.note:
            self.note(report.note)
        if report.pid:
            self._hold(report.pid)
        if report.terminal >= 0 and self.streams is not None:
            self.streams.terminal(report.terminal)
        self._error = report.error or self._error
        self._ready = self._ready or report.is_ready

    def _set_off(self) -> None:
        """The child has closed its end: the program runs, or there will be none."""
        if self._error:
            # It ends by itself, unless the error is what others say about it.
            self.kill()
        if self._error or not self._ready:
            return
        self.record.update(
            state=RUNNING,
            started_at=time.time_ns(),
            began=processes.began(self.pid),
            boot=self._machine.boot,
        )
        self._records.note(self.record)
        self._tell(self.record, "started")
        self._call(self._started)

    def _exited(self, pid: int, status: int, usage: struct_rusage) -> None:
        assert self._reports is not None
        self._reports.listen()
        if pid != self.pid:
            # This process only forked the container's first process.
            return
        # Another process may hold a copy of its end.
        self._reports.close()
        code = os.waitstatus_to_exitcode(status)
        code = 128 - code if code < 0 else code
        kills = self.group.oom_kills() if self.group else 0
        self._release()
        self.record["usage"] = {
            "user": usage.ru_utime,
            "system": usage.ru_stime,
            "peak": usage.ru_maxrss * 1024,
        }
        if self.state == RUNNING:
            reason = "OOMKilled" if kills and code else "Error" if code else "Completed"
            self.end(code, reason)
        else:
            hint = " for want of memory" if kills else ""
            text = self._error or f"it ended with {code}{hint} before its program could run"
            self.end(START_ERROR, "StartError", text)
        self._call(self._started)
        self._clear(0)

    def end(self, code: int, reason: str, message: str = "") -> None:
        """Put its end on record."""
        self.record.update(
            state=EXITED,
            pid=0,
            outer_pid=0,
            exit_code=code,
            reason=reason,
            message=message,
            finished_at=time.time_ns(),
        )
        self._records.note(self.record)
        self._tell(self.record, "exited")
        self._call(self._ended)

    def fail(self, text: str) -> None:
        """It could not even be forked."""
        self._release()
        self.end(START_ERROR, "StartError", text)
        self._clear(0)

    def sweep(self) -> None:
        """Remove what an earlier supervisor has left of it."""
        if group := self.group:
            group.kill()
            self._clear(0)

    def remove_log(self) -> None:
        """Also what has been set aside of it when it grew too long."""
        directory, name = os.path.split(self.record["log"])
        with contextlib.suppress(OSError):
            for each in os.listdir(directory) if name else ():
                if each == name or each.startswith(f"{name}."):
                    os.unlink(f"{directory}/{each}")

    def _release(self) -> None:
        """Let go of the process that was, and of those it may have left."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        if self._oom:
            self._machine.loop.off(self._oom[0])
            os.close(self._oom[0])
            self._oom = None
        if group := self.group:
            if group.pids():
                group.kill()
        elif not self._machine.isolated:
            processes.kill(processes.session(self.pid))
        if self.streams is not None:
            self.streams.finish()
            self.streams = None

    def _clear(self, attempt: int) -> None:
        """Remove its control group, as soon as the kernel has let go of the last process."""
        group = self.group
        self._clearing = group is not None and not group.remove() and attempt < len(_REMOVALS)
        if not self._clearing:
            self._call(self._cleared)
            return

        def again() -> None:
            assert group is not None
            group.kill()
            self._clear(attempt + 1)

        self._machine.loop.after(_REMOVALS[attempt], again)

    def signal(self, number: int) -> None:
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def kill(self) -> None:
        """The end of its first process is the end of all in its pid namespace; the control group
        knows those that are in another."""
        self.signal(signal.SIGKILL)
        if group := self.group:
            with contextlib.suppress(OSError):
                group.kill()
        elif not self._machine.isolated and self.alive:
            processes.kill(processes.session(self.pid))

    def when_ended(self, deed: Waiting) -> None:
        """Do that as soon as it does not run, which may be now."""
        if self.alive:
            self._ended.append(deed)
        else:
            deed()

    def when_cleared(self, deed: Waiting) -> None:
        """Do that as soon as nothing is left of what ran, which may be now."""
        if self.alive or self._clearing:
            self._cleared.append(deed)
        else:
            deed()

    def note(self, *shortfalls: str) -> None:
        known = self.record["shortfalls"]
        known.extend(each for each in shortfalls if each not in known)

    def update(self, resources: Document) -> None:
        """Other limits from now on."""
        self.plan["resources"] = {**self.plan["resources"], **resources}
        if (group := self.group) and self.alive:
            self.note(*group.limit(resources))
        self._records.note(self.record)

    def _out_of_memory(self) -> None:
        assert self._oom is not None
        descriptor, events = self._oom
        with contextlib.suppress(OSError):
            # An eventfd is emptied by reading, a file of the kernel by reading it from its start.
            os.read(descriptor, 8) if events == READABLE else os.pread(descriptor, 4096, 0)
        for delay in _OOM_LOOKS:
            self._machine.loop.after(delay, self._look_for_victims)

    def _look_for_victims(self) -> None:
        group = self.group
        if group is None or not self.alive:
            return
        kills = group.oom_kills()
        if kills > self._oom_seen:
            self._oom_seen = kills
            self._tell(self.record, "oom")

    @staticmethod
    def _call(waiting: list[Waiting]) -> None:
        deeds, waiting[:] = list(waiting), []
        for deed in deeds:
            deed()
