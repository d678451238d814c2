"""The children of the supervisor that merge shared directories of containers with their volumes."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kedge.supervisor.launch.launcher import Launcher
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.plain import shared_directories

Settled = Callable[[str], object]
"""Called after the last merge, with the reason why it failed; empty if it did not."""


class SharingContainer(Protocol):
    """A container with shared directories."""

    directory: str

    @property
    def alive(self) -> bool: ...

    def exceed(self, reason: str, message: str) -> None: ...


@dataclass
class _Child:
    """A child, and who waits for its end."""

    pipe: int
    """Our end: a byte asks the child for the last merge."""
    settled: list[Settled] = field(default_factory=list)


class Sharing:
    """Starts one child for each container with shared directories."""

    def __init__(self, loop: EventLoop, launcher: Launcher) -> None:
        self._loop = loop
        self._launcher = launcher
        self._children: dict[str, _Child] = {}

    def follow(self, container: SharingContainer) -> None:
        """Keep the volumes of a running container like its directories. If that becomes impossible,
        the container is killed: its files would be lost without a sign."""

        def failed(reason: str) -> None:
            if reason and container.alive:
                container.exceed("Error", f"its volumes cannot be shared any longer: {reason}")

        if _is_pending(container.directory):
            self._start(container.directory, failed)

    def settle(self, directory: str, settled: Settled) -> None:
        """Call back when the directories of a container that has ended are merged."""
        child = self._children.get(directory)
        if child is None and _is_pending(directory):
            child = self._start(directory, settled)
        elif child is not None:
            child.settled.append(settled)
        if child is None:
            settled("")
        elif child.pipe >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(child.pipe, b"1")
            os.close(child.pipe)
            child.pipe = -1

    def _start(self, directory: str, settled: Settled) -> _Child | None:
        until, pipe = os.pipe2(os.O_CLOEXEC)
        try:
            pid = self._launcher.fork("share", (directory, until), (until,))
        except OSError:
            # The launcher is gone, and the supervisor ends with it. The next one merges.
            os.close(pipe)
            return None
        finally:
            os.close(until)
        child = self._children[directory] = _Child(pipe, [settled])

        def ended(status: int, *_: object) -> None:
            del self._children[directory]
            if child.pipe >= 0:
                os.close(child.pipe)
            code = os.waitstatus_to_exitcode(status)
            reason = shared_directories.reason_of(code) if code else ""
            for each in child.settled:
                each(reason)

        self._loop.child(pid, ended)
        return child


def _is_pending(directory: str) -> bool:
    return os.path.exists(f"{directory}/{shared_directories.PENDING}")
