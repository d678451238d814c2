"""Rolling windows of 10 s, 1 m, 1 h and 1 d over one series: mean, max and 95th percentile.

All that a series has to remember lies in a piece of memory that the caller gives, so that it can be
a piece of a mapped file and outlive the process. What can be computed from it is not in it.
"""

import math
import sys
from array import array
from bisect import bisect_left, insort
from collections import Counter
from operator import mul
from typing import Any, Final, Literal, NamedTuple

Name = Literal["10s", "1m", "1h", "1d"]

TICK: Final = 10
"""Seconds of the shortest window, and between two changes of the others."""
WINDOWS: Final[dict[Name, int]] = {"10s": 1, "1m": 6, "1h": 360, "1d": 8640}
"""How many ticks each window holds."""

MINUTE: Final = 60
"""Seconds."""
_HOUR: Final = 360
_DAY: Final = 8640
_BLOCK: Final = 30
"""Ticks that are remembered together for the mean and the maximum of a day."""
_BLOCKS: Final = _DAY // _BLOCK + 1
_SPARE: Final = 2
"""How many times as many values are kept sorted as are needed."""
_CODES: Final = 1024
_ABSENT: Final = 0
_NOTHING: Final = 1
"""The code of what is too small to tell from zero."""
_UNKNOWN: Final = -1.0
"""In the place of a value of which nothing is known; no value is negative."""

_MEANS: Final = 0
_MAXIMA: Final = _MEANS + _HOUR
_SUMS: Final = _MAXIMA + _HOUR
_WEIGHTS: Final = _SUMS + _BLOCKS
_PEAKS: Final = _WEIGHTS + _BLOCKS
_FLOATS: Final = _PEAKS + _BLOCKS
"""Where in the memory begin: means and maxima of ticks; sums, how many seconds of them
are known, and maxima, of blocks."""
_COVERED: Final = _DAY
_SHORTS: Final = _COVERED + _HOUR
"""After the codes of ticks: how many milliseconds of the ticks of an hour are known."""
_NO_MEANS: Final = array("f", [_UNKNOWN] * _HOUR).tobytes()
"""Those of an hour of which nothing is known."""
_POSSIBLE: Final = bytes([*range(0x5E), 0x80, 0xBF])
"""The highest byte of numbers from 0 to 2**61, of -0 and of those around -1."""
SIZE: Final = 4 * _FLOATS + 2 * _SHORTS
"""Bytes of one series, beside the values of its last minute."""


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

    __slots__ = (
        "_at",
        "_below",
        "_closed",
        "_floats",
        "_histogram",
        "_minute",
        "_present",
        "_running",
        "_scale",
        "_shorts",
        "_tick",
        "_ticks",
        "_top",
    )

    def __init__(
        self, memory: memoryview, minute: "memoryview[float]", scale: Scale, tick: int
    ) -> None:
        """Go on with what the memory holds, which was last told of this tick. A minute has the
        values of its seconds, each where its second is modulo 60; others may write them too."""
        self._floats, self._shorts = _parted(memory)
        self._minute = minute
        self._scale = scale
        self._tick = tick
        self._derive()

    def _derive(self) -> None:
        """Compute what is not in the memory."""
        self._histogram = array("H", bytes(2 * _CODES))
        """How many ticks of a day have each code."""
        self._present = 0
        """Of how many ticks of a day the mean is known."""
        self._ticks = 0
        """Of how many ticks of an hour it is."""
        self._top = array("f")
        """The largest means of an hour, sorted: at least those from the 95th on."""
        self._at, self._below = _NOTHING, 0
        self._closed, self._running = _Total(), _Total()
        # A pod that starts has no time for what only finds out that nothing is known of it.
        means = self._floats[_MEANS:_MAXIMA].tobytes()
        if means != _NO_MEANS or self._shorts.tobytes().strip(b"\0"):
            self._derive_known()

    def _derive_known(self) -> None:
        self._forget_torn()
        means = self._means()
        self._ticks = len(means)
        self._top = array("f", means)
        for code, count in Counter(self._shorts[:_DAY]).items():
            self._histogram[code] = count if code else 0
        self._present = sum(self._histogram)
        self._settle()
        self._closed = self._closed_blocks()
        self._running = self._whole_hour()

    def _forget_torn(self) -> None:
        """Know nothing of ticks of which not all is there: a machine that loses its power has
        written some pages of the memory and not others."""
        floats, shorts = self._floats, self._shorts
        hour = zip(
            _listed(floats[_MEANS:_MAXIMA]),
            _listed(floats[_MAXIMA:_SUMS]),
            shorts[_COVERED:].tolist(),
            strict=True,
        )
        for slot, (mean, peak, covered) in enumerate(hour):
            if not (mean < 0) == (peak < 0) == (not covered):
                floats[_MEANS + slot] = floats[_MAXIMA + slot] = _UNKNOWN
                shorts[_COVERED + slot] = 0

    @staticmethod
    def clear(memory: memoryview, minute: "memoryview[float]") -> None:
        """Make the memory that of a series of which nothing is known."""
        floats, shorts = _parted(memory)
        minute[:] = memoryview(array("f", [_UNKNOWN]) * MINUTE)
        floats[:] = memoryview(array("f", [_UNKNOWN]) * _FLOATS)
        floats[_SUMS:_PEAKS] = memoryview(array("f", [0.0]) * (_PEAKS - _SUMS))
        shorts[:] = memoryview(array("H", bytes(2 * _SHORTS)))

    @staticmethod
    def sound(memory: memoryview, minute: "memoryview[float]") -> bool:
        """Whether a series may have left the memory like this."""
        high = 0 if sys.byteorder == "big" else 1
        floats, shorts = memory[: 4 * _FLOATS], memory[4 * _FLOATS : 4 * _FLOATS + 2 * _DAY]
        numbers = minute.tobytes() + floats
        wrong = numbers[3 * high :: 4].translate(None, _POSSIBLE)
        return not wrong and max(bytes(shorts[high::2])) < _CODES >> 8

    @property
    def tick(self) -> int:
        """The last that was closed."""
        return self._tick

    def add(self, second: int, value: float) -> None:
        """The value over the second that ends then, of a later one than any before; a negative one
        if nothing is known of it."""
        self._minute[second % MINUTE] = value

    def skip(self, second: int) -> None:
        """The same as to add a negative value."""
        self._minute[second % MINUTE] = _UNKNOWN

    def close(self, tick: int, mean: float, covered: float) -> None:
        """A tick has ended: its mean over the time of which something is known, in seconds.

        Ticks that were left out count as times of which nothing is known.
        """
        values = self._come_to(tick)
        if covered > 0 and values:
            self._put(tick, mean, values[-1], covered)
        else:
            self._put(tick, _UNKNOWN, _UNKNOWN, 0.0)

    def close_even(self, tick: int) -> None:
        """The same, for values that stand for a second each."""
        values = self._come_to(tick)
        if values:
            count = len(values)
            self._put(tick, sum(values) / count, values[-1], count)
        else:
            self._put(tick, _UNKNOWN, _UNKNOWN, 0.0)

    def _come_to(self, tick: int) -> list[float]:
        """Whatever was added in a tick, sorted; nothing is known of those that were left out."""
        if tick > self._tick + 1:
            self._forget(self._tick + 1, tick - 1)
        return self._ended(tick, 1)

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

    def _forget(self, first: int, last: int) -> None:
        """Nothing is known of these ticks."""
        # Those before them have the places of the tick that follows, of which much may be known.
        for tick in range(max(first, last - MINUTE // TICK + 2), last + 1):
            for second in range(tick * TICK - TICK + 1, tick * TICK + 1):
                self.skip(second)
        if last - first < _BLOCK:
            for tick in range(first, last + 1):
                self._put(tick, _UNKNOWN, _UNKNOWN, 0.0)
            return
        self._tick = last
        floats, shorts = self._floats, self._shorts
        _fill(floats[_MEANS:_MAXIMA], first, last, _UNKNOWN)
        _fill(floats[_MAXIMA:_SUMS], first, last, _UNKNOWN)
        _fill(shorts[_COVERED:], first, last, 0)
        _fill(shorts[:_DAY], first, last, _ABSENT)
        # The block in which the gap begins may have something in it already.
        first, last = (first + _BLOCK - 1) // _BLOCK, last // _BLOCK
        _fill(floats[_SUMS:_WEIGHTS], first, last, 0.0)
        _fill(floats[_WEIGHTS:_PEAKS], first, last, 0.0)
        _fill(floats[_PEAKS:], first, last, _UNKNOWN)
        self._derive()

    def _ended(self, tick: int, ticks: int) -> list[float]:
        """What was added in the last few ticks, sorted."""
        if ticks * TICK == MINUTE:
            values = _listed(self._minute)
        else:
            # A tick never crosses the end of the ring but with its last second.
            begin = ((tick - 1) * TICK + 1) % MINUTE
            values = _listed(self._minute[begin : begin + TICK - 1])
            values.append(self._minute[tick * TICK % MINUTE])
        values.sort()
        return values[bisect_left(values, 0.0) :] if values[0] < 0 else values

    def _put(self, tick: int, mean: float, peak: float, covered: float) -> None:
        self._tick = tick
        self._put_hour(tick % _HOUR, mean, peak, covered)
        self._put_block(tick, mean, peak, covered)
        self._put_code(tick % _DAY, _ABSENT if mean < 0 else self._scale.code(mean))

    def _put_hour(self, slot: int, mean: float, peak: float, covered: float) -> None:
        floats, running = self._floats, self._running
        weight = self._shorts[_COVERED + slot]
        old, old_peak = floats[_MEANS + slot], floats[_MAXIMA + slot]
        if old >= 0:
            self._ticks -= 1
            if old >= self._top[0]:
                del self._top[bisect_left(self._top, old)]
            running.add(-old * weight, -weight, _UNKNOWN)
        floats[_MEANS + slot] = mean
        floats[_MAXIMA + slot] = peak
        self._shorts[_COVERED + slot] = weight = min(round(covered * 1000), 0xFFFF)
        if mean >= 0:
            # As the memory rounded it, so that it is found again.
            kept = floats[_MEANS + slot]
            self._ticks += 1
            if not self._top or kept >= self._top[0]:
                insort(self._top, kept)
            running.add(kept * weight, weight, floats[_MAXIMA + slot])
        self._trim()
        if old_peak >= running.peak > floats[_MAXIMA + slot]:
            running.peak = max(_listed(floats[_MAXIMA:_SUMS]))

    def _means(self) -> list[float]:
        """Those of the ticks of an hour that are known, sorted."""
        return sorted(mean for mean in _listed(self._floats[_MEANS:_MAXIMA]) if mean >= 0)

    def _trim(self) -> None:
        """Keep enough of the largest means, and not too many."""
        needed = self._ticks - _rank(self._ticks) + 1
        if len(self._top) < min(needed, self._ticks):
            self._top = array("f", self._means()[-_SPARE * needed :])
        elif len(self._top) > _SPARE * _SPARE * needed:
            self._top = self._top[-_SPARE * needed :]

    def _put_block(self, tick: int, mean: float, peak: float, covered: float) -> None:
        floats, slot = self._floats, tick // _BLOCK % _BLOCKS
        if tick % _BLOCK == 0:
            floats[_SUMS + slot], floats[_WEIGHTS + slot] = 0.0, 0.0
            floats[_PEAKS + slot] = _UNKNOWN
            self._closed = self._closed_blocks()
            if tick % _HOUR == 0:
                # Sums that only ever had something added and taken away would drift.
                self._running = self._whole_hour()
        if covered:
            floats[_SUMS + slot] += mean * covered
            floats[_WEIGHTS + slot] += covered
            floats[_PEAKS + slot] = max(floats[_PEAKS + slot], peak)

    def _put_code(self, slot: int, code: int) -> None:
        old = self._shorts[slot]
        self._shorts[slot] = code
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
        if not values:
            return None
        means, covered = self._last(ticks)
        weight = sum(covered)
        if not weight:
            return None
        total = sum(map(mul, means, covered))
        return Statistics(total / weight, values[-1], values[_rank(len(values)) - 1])

    def _last(self, ticks: int) -> tuple[list[float], list[int]]:
        """The means of the last few ticks, and how much of each is known, in any order."""
        end = self._tick % _HOUR + 1
        begin = max(end - ticks, 0)
        means = _listed(self._floats[_MEANS + begin : _MEANS + end])
        covered = self._shorts[_COVERED + begin : _COVERED + end].tolist()
        if end < ticks:
            # They begin before the end of the ring.
            begin = _HOUR + end - ticks
            means += _listed(self._floats[_MEANS + begin : _MAXIMA])
            covered += self._shorts[_COVERED + begin :].tolist()
        return means, covered

    def _of_hour(self) -> Statistics | None:
        if not self._ticks:
            return None
        running = self._running
        return Statistics(running.total / running.weight, running.peak, self._of_means())

    def _of_means(self) -> float:
        return self._top[_rank(self._ticks) - 1 - self._ticks]

    def _whole_hour(self) -> _Total:
        found = _Total()
        floats = self._floats
        for mean, weight, peak in zip(
            floats[_MEANS:_MAXIMA], self._shorts[_COVERED:], floats[_MAXIMA:_SUMS], strict=True
        ):
            if weight:
                found.total += mean * weight
                found.weight += weight
                found.peak = max(found.peak, peak)
        return found

    def _of_day(self) -> Statistics | None:
        floats, closed, tick = self._floats, self._closed, self._tick
        newest = tick // _BLOCK % _BLOCKS
        oldest = (newest + 1) % _BLOCKS
        # Of the oldest block only a part is still within the day.
        part = (_BLOCK - 1 - tick % _BLOCK) / _BLOCK
        total = closed.total + floats[_SUMS + newest] + floats[_SUMS + oldest] * part
        weight = closed.weight + floats[_WEIGHTS + newest] + floats[_WEIGHTS + oldest] * part
        if not weight or not self._present:
            return None
        peaks = (floats[_PEAKS + newest], floats[_PEAKS + oldest] if part else 0.0)
        # The hour has its own, which may be all that was written before a loss of power.
        peak = max(closed.peak, self._running.peak, *peaks)
        if self._present == self._ticks:
            # All that is known is of this hour, of which every value is kept.
            percentile = self._of_means()
        else:
            percentile = min(self._scale.value(self._at), peak)
        return Statistics(min(total / weight, peak), peak, percentile)

    def _closed_blocks(self) -> _Total:
        """All blocks of the day but the newest and the oldest, which change."""
        newest = self._tick // _BLOCK % _BLOCKS
        oldest = (newest + 1) % _BLOCKS
        sums, weights, peaks = (
            array("f", self._floats[at : at + _BLOCKS]) for at in (_SUMS, _WEIGHTS, _PEAKS)
        )
        for slot in (newest, oldest):
            sums[slot], weights[slot], peaks[slot] = 0.0, 0.0, _UNKNOWN
        found = _Total()
        found.add(sum(sums), sum(weights), max(peaks))
        return found


def _fill(ring: "memoryview[Any]", first: int, last: int, value: float) -> None:
    """Write a value from one place of a ring to another, both included."""
    filled = array(ring.format, [value]) * len(ring)
    if last - first + 1 >= len(ring):
        ring[:] = memoryview(filled)
        return
    begin, end = first % len(ring), last % len(ring) + 1
    for part in [slice(begin, end)] if begin < end else [slice(begin, None), slice(0, end)]:
        ring[part] = memoryview(filled)[part]


def _rank(count: int) -> int:
    """Which of so many sorted values is the 95th, counted from one."""
    return -(-19 * count // 20)


def _listed(numbers: "memoryview[float]") -> list[float]:
    # Much faster than to go through them one by one; what types say of it is wrong.
    return numbers.tolist()  # type: ignore[return-value]


def _parted(memory: memoryview) -> "tuple[memoryview[float], memoryview[int]]":
    at = 4 * _FLOATS
    return memory[:at].cast("f"), memory[at : at + 2 * _SHORTS].cast("H")
