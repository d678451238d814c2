"""One pod sandbox: the namespaces and files that the containers of a pod share."""

import os
import socket
from collections.abc import Callable
from typing import Any, Final, NoReturn

from kedge.supervisor import wire
from kedge.supervisor.host import RuntimeHost
from kedge.supervisor.loop import READABLE
from kedge.supervisor.records import Records
from kedge.supervisor.sandbox import namespaces
from kedge.supervisor.sandbox.namespaces import PodNamespaces
from kedge.supervisor.spec import SandboxSpec

Document = dict[str, Any]
Received = Callable[[str, list[int]], None]
"""Called with an error text, empty on success, and descriptors."""

_PAUSE: Final = "pause"
_REMOVAL_ATTEMPTS: Final = 200
_REMOVAL_SECONDS: Final = 0.01


class Sandbox:
    """A sandbox, its record and, while it is ready, its namespaces."""

    def __init__(self, record: Document, host: RuntimeHost, records: Records) -> None:
        self.record = record
        self.directory = records.directory(record["id"])
        self.pod = PodNamespaces()
        self._host = host
        self._records = records

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def shared(self) -> SandboxSpec:
        shared: SandboxSpec = self.record["shared"]
        return shared

    def open(self, done: Received) -> None:
        """Make its files and its namespaces; `done` gets a netlink socket in its network namespace,
        if it has one."""
        for name, content in self.shared["files"].items():
            with open(f"{self.directory}/{name}", "w") as file:
                file.write(content)
        kinds = namespaces.kinds_of(self.shared)
        if not self._host.isolated or not kinds:
            self._share_pids()
            done("", [])
            return

        def made(error: str, descriptors: list[int]) -> None:
            self.pod.held = dict(zip(kinds, descriptors, strict=False))
            self.pod.first_id = namespaces.first_id_of(self.shared)
            rest = descriptors[len(kinds) :]
            try:
                if not error:
                    self._share_pids()
            except OSError as failure:
                error = failure.strerror or str(failure)
            done(error, rest)

        groups = self._host.cgroups
        procs_file = groups.any_procs_file() if groups else ""
        self._in_child(
            lambda status: namespaces.make(self.shared, self.directory, status, procs_file), made
        )

    def dial(self, family: int, done: Received) -> None:
        """Pass a new socket in the pod's network namespace to `done`."""
        self._in_child(lambda status: namespaces.dial(self.pod, family, status), done)

    def _in_child(self, run: Callable[[socket.socket], NoReturn], done: Received) -> None:
        """Fork a child that sends back descriptors or an error."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            run(theirs)
        theirs.close()
        loop = self._host.loop
        loop.child(pid, lambda *_: None)

        def heard() -> None:
            loop.off(ours.fileno())
            with ours:
                done(*_received(ours))

        loop.on(ours.fileno(), READABLE, heard)

    def _share_pids(self) -> None:
        if self.shared["shared_pid"] and self._host.isolated:
            pid = namespaces.share_pids(self.pod, self._host.launcher, self.directory)
            self._host.loop.child(pid, lambda *_: None)
            self._confine(pid)

    def _confine(self, pid: int) -> None:
        """Put the first process of the shared pid namespace under the pod's limits."""
        parent, cgroups = self.shared["cgroup_parent"], self._host.cgroups
        if not parent or cgroups is None:
            return
        group = cgroups.group(f"{parent}/{_PAUSE}-{self.id}")
        self.record["pause"] = group.path
        self._records.save(self.record)
        group.make()
        for path in group.procs_files():
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            os.write(descriptor, str(pid).encode())
            os.close(descriptor)

    def settle(self, ips: list[str]) -> None:
        """Record the addresses of its network, and that it is ready."""
        self.record.update(ready=True, ips=ips)
        self._records.save(self.record)

    def close(self, done: Callable[[], None]) -> None:
        """Close its namespaces and remove its control groups; the record stays."""
        self.pod.close()
        if self.record["ready"]:
            self.record["ready"] = False
            self._records.note(self.record)
        self._clear(done, _REMOVAL_ATTEMPTS)

    def _clear(self, done: Callable[[], None], attempts: int) -> None:
        """Remove its control groups, as soon as the kernel has released the last process."""
        cgroups, path = self._host.cgroups, self.record["pause"]
        if cgroups is not None and path:
            group = cgroups.group(path)
            group.kill()
            if not group.remove() and attempts:
                self._host.loop.after(_REMOVAL_SECONDS, lambda: self._clear(done, attempts - 1))
                return
        self._remove_above()
        done()

    def _remove_above(self) -> None:
        """Remove the cgroups above it that this supervisor created, unless other pods use them."""
        made = self._host.created_cgroups
        made.update(self.record["above"])
        for directory in sorted(made, key=len, reverse=True):
            try:
                os.rmdir(directory)
            except FileNotFoundError:
                made.discard(directory)
            except OSError:
                continue
            else:
                made.discard(directory)


def _received(status: socket.socket) -> tuple[str, list[int]]:
    try:
        message, descriptors = wire.take(status)
    except (wire.PeerClosed, OSError):
        return "a child of the supervisor ended before its time", []
    return str(message.get("error", "")), descriptors
