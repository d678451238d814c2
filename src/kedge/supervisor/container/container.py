"""One container: its process, its control group and its record."""

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
from kedge.supervisor.host import RuntimeHost
from kedge.supervisor.kernel import cgroups, devices, libc, processes
from kedge.supervisor.launch import reports
from kedge.supervisor.launch.options import LaunchOptions
from kedge.supervisor.launch.reports import LaunchReport, LaunchReports
from kedge.supervisor.loop import READABLE
from kedge.supervisor.machine_capabilities import FULL
from kedge.supervisor.records import Records
from kedge.supervisor.rootfs.options import RootfsOptions
from kedge.supervisor.sandbox.namespaces import PodNamespaces
from kedge.supervisor.spec import ContainerSpec

Document = dict[str, Any]
Callback = Callable[[], None]

CREATED: Final = "created"
RUNNING: Final = "running"
EXITED: Final = "exited"
START_ERROR: Final = 128
UNKNOWN: Final = 137
OOM_KILLED: Final = "OOMKilled"
_OOM_CHECKS_SECONDS: Final = (0.02, 0.1, 0.5)
"""When to read the count of OOM kills: the kernel notifies before it kills."""
_REMOVAL_SECONDS: Final = (0.01, 0.05, 0.2, 1.0, 5.0)
"""Delays between attempts to remove a control group that is still in use."""


class PidNamespace(NamedTuple):
    """The pid namespace of a container."""

    is_new: bool
    """Whether it is created for the container."""
    shared: int = -1
    """An existing namespace; -1 for a new one or the machine's own."""
    proc: tuple[int, str] = (-1, "")
    """A mount namespace, and the path in it of the shared namespace's /proc."""


class ContainerProcess:
    """A container, its record and, while it runs, its process."""

    def __init__(
        self,
        record: Document,
        spec: ContainerSpec | None,
        host: RuntimeHost,
        *,
        records: Records,
        publish: Callable[[Document, str], None],
    ) -> None:
        self.record = record
        self._spec = spec
        """In memory only: its variables and arguments hold secrets. It is not needed after a
        restart, since a container ends with its supervisor."""
        self.directory = records.directory(record["id"])
        self.pidfd = -1
        """A descriptor of its first process; -1 if it has none."""
        self.streams: Streams | None = None
        self.pod = PodNamespaces()
        """The namespaces of its pod."""
        self.command_pids: set[int] = set()
        """The first processes of commands that are executed in it."""
        self._host = host
        self._records = records
        self._publish = publish
        self._reports: LaunchReports | None = None
        self._error = ""
        self._ready = False
        self._started: list[Callback] = []
        self._ended: list[Callback] = []
        self._cleared: list[Callback] = []
        self._clearing = False
        self._settling = False
        """Whether it has ended, and what it wrote to its volumes is not there yet."""
        self._oom: tuple[int, int] | None = None
        self._oom_seen = 0
        self._any_device = not host.rootless
        self.links: dict[str, int] = {}
        """Without mounts: the numbers of descriptors of its volumes, by mount path."""
        self._excess: tuple[str, str] | None = None
        """Reason and message, if it was killed for exceeding a limit."""

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def spec(self) -> ContainerSpec:
        assert self._spec is not None
        return self._spec

    @property
    def has_spec(self) -> bool:
        """False for a container of an earlier supervisor."""
        return self._spec is not None

    @property
    def pid(self) -> int:
        return int(self.record["pid"])

    @property
    def state(self) -> str:
        return str(self.record["state"])

    @property
    def resources(self) -> Document:
        """Its limits."""
        return self._spec["resources"] if self._spec is not None else {}

    @property
    def written_places(self) -> list[str]:
        """The directories of volumes that it may write to."""
        binds = self._spec["binds"] if self._spec is not None else []
        return [each["source"] for each in binds if not each["read_only"]]

    @property
    def alive(self) -> bool:
        """Whether it has a process, even if that has not executed the program yet."""
        return self.pidfd >= 0

    @property
    def group(self) -> cgroups.Cgroup | None:
        path, all_groups = self.record["cgroup"], self._host.cgroups
        return all_groups.group(path) if path and all_groups else None

    def start(self, pod: PodNamespaces, pids: PidNamespace, done: Callback) -> None:
        """Fork its process; `done` is called when the program runs or has failed to start."""
        self.pod = pod
        if self._host.plain is not None:
            self.links = self._host.plain.link(self)
        self._arrange_group()
        self.streams = Streams(self._host.loop, self.spec["log"])
        stdio = self._pipes()
        ours, theirs = reports.pair()
        options = LaunchOptions(theirs.fileno(), stdio)
        options.terminal = self._plain_terminal()
        options.namespaces = pod.joined()
        options.new_namespaces = libc.NEW_CGROUP
        options.userns, options.first_id = pod.userns, pod.first_id
        options.target_pidns = pids.shared
        options.links = self.links
        if group := self.group:
            options.cgroup_files = group.procs_files()
        # If the supervisor is killed before the program runs, the next one must not take this
        # container for one that was never started.
        self.record["begun"] = True
        self._records.save(self.record)
        try:
            self._follow(self._fork(options, pod, pids), ours)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            for descriptor in {*stdio, options.terminal} - {-1}:
                os.close(descriptor)
        self._started.append(done)

    def _arrange_group(self) -> None:
        group = self.group
        if group is None:
            self._allow_bound_devices_only("control groups are not available")
            return
        group.make()
        self.note(*group.limit(self.spec["resources"]))
        if not self.spec["privileged"]:
            self._confine_devices(group)
        self._oom = group.watch_oom()
        if self._oom:
            self._host.loop.on(*self._oom, self._out_of_memory)

    def _confine_devices(self, group: cgroups.Cgroup) -> None:
        rules = [*devices.ALWAYS, *map(devices.rule, self.spec["devices"])]
        if group.allow_devices(rules):
            return
        try:
            devices.attach(group.attach_point(), rules)
        except OSError as error:
            self._allow_bound_devices_only(error.strerror or str(error))

    def _allow_bound_devices_only(self, reason: str) -> None:
        """Allow only devices that are bind-mounted one by one, because no control group limits
        devices: a process that can make a device node could open the machine's disk."""
        if self.spec["privileged"]:
            return
        self._any_device = False
        is_root = os.geteuid() == 0 and not self._host.rootless
        if is_root and self.spec["capabilities"] & devices.MKNOD:
            # Commands that are executed later use the same spec.
            self.spec["capabilities"] &= ~devices.MKNOD
            self.note(f"it does not get CAP_MKNOD: its devices cannot be limited: {reason}")

    def _pipes(self) -> tuple[int, int, int]:
        assert self.streams is not None
        if self.spec["terminal"]:
            null = devices.open_null()
            return null, null, null
        return self.streams.pipes(stdin=self.spec["stdin"])

    def _plain_terminal(self) -> int:
        """Return a terminal of the machine, for a container without namespaces; else -1."""
        if not self.spec["terminal"] or self._host.isolated:
            return -1
        assert self.streams is not None
        controlling = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self.streams.terminal(controlling)
        return os.dup(controlling)

    def _fork(self, options: LaunchOptions, pod: PodNamespaces, pids: PidNamespace) -> int:
        launcher, fields = self._host.launcher, vars(options)
        if not self._host.isolated:
            return launcher.fork(
                "plain", (self.spec, fields, self.directory), options.descriptors()
            )
        group = self.group
        root_options = RootfsOptions(
            home=self.directory,
            mount_point=self._host.root,
            rootless=self._host.rootless,
            cgroup_views=group.views() if group else [],
            shm=pod.shm,
            any_device=self._any_device,
            proc=pids.proc,
            userns=pod.userns,
            first_id=pod.first_id,
        )
        sent = options.descriptors() | {root_options.shm, root_options.proc[0]}
        arguments = (self.spec, fields, vars(root_options))
        return launcher.fork("container", arguments, sent, is_new_pid_namespace=pids.is_new)

    def _follow(self, pid: int, status: socket.socket) -> None:
        self._hold(pid)
        self._reports = LaunchReports(
            self._host.loop, status, pid, heard=self._handle_report, ended=self._launched
        )

    def _hold(self, pid: int) -> None:
        """Record the container's first process."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = processes.open_process(pid)
        self.record["pid"] = pid
        self.record["outer_pid"] = self._host.outer_pid(pid, self.pidfd)
        self._host.loop.child(pid, partial(self._exited, pid))

    def _handle_report(self, report: LaunchReport) -> None:
        """Handle a report of the child; no error before the socket closes means success."""
        if report.note:
            self.note(report.note)
        if report.pid:
            self._hold(report.pid)
        if report.terminal >= 0 and self.streams is not None:
            self.streams.terminal(report.terminal)
        if report.error:
            self._error = self._explained(report.error)
        self._ready = self._ready or report.is_ready

    def _explained(self, error: str) -> str:
        if self._host.capabilities.level == FULL:
            return error
        # Only for a container that fails to start.
        from kedge.supervisor.plain.grants import explained

        return explained(error)

    def _launched(self) -> None:
        """Handle the end of the reports: the program runs, or it will not."""
        if self._error:
            # A child that reports an error exits; one about which another process reports does not.
            self.kill()
        if self._error or not self._ready:
            return
        self.record.update(
            state=RUNNING,
            started_at=time.time_ns(),
            began=processes.began(self.pid),
            boot=self._host.boot,
        )
        self._records.note(self.record)
        self._publish(self.record, "started")
        self._host.sampled_limits.follow(self)
        self._host.cpu_throttle.follow(self)
        if self._host.plain is not None:
            self._host.plain.follow(self)
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
        self._settling = True
        finish = partial(self._finish, code, kills)
        if self._host.plain is not None:
            self._host.plain.settle(self.directory, finish)
        else:
            finish()

    def _finish(self, code: int, kills: int, unsaved: str = "") -> None:
        """Record how it ended; `unsaved` tells why its volumes lack what it wrote."""
        self._settling = False
        loss = f"the last files that it wrote to its volumes are lost: {unsaved}" if unsaved else ""
        if self.state == RUNNING and self._excess is not None and code:
            self.end(code, *self._excess)
        elif self.state == RUNNING:
            reason = OOM_KILLED if kills and code else "Error" if code else "Completed"
            self.end(code, reason, loss)
        else:
            hint = " for want of memory" if kills else ""
            text = self._error or f"it ended with {code}{hint} before its program could run"
            self.end(START_ERROR, "StartError", text)
        self._call(self._started)
        self._clear(0)

    def end(self, code: int, reason: str, message: str = "") -> None:
        """Record and publish its end."""
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
        self._publish(self.record, "exited")
        self._call(self._ended)

    def fail(self, text: str) -> None:
        """Record that its process could not be forked."""
        self._release()
        self.end(START_ERROR, "StartError", text)
        self._clear(0)

    def sweep(self) -> None:
        """Kill the processes that an earlier supervisor left, and remove the control group."""
        if group := self.group:
            group.kill()
            self._clear(0)

    def remove_log(self) -> None:
        """Remove its log with the rotated files."""
        directory, name = os.path.split(self.record["log"])
        with contextlib.suppress(OSError):
            for each in os.listdir(directory) if name else ():
                if each == name or each.startswith(f"{name}."):
                    os.unlink(f"{directory}/{each}")

    def _release(self) -> None:
        """Close its descriptors, and kill processes that its first process left behind."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        if self._oom:
            self._host.loop.off(self._oom[0])
            os.close(self._oom[0])
            self._oom = None
        if group := self.group:
            if group.pids():
                group.kill()
        elif not self._host.isolated:
            processes.kill(processes.session(self.pid))
        if self._host.plain is not None:
            self._host.plain.release(self.directory)
        if self.streams is not None:
            self.streams.finish()
            self.streams = None

    def _clear(self, attempt: int) -> None:
        """Remove its control group, as soon as the kernel has released the last process."""
        group = self.group
        self._clearing = (
            group is not None and not group.remove() and attempt < len(_REMOVAL_SECONDS)
        )
        if not self._clearing:
            self._call(self._cleared)
            return

        def again() -> None:
            assert group is not None
            group.kill()
            self._clear(attempt + 1)

        self._host.loop.after(_REMOVAL_SECONDS[attempt], again)

    def signal(self, number: int) -> None:
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                processes.send_signal(self.pidfd, self.pid, number)

    def kill(self) -> None:
        """Kill all its processes. With the first process the kernel kills its pid namespace; the
        control group also has the processes of a container in a shared pid namespace."""
        self.signal(signal.SIGKILL)
        if group := self.group:
            with contextlib.suppress(OSError):
                group.kill()
        elif not self._host.isolated and self.alive:
            processes.kill(processes.session(self.pid))

    def exceed(self, reason: str, message: str) -> None:
        """Kill all its processes because it exceeds a limit that the kernel does not enforce."""
        self._excess = reason, message
        self.kill()

    def when_ended(self, callback: Callback) -> None:
        """Call back when it has no process, which may be now."""
        if self.alive or self._settling:
            self._ended.append(callback)
        else:
            callback()

    def when_cleared(self, callback: Callback) -> None:
        """Call back when it has neither a process nor a control group, which may be now."""
        if self.alive or self._settling or self._clearing:
            self._cleared.append(callback)
        else:
            callback()

    def note(self, *shortfalls: str) -> None:
        """Add shortfalls to its record, each once."""
        known = self.record["shortfalls"]
        known.extend(each for each in shortfalls if each not in known)

    def update(self, resources: Document) -> None:
        """Change its resource limits."""
        self.spec["resources"] = {**self.spec["resources"], **resources}
        if (group := self.group) and self.alive:
            self.note(*group.limit(resources))
        self._records.note(self.record)

    def _out_of_memory(self) -> None:
        assert self._oom is not None
        descriptor, events = self._oom
        with contextlib.suppress(OSError):
            # Reading resets the notification: of an eventfd (v1), or of memory.events (v2), which
            # has to be read from its start.
            os.read(descriptor, 8) if events == READABLE else os.pread(descriptor, 4096, 0)
        for delay in _OOM_CHECKS_SECONDS:
            self._host.loop.after(delay, self._check_oom_kills)

    def _check_oom_kills(self) -> None:
        group = self.group
        if group is None or not self.alive:
            return
        kills = group.oom_kills()
        if kills > self._oom_seen:
            self._oom_seen = kills
            self._publish(self.record, "oom")

    @staticmethod
    def _call(waiting: list[Callback]) -> None:
        callbacks, waiting[:] = list(waiting), []
        for callback in callbacks:
            callback()
