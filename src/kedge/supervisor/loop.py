"""The supervisor's event loop: descriptors, children, signals and timers in one thread."""

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

Callback = Callable[[], object]
Ended = Callable[[int, struct_rusage], None]

READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
_SECOND: Final = 1_000_000_000


class Timer:
    """A callback that is due at a time; can be cancelled."""

    def __init__(self, due: int, number: int, callback: Callback) -> None:
        self._order = (due, number)
        self.due = due
        self.callback: Callback | None = callback

    def __lt__(self, other: "Timer") -> bool:
        return self._order < other._order

    def cancel(self) -> None:
        self.callback = None


class EventLoop:
    """Calls back on events. An exception of a callback is a bug; it is logged and the loop
    continues, because the end of the supervisor would end all containers."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callback] = {}
        self._timers: list[Timer] = []
        self._number = 0
        self._children: dict[int, Ended] = {}
        self._announcing: set[int] = set()
        self._alone: Timer | None = None
        self._signalled: list[Callback] = []
        self._running = False
        self._wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.on(self._wake, READABLE, self._woken)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def on(self, descriptor: int, events: int, callback: Callback) -> None:
        """Call back on events of a descriptor; replaces an earlier callback."""
        known = descriptor in self._callbacks
        self._callbacks[descriptor] = callback
        (self._epoll.modify if known else self._epoll.register)(descriptor, events)

    def off(self, descriptor: int) -> None:
        """Forget a descriptor; call this before closing it."""
        self._announcing.discard(descriptor)
        if self._callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def announcing(self, descriptor: int) -> None:
        """Also handle this descriptor when an unknown child has ended: it may announce that
        child's pid."""
        self._announcing.add(descriptor)

    def now(self) -> float:
        """Return the seconds since some fixed moment."""
        return time.monotonic_ns() / _SECOND

    def after(self, seconds: float, callback: Callback) -> Timer:
        self._number += 1
        timer = Timer(time.monotonic_ns() + int(seconds * _SECOND), self._number, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def child(self, pid: int, callback: Ended) -> None:
        """Call back with the wait status and the resource usage of a child that has ended."""
        self._children[pid] = callback

    @property
    def children(self) -> list[int]:
        """The children with a callback."""
        return list(self._children)

    def when_alone(self, callback: Callback, seconds: float) -> None:
        """Call back when there are no such children any more, or after so many seconds."""
        self._alone = self.after(seconds, callback)
        self._look_around()

    def _look_around(self) -> None:
        if self._alone is not None and self._alone.callback is not None and not self._children:
            self.after(0, self._alone.callback)
            self._alone.cancel()

    def signal(self, number: int, callback: Callback) -> None:
        """Call back after a signal, between two other callbacks."""
        signal.signal(number, lambda *_: self._signalled.append(callback))

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        self._running = True
        while self._running:
            for descriptor, _ in self._epoll.poll(self._patience()):
                # An earlier callback of this round may have closed it.
                if callback := self._callbacks.get(descriptor):
                    _call(callback)
            self._ring()

    def _patience(self) -> float:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return -1
        return max(self._timers[0].due - time.monotonic_ns(), 0) / _SECOND

    def _ring(self) -> None:
        now = time.monotonic_ns()
        while self._timers and self._timers[0].due <= now:
            if callback := heapq.heappop(self._timers).callback:
                _call(callback)

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        self._reap()
        self._look_around()
        while self._signalled:
            _call(self._signalled.pop())

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
                    _call(self._callbacks[descriptor])
            # Children without a callback are orphans: the supervisor is their subreaper.
            self.reaped(*os.wait4(ended.si_pid, 0))

    def reaped(self, pid: int, status: int, usage: struct_rusage) -> None:
        """Call back for a child that has ended, and that this loop or another process reaped."""
        if callback := self._children.pop(pid, None):
            _call(partial(callback, status, usage))


def _call(callback: Callback) -> None:
    try:
        callback()
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
