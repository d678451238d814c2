"""Watchdog: measures pauses of the event loop and logs the code that caused them.

All requests share one thread. Code that runs there for a tenth of a second blocks the cluster
for as long, so the pauses are measured, and the stack of the thread is read while it is blocked.
"""

import asyncio
import logging
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from kedge.machinery.clock import Clock

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 0.25
BUSY_SECONDS: Final = 0.05
"""How often the loop is looked at, and how often while it is doing something. A pause is measured
from the first look that found the loop at work, so it may have been this much longer than it seems.
A loop that waits for its sockets is not woken up: four looks a second are all that a quiet server
pays."""
PAUSE_SECONDS: Final = 0.1
"""A pause of at least so many seconds is counted, and its culprit searched."""
LOG_SECONDS: Final = 10.0
"""There is one line in the log per so many seconds at most, and one for each new record."""
RECORD: Final = 1.25
"""How many times as long as the record, in processor time, a pause has to be to be a new one. So
the worst culprit is in the log, and an endless series of them writes only a few lines."""
STUCK_SECONDS: Final = 5.0
"""A pause that has lasted for so long is logged before it is over."""
BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_FRAMES: Final = 12

LONGEST: Final = "kedge_event_loop_longest_pause_seconds"
LONGEST_PROCESSOR: Final = "kedge_event_loop_longest_pause_processor_seconds"
PAUSES: Final = "kedge_event_loop_pause_seconds"


class LoopPauses:
    """The pauses so far. Written by the loop's thread, read for /metrics."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.longest_processor = 0.0
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def note(self, seconds: float, processor_seconds: float) -> None:
        """The loop took that long to give a sign of life, and the process so much of a processor.

        The second is what the server itself is to blame for: on a machine with other work, a loop
        that is not scheduled has long pauses too. All threads count, since one that keeps the
        interpreter's lock stops the loop as well as the loop's own work does.
        """
        self.longest = max(self.longest, seconds)
        self.longest_processor = max(self.longest_processor, min(seconds, processor_seconds))
        if seconds >= PAUSE_SECONDS:
            self._counts[bisect_left(BUCKETS, seconds)] += 1
            self._sum += seconds

    @property
    def count(self) -> int:
        """How many pauses were worth counting."""
        return sum(self._counts)

    def text(self) -> str:
        """As Prometheus text."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# HELP {LONGEST} The longest uninterrupted turn of the event loop."
        yield f"# TYPE {LONGEST} gauge"
        yield f"{LONGEST} {self.longest:.3f}"
        yield f"# HELP {LONGEST_PROCESSOR} The longest pause in processor time of the server."
        yield f"# TYPE {LONGEST_PROCESSOR} gauge"
        yield f"{LONGEST_PROCESSOR} {self.longest_processor:.3f}"
        yield f"# HELP {PAUSES} Pauses of the event loop of {PAUSE_SECONDS:g} s and more."
        yield f"# TYPE {PAUSES} histogram"
        total = 0
        for bound, number in zip((*BUCKETS, "+Inf"), self._counts, strict=True):
            total += number
            yield f'{PAUSES}_bucket{{le="{bound}"}} {total}'
        yield f"{PAUSES}_sum {self._sum:.3f}"
        yield f"{PAUSES}_count {total}"


class Watchdog:
    """Checks that a loop responds. All but `answer` runs in one thread of its own."""

    def __init__(
        self,
        pauses: LoopPauses,
        monotonic: Callable[[], float],
        processor: Callable[[], float],
        ask: Callable[[Callable[[], None]], object],
        stack: Callable[[], str],
    ) -> None:
        """`processor` is the processor time of the process so far; `ask` has a function called by
        the loop; `stack` tells what the loop is doing now, and is empty if it waits for something
        to do."""
        self._pauses = pauses
        self._monotonic = monotonic
        self._processor = processor
        self._ask = ask
        self._stack = stack
        self._asked = 0.0
        self._asked_processor = 0.0
        self._answered = 0.0
        self._answered_processor = 0.0
        self._is_open = False
        """Whether a question has not been answered."""
        self._culprit = ""
        self._was_logged = False
        self._logged = float("-inf")
        self._record = 0.0
        self._unlogged = 0

    def look(self) -> float:
        """See whether the loop has answered, and if not, what keeps it; returns the seconds to the
        next look."""
        now = self._monotonic()
        if self._is_open:
            self._look_at_pause(now - self._asked)
            return BUSY_SECONDS
        if self._culprit:
            spent = self._answered_processor - self._asked_processor
            self._log("event loop paused", self._answered - self._asked, spent)
        self._culprit, self._was_logged = "", False
        if not self._stack():
            return IDLE_SECONDS
        self._asked, self._asked_processor, self._is_open = now, self._processor(), True
        self._ask(self.answer)
        return BUSY_SECONDS

    def answer(self) -> None:
        """Give a sign of life, in the loop's own thread."""
        self._answered, self._answered_processor = self._monotonic(), self._processor()
        spent = self._answered_processor - self._asked_processor
        self._pauses.note(self._answered - self._asked, spent)
        self._is_open = False

    def _look_at_pause(self, seconds: float) -> None:
        if seconds < PAUSE_SECONDS / 2:
            return
        # Taken anew each time: of a long pause, the last stack is as good as the first.
        self._culprit = self._stack() or self._culprit
        if seconds >= STUCK_SECONDS:
            self._log("event loop stuck", seconds, self._processor() - self._asked_processor)

    def _log(self, what: str, seconds: float, spent: float) -> None:
        now = self._monotonic()
        if seconds < PAUSE_SECONDS or self._was_logged:
            return
        self._was_logged = True
        is_record = spent >= max(PAUSE_SECONDS, self._record * RECORD)
        if now < self._logged + LOG_SECONDS and not is_record:
            self._unlogged += 1
            return
        self._logged = now
        self._record = max(self._record, spent)
        message = "%s seconds=%.2f processor_seconds=%.2f culprit=%r not_logged_before=%d"
        log.warning(message, what, seconds, spent, self._culprit, self._unlogged)
        self._unlogged = 0


def stack_of(frame: FrameType | None) -> str:
    """The innermost calls of a thread in one line, the innermost first."""
    calls: list[str] = []
    while frame is not None and len(calls) < _FRAMES:
        code = frame.f_code
        place = "/".join(code.co_filename.rsplit("/", 2)[-2:])
        calls.append(f"{code.co_name} ({place}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(calls) or "unknown"


def _runner(frame: FrameType | None) -> FrameType | None:
    """The call that runs the loop. uvloop is no Python, so while it waits this is the innermost;
    of another loop it never is, and that is asked every time."""
    while frame is not None and not frame.f_code.co_filename.endswith("asyncio/runners.py"):
        frame = frame.f_back
    return frame


@contextmanager
def watched(clock: Clock, pauses: LoopPauses) -> Iterator[None]:
    """Watch the running event loop while the context is open, and note its pauses."""
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    waiting = _runner(sys._getframe())

    def stack() -> str:
        frame = sys._current_frames().get(thread)
        return "" if frame is waiting else stack_of(frame)

    watchdog = Watchdog(
        pauses,
        clock.monotonic,
        time.process_time,
        loop.call_soon_threadsafe,
        stack,
    )
    over = threading.Event()

    def run() -> None:
        seconds = BUSY_SECONDS
        while not over.wait(seconds):
            try:
                seconds = watchdog.look()
            except RuntimeError:  # the loop is closed
                return

    watching = threading.Thread(target=run, name="watchdog", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
