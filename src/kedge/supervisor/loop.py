"""The supervisor's one thread: waits for descriptors, for children and for moments in time."""

import contextlib
import heapq
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from resource import struct_rusage
from typing import Final

Deed = Callable[[], object]
Ended = Callable[[int, struct_rusage], None]

READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
_SECOND: Final = 1_000_000_000


class Timer:
    """A deed that is due; may be called off."""

    def __init__(self, due: int, number: int, deed: Deed) -> None:
        self._order = (due, number)
        self.due = due
        self.deed: Deed | None = deed

    def __lt__(self, other: "Timer") -> bool:
        return self._order < other._order

    def cancel(self) -> None:
        self.deed = None


class EventLoop:
    """Calls back when something happens. Whatever a deed raises is a bug; it goes to the log, and
    the loop goes on, since with it all containers would end."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._deeds: dict[int, Deed] = {}
        self._timers: list[Timer] = []
        self._number = 0
        self._children: dict[int, Ended] = {}
        self._announcing: set[int] = set()
        self._alone: Timer | None = None
        self._signalled: list[Deed] = []
        self._running = False
        self._wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.on(self._wake, READABLE, self._woken)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def on(self, descriptor: int, events: int, deed: Deed) -> None:
        """From now on do that when those events are seen on the descriptor; replaces the last."""
        known = descriptor in self._deeds
        self._deeds[descriptor] = deed
        (self._epoll.modify if known else self._epoll.register)(descriptor, events)

    def off(self, descriptor: int) -> None:
        """Forget a descriptor; must come before it is closed."""
        self._announcing.discard(descriptor)
        if self._deeds.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def announcing(self, descriptor: int) -> None:
        """Also handle this descriptor when an unknown child has ended: it may announce that
        child's pid."""
        self._announcing.add(descriptor)

    def after(self, seconds: float, deed: Deed) -> Timer:
        self._number += 1
        timer = Timer(time.monotonic_ns() + int(seconds * _SECOND), self._number, deed)
        heapq.heappush(self._timers, timer)
        return timer

    def child(self, pid: int, deed: Ended) -> None:
        """Do that with the wait status and the resource usage of the child when it has ended."""
        self._children[pid] = deed

    @property
    def children(self) -> list[int]:
        """Those whose end is waited for."""
        return list(self._children)

    def when_alone(self, deed: Deed, seconds: float) -> None:
        """Do that once there are no such children any more, or when so much time has passed."""
        self._alone = self.after(seconds, deed)
        self._look_around()

    def _look_around(self) -> None:
        if self._alone is not None and self._alone.deed is not None and not self._children:
            self.after(0, self._alone.deed)
            self._alone.cancel()

    def signal(self, number: int, deed: Deed) -> None:
        """Do that when the signal comes, between two other deeds."""
        signal.signal(number, lambda *_: self._signalled.append(deed))

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        self._running = True
        while self._running:
            for descriptor, _ in self._epoll.poll(self._patience()):
                # An earlier deed of this round may have closed it.
                if deed := self._deeds.get(descriptor):
                    _do(deed)
            self._ring()

    def _patience(self) -> float:
        while self._timers and self._timers[0].deed is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return -1
        return max(self._timers[0].due - time.monotonic_ns(), 0) / _SECOND

    def _ring(self) -> None:
        now = time.monotonic_ns()
        while self._timers and self._timers[0].due <= now:
            if deed := heapq.heappop(self._timers).deed:
                _do(deed)

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        self._reap()
        self._look_around()
        while self._signalled:
            _do(self._signalled.pop())

    def _reap(self) -> None:
        while True:
            try:
                # Not reaped yet, so that a later announcement still finds it.
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid not in self._children:
                for descriptor in list(self._announcing):
                    _do(self._deeds[descriptor])
            pid, status, usage = os.wait4(ended.si_pid, 0)
            # Those that nobody waits for are orphans that came to us as their subreaper.
            if deed := self._children.pop(pid, None):
                _do(partial(deed, status, usage))


def _do(deed: Deed) -> None:
    try:
        deed()
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
