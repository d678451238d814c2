"""Removes the directories of ended containers in the background."""

import os
from collections.abc import Callable
from typing import Final

from kedge.supervisor.files import removal
from kedge.supervisor.kernel import descriptors
from kedge.supervisor.loop import EventLoop, Timer

_DELAY_SECONDS: Final = 0.2
_MAX_DELAY_SECONDS: Final = 300.0
"""Longest delay between two attempts to remove files."""
_NICE: Final = 10


class Trash:
    """The trash directory, and the process that empties it. It is a process of its own because a
    container may have written millions of files."""

    def __init__(self, directory: str, loop: EventLoop) -> None:
        self._directory = directory
        self._loop = loop
        self._pid = 0
        """The process that empties the trash; 0 if there is none."""
        self._timer: Timer | None = None
        self._delay = 0.0

    def empty_soon(self) -> None:
        """Empty the trash shortly; more may be thrown away until then."""
        if not self._pid:
            self._empty_after(_DELAY_SECONDS)

    def empty(self) -> None:
        """Start a process that empties the trash, if there is anything in it."""
        self._timer = None
        if not os.listdir(self._directory):
            self._delay = 0.0
            return
        self._pid = pid = os.fork()
        if pid == 0:
            try:
                # A copy of the supervisor's lock would keep the next supervisor from starting.
                descriptors.keep_only({0, 1, 2})
                os.nice(_NICE)
                self.empty_now(removal.never)
            finally:
                # On any error: the next supervisor continues from here.
                os._exit(0)
        self._loop.child(pid, self._retry)

    def empty_now(self, enough: Callable[[], bool]) -> None:
        """Empty the trash in this process, until `enough` returns true."""
        for name in os.listdir(self._directory):
            removal.remove(f"{self._directory}/{name}", enough)

    def wait(self) -> None:
        """Wait for the end of the process that empties the trash, without reaping it."""
        if self._pid:
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)

    def _empty_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.after(seconds, self.empty)

    def _retry(self, *_: object) -> None:
        """Look again with back-off: some files may not have been removable."""
        self._pid = 0
        self._delay = min(max(self._delay * 2, _DELAY_SECONDS), _MAX_DELAY_SECONDS)
        self._empty_after(self._delay)
