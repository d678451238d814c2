"""Paths: where the sockets of a node are, and whose they are."""

import fcntl
import os
import stat
from pathlib import Path
from typing import NamedTuple

from kedge.deviceplugin.messages import SOCKET
from kedge.deviceplugin.sockets import answers


class DevicePaths(NamedTuple):
    """The directories of one node."""

    plugins: Path
    """Where plugins register, and have their own sockets."""
    watched: Path
    """Where sockets of plugins are found, the second way in."""
    resources: Path
    """Where it can be asked who has what."""


def places(plugins: Path) -> DevicePaths:
    """The neighbours of upstream's directory have upstream's names; any other is not to spill."""
    around = plugins.parent if plugins.name == "device-plugins" else plugins
    return DevicePaths(plugins, around / "plugins_registry", around / "pod-resources")


class DirectoryClaim:
    """A directory that is one agent's alone, as long as this is open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def stake(cls, directory: Path) -> "DirectoryClaim | None":
        """None if another agent, or a kubelet, serves it. Raises OSError if it cannot be made."""
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
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
    """Remove every socket, which is how plugins see that an agent has begun; nothing else."""
    for entry in os.scandir(directory):
        if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
            os.unlink(entry.path)
