"""A line on a terminal that says what a command waits for, and how long it has waited."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Final

from kedge.cli.output.progress import ProgressLine
from kedge.machinery.clock import SystemClock

_PAUSE_SECONDS: Final = 0.2


@contextlib.contextmanager
def waiting(subject: Callable[[], str]) -> Iterator[None]:
    """Show the subject on standard error after a second, if that is a terminal."""
    clock = SystemClock()
    line, began = ProgressLine(sys.stderr, clock), clock.monotonic()
    loop = asyncio.get_running_loop()

    timers: list[asyncio.TimerHandle] = []

    def show() -> None:
        line.show(f"Waiting for {subject()} ({clock.monotonic() - began:.0f} s)")
        timers[:] = [loop.call_later(_PAUSE_SECONDS, show)]

    show()
    try:
        yield
    finally:
        timers[0].cancel()
        line.end()
