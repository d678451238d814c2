"""The container runtimes with which the tests of CRI run: containerd, and CRI-O if one is named.

No distribution that the tests know has a package of CRI-O, so it is not looked for.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kedge.testing import containerd, crio
from kedge.testing.container_daemon import RuntimeDaemon


class _DaemonKind(NamedTuple):
    lacks: Callable[[], str]
    running: Callable[[Path], contextlib.AbstractContextManager[RuntimeDaemon]]


_KINDS: Final = {
    "containerd": _DaemonKind(containerd.lacks, containerd.running),
    "crio": _DaemonKind(crio.lacks, crio.running),
}


def names() -> list[str]:
    """Return the runtimes to test with."""
    return ["containerd", "crio"] if crio.program() else ["containerd"]


def lacks(name: str) -> str:
    """Return what the machine lacks for a runtime; empty if nothing."""
    needs_root = "" if os.geteuid() == 0 else f"{name} needs root"
    return _KINDS[name].lacks() or needs_root


@contextlib.contextmanager
def running(name: str, place: Path) -> Iterator[RuntimeDaemon]:
    """Yield a runtime with the images PAUSE and BOX."""
    with _KINDS[name].running(place) as daemon:
        yield daemon
