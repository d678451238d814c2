"""Unix sockets: connect to long paths, and check whether a process listens."""

import os
import socket
from pathlib import Path
from typing import Final

LONGEST: Final = 100
"""Bytes; the kernel takes 107, and gRPC adds a little."""


class HeldDirectory:
    """An open directory, for paths through its descriptor (/proc/self/fd)."""

    def __init__(self, descriptor: int = -1) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def reachable(path: Path) -> tuple[str, HeldDirectory]:
    """A path short enough for a socket address, good for this process while it is held."""
    if len(os.fsencode(path)) <= LONGEST:
        return str(path), HeldDirectory()
    try:
        descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return str(path), HeldDirectory()
    return f"/proc/self/fd/{descriptor}/{path.name}", HeldDirectory(descriptor)


def answers(path: Path) -> bool:
    """Whether a process listens at a socket."""
    where, held = reachable(path)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.settimeout(0.2)
            probe.connect(where)
        except (BlockingIOError, TimeoutError):
            # A process listens, but its backlog is full.
            return True
        except OSError:
            return False
        finally:
            held.close()
    return True
