"""IntervalTrack: the windows of one thing whose counters are read now and then, with timestamps.

Only the average between two readings is known. It stands for every second between them: means are
exact, maxima and percentiles are those of the averages.
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from kedge.metrics.frame import row_of
from kedge.metrics.scrape.page import TimedReading
from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.window_file import TrackSlot, TrackState
from kedge.metrics.windows import MINUTE, TICK_SECONDS

LONGEST: Final = 300.0
"""Seconds between two readings beyond which their average is not used."""
_SHORTEST: Final = 1.0
_SET_BACK: Final = 60.0
"""Seconds by which a clock must go back to count as set back; smaller steps are waited for."""
_SAME: Final = 1.0
"""Seconds by which two start times of the same run may differ."""
_BILLION: Final = 1_000_000_000


class Interval(NamedTuple):
    """The averages between two readings."""

    begin: float
    end: float
    cores: float
    """-1 if unknown."""
    memory: float
    """Bytes; -1 if unknown."""


_NOTHING: Final = Interval(0.0, 0.0, UNKNOWN, UNKNOWN)


class IntervalTrack:
    """One thing. Its data are in a slot and outlive the process, except for the last tick."""

    __slots__ = ("_at", "_counter", "_cpu", "_intervals", "_memory", "_run", "_slot", "since")

    def __init__(self, slot: TrackSlot, reading: TimedReading) -> None:
        """Continue with the data of a slot; `reading` is the one that is added next."""
        state = slot.load()
        self._slot = slot
        self.since = state.since
        """The first second with data; 0 if there is none."""
        self._run = state.run / 1000
        self._counter, self._at = state.counter, state.at
        tick = state.tick or int(_begin(reading)) // TICK_SECONDS
        self._cpu, self._memory = slot.series(tick)
        self._intervals: list[Interval] = []
        """Intervals that end after the last closed tick."""

    @property
    def tick(self) -> int:
        """The last closed tick."""
        return self._cpu.tick

    @property
    def ready(self) -> int:
        """The last tick that the readings cover."""
        return int(self._at) // TICK_SECONDS

    @property
    def has_data(self) -> bool:
        """Whether a closed tick has data."""
        return 0 < self.since < self.tick * TICK_SECONDS

    def read(self, reading: TimedReading) -> None:
        """Add the next reading; the same reading again changes nothing."""
        if reading.time < self._at - _SET_BACK:
            self._move(int(reading.time))
        elif self._at and reading.time - self._at < _SHORTEST:
            return
        interval = self._interval(reading)
        if interval is not None:
            self._intervals.append(interval)
            if not self.since and interval.cores >= 0:
                self.since = max(1, int(interval.begin))
        self._run, self._counter, self._at = reading.started, reading.cpu, reading.time
        self._save()

    def close(self, tick: int) -> None:
        """Close all ticks up to this one, with or without data."""
        if tick <= self.tick:
            return
        begin = self._intervals[0].begin if self._intervals else tick * TICK_SECONDS
        first = max(self.tick, min(int(begin) // TICK_SECONDS, tick - 1)) + 1
        for number in range(first, tick + 1):
            self._close(number)
        end = tick * TICK_SECONDS
        self._intervals = [interval for interval in self._intervals if interval.end > end]
        self._save()

    def row(self) -> "array[float]":
        """The numbers of all windows, in the order of a frame."""
        return row_of(self._cpu, self._memory)

    def _interval(self, reading: TimedReading) -> Interval | None:
        """The interval since the last reading, or since the start of the container."""
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
        return Interval(begin, reading.time, cores, reading.memory)

    def _close(self, tick: int) -> None:
        end = tick * TICK_SECONDS
        intervals = [
            interval
            for interval in self._intervals
            if interval.end > end - TICK_SECONDS and interval.begin < end
        ]
        # Mostly a single interval covers the tick.
        only = intervals[0] if len(intervals) == 1 and _covers(intervals[0], end) else None
        for second in range(end - TICK_SECONDS + 1, end + 1):
            at = only or next((each for each in intervals if _holds(each, second)), _NOTHING)
            self._cpu.add(second, at.cores)
            self._memory.add(second, at.memory)
        self._cpu.close(tick, *_mean(_shares(intervals, end, 2)))
        self._memory.close(tick, *_mean(_shares(intervals, end, 3)))

    def _move(self, second: int) -> None:
        """Follow a clock that was set back; the data then end just before this second."""
        for passed in range(second - MINUTE, second):
            self._cpu.skip(passed)
            self._memory.skip(passed)
        self._cpu, self._memory = self._slot.series(second // TICK_SECONDS)
        self._intervals = []
        self._counter = -1
        self._at = 0.0
        self.since = min(self.since, max(1, second))

    def _save(self) -> None:
        state = TrackState(
            since=self.since,
            run=round(self._run * 1000),
            tick=self._cpu.tick,
            counter=self._counter,
            at=self._at,
        )
        self._slot.save(state)


def _begin(reading: TimedReading) -> float:
    """The begin of the first interval."""
    recent = 0 < reading.time - reading.started <= LONGEST
    return reading.started if recent else reading.time


def _covers(interval: Interval, end: int) -> bool:
    """Whether it covers the whole tick that ends then."""
    return interval.begin <= end - TICK_SECONDS and interval.end >= end


def _holds(interval: Interval, second: int) -> bool:
    """Whether it covers most of the second that ends then."""
    return interval.begin <= second - 0.5 < interval.end


def _shares(intervals: list[Interval], end: int, field: int) -> Iterator[tuple[float, float]]:
    """Values within a tick, each with the seconds that it covers."""
    for interval in intervals:
        value = interval[field]
        if value >= 0:
            yield value, min(interval.end, end) - max(interval.begin, end - TICK_SECONDS)


def _mean(shares: Iterator[tuple[float, float]]) -> tuple[float, float]:
    total = covered = 0.0
    for value, seconds in shares:
        total += value * seconds
        covered += seconds
    return total / (covered or 1.0), covered
