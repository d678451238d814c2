"""Course: the windows of one thing that is read now and then, by counters with times of their own.

Between two readings only the average is known. It stands for every second between them: means are
exact, maxima and percentiles are those of the averages.
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from kedge.metrics.frame import UNKNOWN
from kedge.metrics.row import row
from kedge.metrics.scrape.page import Reading
from kedge.metrics.series import TICK
from kedge.metrics.window_file import Slot, State

LONGEST: Final = 300.0
"""Seconds between two readings beyond which their average says nothing of what was between."""
_SHORTEST: Final = 1.0
_SET_BACK: Final = 60.0
"""Seconds by which time must go back to count as set back; for less it is waited."""
_MINUTE: Final = 60
_SAME: Final = 1.0
"""Seconds by which two times of the same start may differ."""
_BILLION: Final = 1_000_000_000


class Span(NamedTuple):
    """What is known of the time between two readings."""

    begin: float
    end: float
    cores: float
    """-1 if unknown."""
    memory: float
    """Bytes; -1 if unknown."""


_NOTHING: Final = Span(0.0, 0.0, UNKNOWN, UNKNOWN)


class Course:
    """One thing. What it knows lies in a slot and outlives the process, but for the last tick."""

    __slots__ = ("_at", "_counter", "_cpu", "_memory", "_run", "_slot", "_spans", "since")

    def __init__(self, slot: Slot, reading: Reading) -> None:
        """Go on with what a slot knows; of a new one the first reading is about to come."""
        state = slot.load()
        self._slot = slot
        self.since = state.since
        """The second since which something is known; 0 if nothing is."""
        self._run = state.run / 1000
        self._counter, self._at = state.counter, state.at
        tick = state.tick or int(_begin(reading)) // TICK
        self._cpu, self._memory = slot.series(tick)
        self._spans: list[Span] = []
        """What follows the last tick that was closed."""

    @property
    def tick(self) -> int:
        """The last that was closed."""
        return self._cpu.tick

    @property
    def ready(self) -> int:
        """The last of which all readings have come."""
        return int(self._at) // TICK

    @property
    def tells(self) -> bool:
        """Whether there is a closed tick of which something is known."""
        return 0 < self.since < self.tick * TICK

    def read(self, reading: Reading) -> None:
        """Take in the next reading; one that was taken in already changes nothing."""
        if reading.time < self._at - _SET_BACK:
            self._move(int(reading.time))
        elif self._at and reading.time - self._at < _SHORTEST:
            return
        span = self._span(reading)
        if span is not None:
            self._spans.append(span)
            if not self.since and span.cores >= 0:
                self.since = max(1, int(span.begin))
        self._run, self._counter, self._at = reading.started, reading.cpu, reading.time
        self._save()

    def close(self, tick: int) -> None:
        """Close all ticks up to this one, whether or not anything is known of them."""
        if tick <= self.tick:
            return
        begin = self._spans[0].begin if self._spans else tick * TICK
        first = max(self.tick, min(int(begin) // TICK, tick - 1)) + 1
        for number in range(first, tick + 1):
            self._close(number)
        end = tick * TICK
        self._spans = [span for span in self._spans if span.end > end]
        self._save()

    def row(self) -> "array[float]":
        """The numbers of all windows, in the order of a frame."""
        return row(self._cpu, self._memory)

    def _span(self, reading: Reading) -> Span | None:
        """What the reading says of the time since the last one, or since the start."""
        same = abs(reading.started - self._run) < _SAME and reading.cpu >= self._counter >= 0
        if self._at and same:
            begin, used = self._at, reading.cpu - self._counter
        elif reading.started >= self._at and reading.cpu >= 0:
            begin, used = reading.started, reading.cpu
        else:
            begin, used = self._at, -1
        elapsed = reading.time - begin
        if not begin or not 0 < elapsed <= LONGEST:
            return None
        cores = used / _BILLION / elapsed if used >= 0 else UNKNOWN
        return Span(begin, reading.time, cores, reading.memory)

    def _close(self, tick: int) -> None:
        end = tick * TICK
        spans = [span for span in self._spans if span.end > end - TICK and span.begin < end]
        # Most often one span is all there is.
        only = spans[0] if len(spans) == 1 and _covers(spans[0], end) else None
        for second in range(end - TICK + 1, end + 1):
            at = only or next((each for each in spans if _holds(each, second)), _NOTHING)
            self._cpu.add(second, at.cores)
            self._memory.add(second, at.memory)
        self._cpu.close(tick, *_mean(_shares(spans, end, 2)))
        self._memory.close(tick, *_mean(_shares(spans, end, 3)))

    def _move(self, second: int) -> None:
        """Time has been set back: what is known stays known, as if it had been just before."""
        for passed in range(second - _MINUTE, second):
            self._cpu.skip(passed)
            self._memory.skip(passed)
        self._cpu, self._memory = self._slot.series(second // TICK)
        self._spans = []
        self._counter = -1
        self._at = 0.0
        self.since = min(self.since, max(1, second))

    def _save(self) -> None:
        state = State(
            since=self.since,
            run=round(self._run * 1000),
            tick=self._cpu.tick,
            counter=self._counter,
            at=self._at,
        )
        self._slot.save(state)


def _begin(reading: Reading) -> float:
    """Since when a first reading says anything."""
    recent = 0 < reading.time - reading.started <= LONGEST
    return reading.started if recent else reading.time


def _covers(span: Span, end: int) -> bool:
    """Whether it is all there is of a tick."""
    return span.begin <= end - TICK and span.end >= end


def _holds(span: Span, second: int) -> bool:
    """Whether most of the second that ends then is in it."""
    return span.begin <= second - 0.5 < span.end


def _shares(spans: list[Span], end: int, field: int) -> Iterator[tuple[float, float]]:
    """Values within a tick, each with how many seconds of it it stands for."""
    for span in spans:
        value = span[field]
        if value >= 0:
            yield value, min(span.end, end) - max(span.begin, end - TICK)


def _mean(shares: Iterator[tuple[float, float]]) -> tuple[float, float]:
    total = covered = 0.0
    for value, seconds in shares:
        total += value * seconds
        covered += seconds
    return total / (covered or 1.0), covered
