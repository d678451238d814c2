"""Keeps copies of volumes in the roots of containers up to date, while the containers run."""

import os
from collections.abc import Callable
from typing import Final, Protocol

from kedge.supervisor.launch.launcher import Launcher
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.plain import copies
from kedge.supervisor.spec import BindMount

SECONDS: Final = 1.0
"""Between two looks at the volumes of a container."""


class CopyHolder(Protocol):
    """A container with copies of volumes."""

    @property
    def alive(self) -> bool: ...


class FollowedCopies:
    """Looks at the volumes of running containers, and has what changed copied by a child: the
    amount depends on the objects."""

    def __init__(self, loop: EventLoop, launcher: Launcher) -> None:
        self._loop = loop
        self._launcher = launcher

    def follow(self, container: CopyHolder, root: str, binds: list[BindMount]) -> None:
        """Follow the volumes of a container until it ends."""
        known = {bind["target"]: _current(bind) for bind in binds}

        def look() -> None:
            if not container.alive:
                return
            changed = [bind for bind in binds if _current(bind) != known[bind["target"]]]
            if not changed:
                self._loop.after(SECONDS, look)
                return
            known.update({bind["target"]: _current(bind) for bind in changed})
            self._copy(root, changed, lambda: self._loop.after(SECONDS, look))

        if binds:
            self._loop.after(SECONDS, look)

    def _copy(self, root: str, binds: list[BindMount], done: Callable[[], object]) -> None:
        try:
            pid = self._launcher.fork("refresh", (root, binds), ())
        except OSError:
            # The launcher is gone, and the supervisor ends with it.
            return

        def ended(*_: object) -> None:
            done()

        self._loop.child(pid, ended)


def _current(bind: BindMount) -> str:
    try:
        return os.readlink(f"{bind['source']}/{copies.DATA}")
    except OSError:
        return ""
