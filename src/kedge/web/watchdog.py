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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final, NamedTuple

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
_FRAMES_OF_OTHERS: Final = 5
_WAITING: Final = ("/threading.py", "/queue.py", "/concurrent/futures/thread.py", "/selectors.py")
"""Modules in which threads wait for work."""

LONGEST: Final = "kedge_event_loop_longest_pause_seconds"
LONGEST_PROCESSOR: Final = "kedge_event_loop_longest_pause_processor_seconds"
LONGEST_OWN: Final = "kedge_event_loop_longest_pause_own_seconds"
PAUSES: Final = "kedge_event_loop_pause_seconds"


class ProcessorTime(NamedTuple):
    """Seconds of processors that were used."""

    process: float
    """By all threads. One that keeps the interpreter's lock stops the loop as well as the loop's
    own work does."""
    loop: float
    """By the thread of the event loop."""

    def since(self, earlier: "ProcessorTime") -> "ProcessorTime":
        return ProcessorTime(self.process - earlier.process, self.loop - earlier.loop)

    def within(self, seconds: float) -> "ProcessorTime":
        """Return at most so many seconds: several threads at once do not make a pause longer."""
        return ProcessorTime(min(self.process, seconds), min(self.loop, seconds))

    def is_record(self, other: "ProcessorTime") -> bool:
        """Whether either of the times is much longer than that of another pause."""
        return any(
            mine >= max(PAUSE_SECONDS, theirs * RECORD)
            for mine, theirs in zip(self, other, strict=True)
        )

    def or_longer(self, other: "ProcessorTime") -> "ProcessorTime":
        return ProcessorTime(max(self.process, other.process), max(self.loop, other.loop))


_NOTHING: Final = ProcessorTime(0.0, 0.0)


class LoopPauses:
    """The pauses so far. Written by the loop's thread, read for /metrics."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.longest_processor = _NOTHING
        self.logged = _NOTHING
        """The longest ones of those in the log."""
        self.starts = 0
        """How often the longest pauses were forgotten."""
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def start_over(self) -> None:
        """Forget the longest pauses so far."""
        self.longest, self.longest_processor, self.logged = 0.0, _NOTHING, _NOTHING
        self.starts += 1

    def note(self, seconds: float, spent: ProcessorTime) -> None:
        """The loop took that long to give a sign of life.

        The processor time is what the server itself is to blame for: on a machine with other work,
        a loop that is not scheduled has long pauses too.
        """
        self.longest = max(self.longest, seconds)
        self.longest_processor = self.longest_processor.or_longer(spent.within(seconds))
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
        yield f"{LONGEST_PROCESSOR} {self.longest_processor.process:.3f}"
        yield f"# HELP {LONGEST_OWN} The longest pause in processor time of the loop's own thread."
        yield f"# TYPE {LONGEST_OWN} gauge"
        yield f"{LONGEST_OWN} {self.longest_processor.loop:.3f}"
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
        processor: Callable[[], ProcessorTime],
        ask: Callable[[Callable[[], None]], object],
        stack: Callable[[], str],
        others: Callable[[], str] = str,
    ) -> None:
        """`processor` is the processor time so far; `ask` has a function called by
        the loop; `stack` tells what the loop is doing now, and is empty if it waits for something
        to do; `others` tells the same of other threads."""
        self._pauses = pauses
        self._monotonic = monotonic
        self._processor = processor
        self._ask = ask
        self._stack = stack
        self._others = others
        self._asked = 0.0
        self._asked_processor = _NOTHING
        self._answered = 0.0
        self._answered_processor = _NOTHING
        self._is_open = False
        """Whether a question has not been answered."""
        self._start = 0
        """How often pauses had been forgotten when the question was asked."""
        self._culprit = ""
        self._threads = ""
        self._was_logged = False
        self._logged = float("-inf")
        self._unlogged = 0

    def look(self) -> float:
        """See whether the loop has answered, and if not, what keeps it; returns the seconds to the
        next look."""
        now = self._monotonic()
        if self._is_open:
            self._look_at_pause(now - self._asked)
            return BUSY_SECONDS
        if self._culprit:
            spent = self._answered_processor.since(self._asked_processor)
            self._log("event loop paused", self._answered - self._asked, spent)
        self._culprit, self._threads, self._was_logged = "", "", False
        if not self._stack():
            return IDLE_SECONDS
        self._asked, self._asked_processor, self._is_open = now, self._processor(), True
        self._start = self._pauses.starts
        self._ask(self.answer)
        return BUSY_SECONDS

    def answer(self) -> None:
        """Give a sign of life, in the loop's own thread."""
        self._answered, self._answered_processor = self._monotonic(), self._processor()
        spent = self._answered_processor.since(self._asked_processor)
        self._pauses.note(self._answered - self._asked, spent)
        self._is_open = False

    def _look_at_pause(self, seconds: float) -> None:
        if seconds < PAUSE_SECONDS / 2:
            return
        # Taken anew each time: of a long pause, the last stack is as good as the first.
        self._culprit = self._stack() or self._culprit
        self._threads = self._others() or self._threads
        if seconds >= STUCK_SECONDS:
            self._log("event loop stuck", seconds, self._processor().since(self._asked_processor))

    def _log(self, what: str, seconds: float, spent: ProcessorTime) -> None:
        now = self._monotonic()
        if seconds < PAUSE_SECONDS or self._was_logged:
            return
        self._was_logged = True
        if now < self._logged + LOG_SECONDS and not spent.is_record(self._pauses.logged):
            self._unlogged += 1
            return
        self._logged = now
        if self._start == self._pauses.starts:
            self._pauses.logged = self._pauses.logged.or_longer(spent)
        figures = "%s seconds=%.2f processor_seconds=%.2f own_seconds=%.2f"
        message = f"{figures} culprit=%r threads=%r not_logged_before=%d"
        # The loop may have waited for the interpreter's lock.
        threads = self._threads if spent.loop <= spent.process / 2 else ""
        log.warning(message, what, seconds, *spent, self._culprit, threads, self._unlogged)
        self._unlogged = 0


def stack_of(frame: FrameType | None, most: int = _FRAMES) -> str:
    """The innermost calls of a thread in one line, the innermost first."""
    calls: list[str] = []
    while frame is not None and len(calls) < most:
        code = frame.f_code
        place = "/".join(code.co_filename.rsplit("/", 2)[-2:])
        calls.append(f"{code.co_name} ({place}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(calls) or "unknown"


def stacks_of_others(frames: Mapping[int, FrameType], known: Collection[int]) -> str:
    """The innermost calls of all threads but the known ones and those that wait."""
    return " | ".join(
        stack_of(frame, _FRAMES_OF_OTHERS)
        for thread, frame in frames.items()
        if thread not in known and not frame.f_code.co_filename.endswith(_WAITING)
    )


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

    def others() -> str:
        return stacks_of_others(sys._current_frames(), (thread, threading.get_ident()))

    own_clock = time.pthread_getcpuclockid(thread)

    def processor_time() -> ProcessorTime:
        return ProcessorTime(time.process_time(), time.clock_gettime(own_clock))

    watchdog = Watchdog(
        pauses,
        clock.monotonic,
        processor_time,
        loop.call_soon_threadsafe,
        stack,
        others,
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
