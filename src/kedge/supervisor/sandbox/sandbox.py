"""One sandbox: what the containers of a pod share, from its making to its end."""

import os
import socket
from collections.abc import Callable
from typing import Any, Final, NoReturn

from kedge.supervisor import wire
from kedge.supervisor.container.container import Machine
from kedge.supervisor.loop import READABLE
from kedge.supervisor.records import Records
from kedge.supervisor.sandbox import namespaces
from kedge.supervisor.sandbox.namespaces import Pod
from kedge.supervisor.spec import SandboxSpec

Document = dict[str, Any]
Received = Callable[[str, list[int]], None]
"""Told what went wrong, if anything, and given descriptors."""

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
    def shared(self) -> SandboxSpec:
        shared: SandboxSpec = self.record["shared"]
        return shared

    def open(self, done: Received) -> None:
        """Make its files and its namespaces; `done` is told what went wrong, if anything, and gets
        a netlink socket in its network, if it has one of its own."""
        for name, content in self.shared["files"].items():
            with open(f"{self.directory}/{name}", "w") as file:
                file.write(content)
        kinds = namespaces.kinds_of(self.shared)
        if not self._machine.isolated or not kinds:
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

        groups = self._machine.cgroups
        door = groups.any_door() if groups else ""
        self._in_child(
            lambda status: namespaces.make(self.shared, self.directory, status, door), made
        )

    def dial(self, family: int, done: Received) -> None:
        """A socket in the pod's network."""
        self._in_child(lambda status: namespaces.dial(self.pod, family, status), done)

    def _in_child(self, deed: Callable[[socket.socket], NoReturn], done: Received) -> None:
        """Have a child do something, and send descriptors or say what went wrong."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            deed(theirs)
        theirs.close()
        loop = self._machine.loop
        loop.child(pid, lambda *_: None)

        def heard() -> None:
            loop.off(ours.fileno())
            with ours:
                done(*_received(ours))

        loop.on(ours.fileno(), READABLE, heard)

    def _share_pids(self) -> None:
        if self.shared["shared_pid"] and self._machine.isolated:
            pid = namespaces.share_pids(self.pod, self._machine.launcher, self.directory)
            self._machine.loop.child(pid, lambda *_: None)
            self._confine(pid)

    def _confine(self, pid: int) -> None:
        """Put the first process of the shared pid namespace under the pod's limits."""
        parent, cgroups = self.shared["cgroup_parent"], self._machine.cgroups
        if not parent or cgroups is None:
            return
        group = cgroups.group(f"{parent}/{_PAUSE}-{self.id}")
        self.record["pause"] = group.path
        self._records.save(self.record)
        group.make()
        for door in group.doors():
            descriptor = os.open(door, os.O_WRONLY | os.O_CLOEXEC)
            os.write(descriptor, str(pid).encode())
            os.close(descriptor)

    def settle(self, ips: list[str]) -> None:
        """Its network is there too: it can be used."""
        self.record.update(ready=True, ips=ips)
        self._records.save(self.record)

    def close(self, done: Callable[[], None]) -> None:
        """Let go of everything but the record."""
        self.pod.close()
        if self.record["ready"]:
            self.record["ready"] = False
            self._records.note(self.record)
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


def _received(status: socket.socket) -> tuple[str, list[int]]:
    try:
        message, descriptors = wire.take(status)
    except (wire.Closed, OSError):
        return "a child of the supervisor ended before its time", []
    return str(message.get("error", "")), descriptors
