"""Paths of sockets: where they are by default, and how those with long names are reached."""

import errno
import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final, NamedTuple

from kedge.deviceplugin.messages import SOCKET

LONGEST: Final = 100
"""Bytes; the kernel takes 107, and gRPC adds a little."""


class Places(NamedTuple):
    """The directories of one node."""

    plugins: Path
    """Where plugins register, and have their own sockets."""
    watched: Path
    """Where sockets of plugins are found, the second way in."""
    resources: Path
    """Where it can be asked who has what."""


def places(plugins: Path) -> Places:
    """The neighbours of upstream's directory have upstream's names; any other is not to spill."""
    around = plugins.parent if plugins.name == "device-plugins" else plugins
    return Places(plugins, around / "plugins_registry", around / "pod-resources")


class Held:
    """A directory kept open, because a path leads through its descriptor."""

    def __init__(self, descriptor: int = -1) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def reachable(path: Path) -> tuple[str, Held]:
    """A path short enough for a socket address, good for this process while it is held."""
    if len(os.fsencode(path)) <= LONGEST:
        return str(path), Held()
    try:
        descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return str(path), Held()
    return f"/proc/self/fd/{descriptor}/{path.name}", Held(descriptor)


class Claim:
    """A directory that is one agent's alone, as long as this is open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def stake(cls, directory: Path) -> "Claim | None":
        """None if another agent, or a kubelet, serves it. Raises OSError if it cannot be made."""
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _answers(directory / SOCKET):
            os.close(descriptor)
            return None
        return cls(descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def _answers(path: Path) -> bool:
    where, held = reachable(path)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.settimeout(0.2)
            return probe.connect_ex(where) in (0, errno.EAGAIN)
        except OSError:
            return False
        finally:
            held.close()


def clear_sockets(directory: Path) -> None:
    """Remove every socket, which is how plugins see that an agent has begun; nothing else."""
    for entry in os.scandir(directory):
        if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
            os.unlink(entry.path)
