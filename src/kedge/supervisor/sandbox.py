"""One sandbox: what the containers of a pod share, from its making to its end."""

import os
import socket
from collections.abc import Callable
from typing import Any, Final

from kedge.supervisor import namespaces, wire
from kedge.supervisor.container import Machine
from kedge.supervisor.loop import READABLE
from kedge.supervisor.namespaces import Pod
from kedge.supervisor.plan import Shared
from kedge.supervisor.records import Records

Document = dict[str, Any]

_PAUSE: Final = "pause"
_ATTEMPTS: Final = 200
_PAUSE_BETWEEN: Final = 0.01


class Sandbox:
    """A sandbox, its record and, while it is ready, its namespaces."""

    def __init__(self, record: Document, machine: Machine, records: Records) -> None:
        self.record = record
        self.directory = records.directory(record["id"])
        self.pod = Pod()
        self._machine = machine
        self._records = records

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def shared(self) -> Shared:
        shared: Shared = self.record["shared"]
        return shared

    def open(self, done: Callable[[str, list[int]], None]) -> None:
        """Make its files and its namespaces; `done` is told what went wrong, if anything, and gets
        a netlink socket in its network, if it has one of its own."""
        for name, content in self.shared["files"].items():
            with open(f"{self.directory}/{name}", "w") as file:
                file.write(content)
        kinds = namespaces.kinds_of(self.shared)
        if self._machine.home is None or not kinds:
            self._share_pids()
            done("", [])
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            namespaces.make(self.shared, self.directory, theirs)
        theirs.close()
        loop = self._machine.loop
        loop.child(pid, lambda *_: None)

        def made() -> None:
            loop.off(ours.fileno())
            with ours:
                done(*self._take(ours, kinds))

        loop.on(ours.fileno(), READABLE, made)

    def _take(self, made: socket.socket, kinds: list[str]) -> tuple[str, list[int]]:
        """Namespaces as they come from the child that made them."""
        try:
            message, descriptors = wire.take(made)
        except (wire.Closed, OSError):
            return "the pod's namespaces could not be made", []
        if "error" in message:
            return str(message["error"]), []
        self.pod.held = dict(zip(kinds, descriptors, strict=False))
        try:
            self._share_pids()
        except OSError as error:
            return error.strerror or str(error), descriptors[len(kinds) :]
        return "", descriptors[len(kinds) :]

    def _share_pids(self) -> None:
        home = self._machine.home
        if self.shared["shared_pid"] and home is not None:
            pid = namespaces.share_pids(self.pod, home)
            self._machine.loop.child(pid, lambda *_: None)
            self._confine(pid)

    def _confine(self, pid: int) -> None:
        """Put the first process of the shared pid namespace under the pod's limits."""
        parent, cgroups = self.shared["cgroup_parent"], self._machine.cgroups
        if not parent or cgroups is None:
            return
        group = cgroups.group(f"{parent}/{_PAUSE}-{self.id}")
        self.record["pause"] = group.path
        self.made_above(group.make())
        for door in group.doors():
            descriptor = os.open(door, os.O_WRONLY | os.O_CLOEXEC)
            os.write(descriptor, str(pid).encode())
            os.close(descriptor)

    def made_above(self, groups: list[str]) -> None:
        """Remember groups of the pod that the node agent had not made, to remove them later."""
        if groups:
            self.record["above"] += groups
            self._records.save(self.record)

    def settle(self, ips: list[str]) -> None:
        """Its network is there too: it can be used."""
        self.record.update(ready=True, ips=ips)
        self._records.save(self.record)

    def close(self, done: Callable[[], None]) -> None:
        """Let go of everything but the record."""
        self.pod.close()
        if self.record["ready"]:
            self.record["ready"] = False
            self._records.save(self.record)
        self._clear(done, _ATTEMPTS)

    def _clear(self, done: Callable[[], None], attempts: int) -> None:
        """Remove its control groups, as soon as the kernel has let go of the last process."""
        cgroups, path = self._machine.cgroups, self.record["pause"]
        if cgroups is not None and path:
            group = cgroups.group(path)
            group.kill()
            if not group.remove() and attempts:
                self._machine.loop.after(_PAUSE_BETWEEN, lambda: self._clear(done, attempts - 1))
                return
        self._remove_above()
        done()

    def _remove_above(self) -> None:
        """Those that other pods are still in are left to the last of them."""
        made = self._machine.made
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
