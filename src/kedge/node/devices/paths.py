"""The directories and sockets for device plugins."""

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import NamedTuple

from kedge.deviceplugin.messages import SOCKET
from kedge.deviceplugin.sockets import answers
from kedge.dra.messages import OWN_CDI, PLUGINS, REGISTRY


class DevicePaths(NamedTuple):
    """The directories of one node."""

    plugins: Path
    """The directory where plugins register and have their own sockets."""
    watched: Path
    """The directory of the plugin watcher, the other way of registration."""
    resources: Path
    """The directory of the PodResources socket."""
    drivers: Path
    """The directory of the directories of drivers for Dynamic Resource Allocation."""
    cdi: Path
    """The node's own directory of CDI specs."""


def places(plugins: Path) -> DevicePaths:
    """Return the paths: next to the kubelet's directory as in the kubelet, otherwise below the
    directory."""
    around = plugins.parent if plugins.name == "device-plugins" else plugins
    return DevicePaths(
        plugins,
        around / REGISTRY,
        around / "pod-resources",
        around / PLUGINS,
        around / OWN_CDI,
    )


class DirectoryClaim:
    """A lock on a directory, held by one agent while this is open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def stake(cls, directory: Path) -> "DirectoryClaim | None":
        """Lock a directory; return None if another agent or a kubelet uses it. Raises OSError if it
        or the directories beside it cannot be created, or not be written: in a pod of another
        cluster they are read-only."""
        for each in places(directory):
            each.mkdir(mode=0o750, parents=True, exist_ok=True)
            if not os.access(each, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "it cannot be written to", str(each))
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if answers(directory / SOCKET):
            os.close(descriptor)
            return None
        return cls(descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def clear_sockets(directory: Path) -> None:
    """Remove all sockets, by which plugins notice that an agent has started; keep other files."""
    for entry in os.scandir(directory):
        if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
            os.unlink(entry.path)
