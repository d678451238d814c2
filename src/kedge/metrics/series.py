"""Series: the rolling windows of one quantity, with mean, maximum and 95th percentile.

Each window keeps no more than it needs. 10s and 1m keep every second and are exact. 1h keeps every
tick of ten seconds (`hour_window`). 1d keeps blocks and codes, with bounded errors (`day_window`).
Together that is 18 KB per series; a day of seconds would be 345 KB.

Cost: `add` writes one float, in each second. `close` takes constant time, in each tick. The windows
are computed only when they are read. Everything that cannot be computed from other data lies in
memory that the caller owns; nothing else is lost with the process.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import mul

from kedge.metrics import series_memory
from kedge.metrics.day_window import DayWindow
from kedge.metrics.hour_window import HourWindow
from kedge.metrics.percentiles import Percentile
from kedge.metrics.scale import LogScale
from kedge.metrics.series_memory import (
    BLOCK_TICKS,
    MAXIMA,
    MEANS,
    PEAKS,
    SUMS,
    UNKNOWN,
    WEIGHTS,
    DayCodes,
    fill,
    known,
    listed,
)
from kedge.metrics.statistics import Statistics, rank
from kedge.metrics.usage_history import UsageHistory
from kedge.metrics.windows import DAY, HOUR, MINUTE, TICK_SECONDS, WINDOWS


class Series:
    """The windows of one quantity. Time is counted in whole seconds and ticks since the epoch."""

    __slots__ = ("_codes", "_covered", "_day", "_floats", "_hour", "_minute", "_scale", "_tick")

    def __init__(
        self, memory: memoryview, minute: "memoryview[float]", scale: LogScale, tick: int
    ) -> None:
        """Continue with the data in the memory, which end with this tick. `minute` has one value
        for each second, at the second modulo 60; others may write it too."""
        self._floats, self._covered, self._codes = series_memory.split(memory)
        self._minute = minute
        self._scale = scale
        self._tick = tick
        self._load()

    def _load(self) -> None:
        self._hour = HourWindow(self._floats, self._covered)
        self._day = DayWindow(self._floats, self._codes, self._scale)
        # Most series that are opened are new. Finding that out must not delay the pod's start.
        if not self._hour.is_empty() or not self._day.is_empty():
            self._hour.load()
            self._day.load(self._tick)

    @property
    def tick(self) -> int:
        """The last closed tick."""
        return self._tick

    def add(self, second: int, value: float) -> None:
        """Set the value of the second that ends then, later than any before; a negative value
        means no data."""
        self._minute[second % MINUTE] = value

    def skip(self, second: int) -> None:
        """Record that a second has no data."""
        self._minute[second % MINUTE] = UNKNOWN

    def close(self, tick: int, mean: float, covered: float) -> None:
        """End a tick with its mean over the time with data, of so many seconds.

        The mean comes from the caller because counters give it exactly, whereas the mean of the
        values of seconds would weigh late readings wrongly. Ticks in between have no data.
        """
        values = self._advance(tick)
        if covered > 0 and values:
            self._put(tick, mean, values[-1], covered)
        else:
            self._put(tick, UNKNOWN, UNKNOWN, 0.0)

    def close_even(self, tick: int) -> None:
        """End a tick whose values stand for one second each."""
        values = self._advance(tick)
        if values:
            count = len(values)
            self._put(tick, sum(values) / count, values[-1], count)
        else:
            self._put(tick, UNKNOWN, UNKNOWN, 0.0)

    def window(self, name: str) -> Statistics | None:
        """Statistics of the window that ends with the last tick; None without data."""
        seconds = WINDOWS[name]
        if seconds <= MINUTE:
            return self._short(seconds // TICK_SECONDS)
        if seconds == HOUR:
            return self._hour.statistics()
        assert seconds == DAY
        return self._day.statistics(self._tick, self._hour)

    def percentiles(self, name: str, wanted: Sequence[Percentile]) -> list[float]:
        """Percentiles of the same values as the 95th of the window; empty without data."""
        seconds = WINDOWS[name]
        if seconds <= MINUTE:
            values = self._values(self._tick, seconds // TICK_SECONDS)
        elif seconds == HOUR:
            values = self._hour.sorted_means()
        else:
            return self._day.percentiles(self._tick, self._hour, wanted)
        return [each.of(values) for each in wanted] if values else []

    def histories(self, second: int) -> dict[str, UsageHistory]:
        """The course over the windows that keep one. That of the minute ends with this second, the
        last with a value; the others with the last tick."""
        seconds = range(second - MINUTE + 1, second + 1)
        values = [known(self._minute[each % MINUTE]) for each in seconds]
        return {
            "1m": UsageHistory(second - MINUTE, 1, {"mean": values}),
            "1h": self._hour.history(self._tick),
            "1d": self._day.history(self._tick),
        }

    def _advance(self, tick: int) -> list[float]:
        """The values of a tick, sorted; ticks that were left out before it have no data."""
        if tick > self._tick + 1:
            self._drop(self._tick + 1, tick - 1)
        return self._values(tick, 1)

    def _put(self, tick: int, mean: float, peak: float, covered: float) -> None:
        self._tick = tick
        self._hour.put(tick, mean, peak, covered)
        self._day.put(tick, mean, peak, covered)

    def _drop(self, first: int, last: int) -> None:
        """Record that these ticks have no data."""
        # At most five ticks back: an older one shares its places in the ring of a minute with the
        # tick after the gap, whose values have been written already.
        for tick in range(max(first, last - MINUTE // TICK_SECONDS + 2), last + 1):
            for second in range(tick * TICK_SECONDS - TICK_SECONDS + 1, tick * TICK_SECONDS + 1):
                self.skip(second)
        if last - first < BLOCK_TICKS:
            for tick in range(first, last + 1):
                self._put(tick, UNKNOWN, UNKNOWN, 0.0)
        else:
            self._drop_many(first, last)

    def _drop_many(self, first: int, last: int) -> None:
        """The same for a long gap: a machine that was off for a week has 60,480 ticks to drop."""
        self._tick = last
        floats = self._floats
        fill(floats[MEANS:MAXIMA], first, last, UNKNOWN)
        fill(floats[MAXIMA:SUMS], first, last, UNKNOWN)
        fill(self._covered, first, last, 0)
        DayCodes(self._codes).drop(first, last)
        # The block in which the gap begins may have data from before it.
        first, last = (first + BLOCK_TICKS - 1) // BLOCK_TICKS, last // BLOCK_TICKS
        fill(floats[SUMS:WEIGHTS], first, last, 0.0)
        fill(floats[WEIGHTS:PEAKS], first, last, 0.0)
        fill(floats[PEAKS:], first, last, UNKNOWN)
        self._load()

    def _values(self, tick: int, ticks: int) -> list[float]:
        """The values of the last ticks, one or a whole minute of them, sorted."""
        if ticks * TICK_SECONDS == MINUTE:
            values = listed(self._minute)
        else:
            # Second 60 is at 0, so the last tick of a minute wraps around with its last second.
            begin = ((tick - 1) * TICK_SECONDS + 1) % MINUTE
            values = listed(self._minute[begin : begin + TICK_SECONDS - 1])
            values.append(self._minute[tick * TICK_SECONDS % MINUTE])
        values.sort()
        return values[bisect_left(values, 0.0) :] if values[0] < 0 else values

    def _short(self, ticks: int) -> Statistics | None:
        values = self._values(self._tick, ticks)
        if not values:
            return None
        means, covered = self._hour.last(self._tick, ticks)
        weight = sum(covered)
        if not weight:
            return None
        mean = sum(map(mul, means, covered)) / weight
        return Statistics(mean, values[-1], values[rank(len(values)) - 1])
