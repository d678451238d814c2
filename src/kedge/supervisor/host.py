"""The machine as all sandboxes and containers of one supervisor use it."""

import os
from typing import TYPE_CHECKING

from kedge.supervisor.container.cpu_throttle import CpuThrottle
from kedge.supervisor.container.sampled_limits import SampledLimits
from kedge.supervisor.kernel import processes
from kedge.supervisor.kernel.cgroups import Cgroups
from kedge.supervisor.launch.launcher import Launcher
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.machine_capabilities import MachineCapabilities

if TYPE_CHECKING:
    from kedge.supervisor.plain.plain_volumes import PlainVolumes


class RuntimeHost:
    """Event loop, launcher, control groups and pids."""

    def __init__(
        self,
        loop: EventLoop,
        launcher: Launcher,
        *,
        root: str,
        outer: int,
        capabilities: MachineCapabilities,
        groups: Cgroups,
    ) -> None:
        """`outer` is the machine's /proc for a rootless supervisor, else -1."""
        self.loop = loop
        self.launcher = launcher
        self.capabilities = capabilities
        self.isolated = capabilities.namespaces
        """Whether containers have namespaces."""
        self.plain = None if self.isolated else _plain_volumes(loop, launcher)
        """Replaces mounts where the kernel allows none."""
        self.root = root
        """The directory at which roots are mounted."""
        os.makedirs(root, 0o700, exist_ok=True)
        self.rootless = outer >= 0
        """Whether the supervisor is root only in a user namespace."""
        self._outer = outer
        self.cgroups = groups if capabilities.has_cgroups else None
        self.sampled_limits = SampledLimits(loop, capabilities)
        """Enforces the limits of memory and processes that no control group does."""
        self.cpu_throttle = CpuThrottle(loop, capabilities)
        self.boot = processes.boot()
        self.created_cgroups: set[str] = set()
        """Cgroups above those of containers that this supervisor created, and removes when they
        are empty."""

    def own_pid(self) -> int:
        """Return the pid of this process in the machine's pid namespace."""
        return int(os.readlink("self", dir_fd=self._outer)) if self.rootless else os.getpid()

    def outer_pid(self, pid: int, process: int) -> int:
        """Return the pid, in the machine's pid namespace, of a process that is also given as a
        pidfd."""
        if not self.rootless:
            return pid
        path = f"self/fdinfo/{process}"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._outer)
        with open(descriptor) as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))


def _plain_volumes(loop: EventLoop, launcher: Launcher) -> "PlainVolumes":
    """Return the means without mounts. Few machines need the import."""
    from kedge.supervisor.plain.plain_volumes import PlainVolumes

    return PlainVolumes(loop, launcher)
