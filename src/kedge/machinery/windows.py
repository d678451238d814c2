"""Rolling windows of 10 s, 1 m, 1 h and 1 d over one series: mean, max and 95th percentile.

All that a series has to remember lies in a piece of memory that the caller gives, so that it can be
a piece of a mapped file and outlive the process. What can be computed from it is not in it.
"""

import math
from array import array
from bisect import bisect_left, insort
from collections import Counter
from typing import Final, Literal, NamedTuple

Name = Literal["10s", "1m", "1h", "1d"]

TICK: Final = 10
"""Seconds of the shortest window, and between two changes of the others."""
WINDOWS: Final[dict[Name, int]] = {"10s": 1, "1m": 6, "1h": 360, "1d": 8640}
"""How many ticks each window holds."""

_SECONDS: Final = 60
_HOUR: Final = 360
_DAY: Final = 8640
_BLOCK: Final = 30
"""Ticks that are remembered together for the mean and the maximum of a day."""
_BLOCKS: Final = _DAY // _BLOCK + 1
_CODES: Final = 1024
_ABSENT: Final = 0
_NOTHING: Final = 1
"""The code of what is too small to tell from zero."""
_UNKNOWN: Final = -1.0
"""In the place of a value of which nothing is known; no value is negative."""

_FLOATS: Final = (_SECONDS, _HOUR, _HOUR, _HOUR, _BLOCKS, _BLOCKS, _BLOCKS)
"""Seconds; means and maxima of ticks and how much of them is known; the same of blocks, summed."""
SIZE: Final = 4 * sum(_FLOATS) + 2 * _DAY
"""Bytes of one series."""


class Scale:
    """The values that can be told apart over a day: from `least` on, in steps of equal ratio."""

    __slots__ = ("_least", "_step")

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._step = math.log(most / least) / (_CODES - 2)
        """The logarithm of the ratio between two steps."""

    def code(self, value: float) -> int:
        if value < self._least:
            return _NOTHING
        return min(2 + int(math.log(value / self._least) / self._step), _CODES - 1)

    def value(self, code: int) -> float:
        """The middle of what has this code."""
        return 0.0 if code <= _NOTHING else self._least * math.exp((code - 1.5) * self._step)


CPU: Final = Scale(0.0001, 256.0)
"""Cores."""
MEMORY: Final = Scale(2.0**16, 2.0**42)
"""Bytes."""


class Statistics(NamedTuple):
    """What a window says."""

    mean: float
    max: float
    percentile: float
    """The 95th, by nearest rank."""


class _Total:
    """A weighted sum and a maximum that grow."""

    __slots__ = ("peak", "total", "weight")

    def __init__(self) -> None:
        self.total = 0.0
        self.weight = 0.0
        self.peak = _UNKNOWN

    def add(self, total: float, weight: float, peak: float) -> None:
        self.total += total
        self.weight += weight
        self.peak = max(self.peak, peak)


class Series:
    """The windows of one quantity. Time is counted in whole seconds and ticks since the epoch; a
    tick ends at its number times ten."""

    def __init__(self, memory: memoryview, scale: Scale, tick: int) -> None:
        """Go on with what the memory holds, which was last told of this tick."""
        parts = _parted(memory)
        self._seconds, self._means, self._maxima, self._covered = parts.floats[:4]
        self._sums, self._weights, self._peaks = parts.floats[4:]
        self._codes = parts.codes
        self._scale = scale
        self._tick = tick
        self._hour = array("f", sorted(mean for mean in self._means if mean >= 0))
        self._histogram = array("H", bytes(2 * _CODES))
        for code, count in Counter(self._codes).items():
            self._histogram[code] = count if code else 0
        self._present = sum(self._histogram)
        self._at = _NOTHING
        self._below = 0
        self._settle()
        self._closed = self._closed_blocks()
        self._running = self._of_ticks(_HOUR)

    @staticmethod
    def clear(memory: memoryview) -> None:
        """Make the memory that of a series of which nothing is known."""
        parts = _parted(memory)
        for part in parts.floats:
            part[:] = memoryview(array("f", [_UNKNOWN] * len(part)))
        parts.codes[:] = memoryview(array("H", bytes(2 * _DAY)))

    def add(self, second: int, value: float) -> None:
        """The value over the second that ends then; of a later one than any before."""
        self._seconds[second % _SECONDS] = value

    def skip(self, second: int) -> None:
        """Nothing is known of that second."""
        self._seconds[second % _SECONDS] = _UNKNOWN

    def close(self, tick: int, mean: float, covered: float) -> None:
        """A tick has ended: its mean over the time of which something is known, in seconds.

        Ticks that were left out count as times of which nothing is known.
        """
        for missed in range(max(self._tick + 1, tick - _DAY), tick):
            self._put(missed, _UNKNOWN, _UNKNOWN, 0.0)
            if missed > tick - _SECONDS // TICK:
                for second in range(missed * TICK - TICK + 1, missed * TICK + 1):
                    self.skip(second)
        values = self._ended(tick, 1)
        if covered > 0 and values:
            self._put(tick, mean, values[-1], covered)
        else:
            self._put(tick, _UNKNOWN, _UNKNOWN, 0.0)

    def window(self, name: Name) -> Statistics | None:
        """What the window that ends with the last tick says; None if nothing is known of it."""
        match name:
            case "10s":
                return self._short(1)
            case "1m":
                return self._short(6)
            case "1h":
                return self._of_hour()
            case "1d":
                return self._of_day()

    def _ended(self, tick: int, ticks: int) -> list[float]:
        """What was added in the last few ticks, sorted."""
        if ticks * TICK == _SECONDS:
            values = sorted(self._seconds)
        else:
            # A tick never crosses the end of the ring, since the ring holds whole ticks.
            begin = ((tick - 1) * TICK + 1) % _SECONDS
            values = sorted(
                [*self._seconds[begin : begin + TICK - 1], self._seconds[tick * TICK % _SECONDS]]
            )
        return values[bisect_left(values, 0.0) :]

    def _put(self, tick: int, mean: float, peak: float, covered: float) -> None:
        self._tick = tick
        self._put_hour(tick % _HOUR, mean, peak, covered)
        self._put_block(tick, mean, peak, covered)
        self._put_code(tick % _DAY, _ABSENT if mean < 0 else self._scale.code(mean))

    def _put_hour(self, slot: int, mean: float, peak: float, covered: float) -> None:
        old = self._means[slot]
        if old >= 0:
            del self._hour[bisect_left(self._hour, old)]
            self._running.add(-old * self._covered[slot], -self._covered[slot], _UNKNOWN)
        self._means[slot] = mean
        self._maxima[slot] = peak
        self._covered[slot] = covered
        if mean >= 0:
            # As the memory rounded it, so that it is found again.
            kept = self._means[slot]
            insort(self._hour, kept)
            self._running.add(kept * self._covered[slot], self._covered[slot], peak)

    def _put_block(self, tick: int, mean: float, peak: float, covered: float) -> None:
        slot = tick // _BLOCK % _BLOCKS
        if tick % _BLOCK == 0 or self._weights[slot] < 0:
            self._sums[slot], self._weights[slot], self._peaks[slot] = 0.0, 0.0, _UNKNOWN
            self._closed = self._closed_blocks()
            # Sums that only ever had something added and taken away would drift.
            self._running = self._of_ticks(_HOUR)
        if covered:
            self._sums[slot] += mean * covered
            self._weights[slot] += covered
            self._peaks[slot] = max(self._peaks[slot], peak)

    def _put_code(self, slot: int, code: int) -> None:
        old = self._codes[slot]
        self._codes[slot] = code
        if old != _ABSENT:
            self._histogram[old] -= 1
            self._present -= 1
            self._below -= old < self._at
        if code != _ABSENT:
            self._histogram[code] += 1
            self._present += 1
            self._below += code < self._at
        self._settle()

    def _settle(self) -> None:
        """Move to the code that has the 95th: few steps, since few values come and go."""
        rank = _rank(self._present)
        while self._below >= rank and self._at > _NOTHING:
            self._at -= 1
            self._below -= self._histogram[self._at]
        while self._below + self._histogram[self._at] < rank and self._at < _CODES - 1:
            self._below += self._histogram[self._at]
            self._at += 1

    def _short(self, ticks: int) -> Statistics | None:
        values = self._ended(self._tick, ticks)
        known = self._of_ticks(ticks)
        if not values or not known.weight:
            return None
        mean = known.total / known.weight
        return Statistics(mean, values[-1], values[_rank(len(values)) - 1])

    def _of_hour(self) -> Statistics | None:
        if not self._hour:
            return None
        mean = self._running.total / self._running.weight
        return Statistics(mean, max(self._maxima), self._hour[_rank(len(self._hour)) - 1])

    def _of_ticks(self, ticks: int) -> _Total:
        found = _Total()
        for back in range(ticks):
            slot = (self._tick - back) % _HOUR
            mean, covered = self._means[slot], self._covered[slot]
            if mean >= 0:
                found.add(mean * covered, covered, self._maxima[slot])
        return found

    def _of_day(self) -> Statistics | None:
        newest = self._tick // _BLOCK
        found = _Total()
        found.add(self._closed.total, self._closed.weight, self._closed.peak)
        # Of the oldest block only a part is still within the day.
        self._count(found, newest - _BLOCKS + 1, (_BLOCK - 1 - self._tick % _BLOCK) / _BLOCK)
        self._count(found, newest, 1.0)
        if not found.weight or not self._present:
            return None
        return Statistics(found.total / found.weight, found.peak, self._scale.value(self._at))

    def _closed_blocks(self) -> _Total:
        """All blocks of the day but the newest and the oldest, which change."""
        newest = self._tick // _BLOCK
        found = _Total()
        for block in range(newest - _BLOCKS + 2, newest):
            self._count(found, block, 1.0)
        return found

    def _count(self, found: _Total, block: int, part: float) -> None:
        slot = block % _BLOCKS
        if self._weights[slot] > 0 and part > 0:
            found.add(self._sums[slot] * part, self._weights[slot] * part, self._peaks[slot])


def _rank(count: int) -> int:
    """Which of so many sorted values is the 95th, counted from one."""
    return -(-19 * count // 20)


class _Parts(NamedTuple):
    floats: "list[memoryview[float]]"
    codes: "memoryview[int]"


def _parted(memory: memoryview) -> _Parts:
    floats = []
    at = 0
    for count in _FLOATS:
        floats.append(memory[at : at + 4 * count].cast("f"))
        at += 4 * count
    return _Parts(floats, memory[at : at + 2 * _DAY].cast("H"))
