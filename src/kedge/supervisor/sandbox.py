"""One sandbox: what the containers of a pod share, from its making to its end."""

import os
from typing import Any, Final

from kedge.supervisor import namespaces
from kedge.supervisor.container import Machine
from kedge.supervisor.namespaces import Pod
from kedge.supervisor.plan import Shared
from kedge.supervisor.records import Records

Document = dict[str, Any]

_PAUSE: Final = "pause"


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

    def open(self) -> None:
        """Make its namespaces and its files."""
        for name, content in self.shared["files"].items():
            with open(f"{self.directory}/{name}", "w") as file:
                file.write(content)
        if (home := self._machine.home) is None:
            return
        self.pod = namespaces.make(self.shared, home, self.directory)
        if self.shared["shared_pid"]:
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

    def close(self) -> None:
        """Let go of everything but the record."""
        self.pod.close()
        cgroups = self._machine.cgroups
        if cgroups is not None:
            if pause := self.record["pause"]:
                self._remove_pause(pause, 10)
            else:
                self._remove_above()
        if self.record["ready"]:
            self.record["ready"] = False
            self._records.save(self.record)

    def _remove_pause(self, path: str, attempts: int) -> None:
        assert self._machine.cgroups is not None
        group = self._machine.cgroups.group(path)
        group.kill()
        if group.remove() or not attempts:
            self._remove_above()
        else:
            self._machine.loop.after(0.02, lambda: self._remove_pause(path, attempts - 1))

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
