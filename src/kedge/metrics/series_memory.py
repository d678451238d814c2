"""Layout of the memory of a series: which part of it is where, how it is cleared and checked.

The memory belongs to the caller, so that it can be a part of a mapped file and outlive the process.
It has three parts: floats (means, maxima, sums), shorts (covered time) and the codes of the day.
"""

import sys
from array import array
from typing import Any, Final, NamedTuple

from kedge.metrics.scale import ABSENT
from kedge.metrics.windows import DAY, HOUR, MINUTE, TICK_SECONDS

UNKNOWN: Final = -1.0
"""Stands for a missing value; no measured value is negative."""
HOUR_TICKS: Final = HOUR // TICK_SECONDS
DAY_TICKS: Final = DAY // TICK_SECONDS
BLOCK_TICKS: Final = 30
"""Ticks that share one sum, one weight and one maximum for the window of a day: five minutes."""
BLOCKS: Final = DAY_TICKS // BLOCK_TICKS + 1
"""One more than a day has: the newest block is being filled while a part of the oldest still
counts."""

# Floats, in this order: for each tick of an hour its mean and its maximum; for each block of a day
# the sum of mean * covered seconds, the covered seconds, and the maximum.
MEANS: Final = 0
MAXIMA: Final = MEANS + HOUR_TICKS
SUMS: Final = MAXIMA + HOUR_TICKS
WEIGHTS: Final = SUMS + BLOCKS
PEAKS: Final = WEIGHTS + BLOCKS
_FLOATS: Final = PEAKS + BLOCKS
# Shorts: the covered milliseconds of each tick of an hour.
_CODES_AT: Final = 4 * _FLOATS + 2 * HOUR_TICKS
CODE_GROUP: Final = 4
"""Codes of a day that share five bytes."""
CODE_BYTES: Final = DAY_TICKS // CODE_GROUP * (CODE_GROUP + 1)
"""Bytes of all codes of a day."""

SIZE: Final = _CODES_AT + CODE_BYTES
"""Bytes of one series, apart from its values of the last minute: 17,868."""
GROUP_BYTES: Final = CODE_GROUP + 1
_HIGH_BITS: Final = tuple(
    bytes(each >> 2 * number & 3 for each in range(256)) for number in range(CODE_GROUP)
)
"""For each code of a group: its two bits in every value of the fifth byte."""
_LOW_AT: Final = 0 if sys.byteorder == "little" else 1
NO_HOUR: Final = array("f", [UNKNOWN] * 2 * HOUR_TICKS).tobytes()
"""The means and maxima of an hour without data."""
_PLAUSIBLE: Final = bytes([*range(0x5E), 0x80, 0xBF])
"""The highest bytes of floats from 0 to 2**61, of -0.0 and of numbers around -1."""


class SeriesMemory(NamedTuple):
    """The parts of the memory of a series."""

    floats: "memoryview[float]"
    covered: "memoryview[int]"
    codes: memoryview


def split(memory: memoryview) -> SeriesMemory:
    """The parts of the memory."""
    at = 4 * _FLOATS
    return SeriesMemory(
        memory[:at].cast("f"), memory[at:_CODES_AT].cast("H"), memory[_CODES_AT:SIZE]
    )


def clear(memory: memoryview, minute: "memoryview[float]") -> None:
    """Make the memory that of a series without data."""
    floats, *_ = split(memory)
    minute[:] = memoryview(array("f", [UNKNOWN]) * MINUTE)
    floats[:] = memoryview(array("f", [UNKNOWN]) * _FLOATS)
    floats[SUMS:PEAKS] = memoryview(array("f", [0.0]) * (PEAKS - SUMS))
    memory[4 * _FLOATS : SIZE] = bytes(SIZE - 4 * _FLOATS)


def is_plausible(memory: memoryview, minute: "memoryview[float]") -> bool:
    """Whether every number in the memory is one that a series can have written.

    Looks only at the highest byte of each float: NaN, infinity, negative numbers and huge ones
    are found by one call of `translate` for thousands of numbers, since an agent that starts
    checks every slot of its file before it measures anything. Codes have ten bits and thus always
    a meaning.
    """
    high = 0 if sys.byteorder == "big" else 1
    numbers = minute.tobytes() + memory[: 4 * _FLOATS]
    return not numbers[3 * high :: 4].translate(None, _PLAUSIBLE)


def fill(ring: "memoryview[Any]", first: int, last: int, value: float) -> None:
    """Write a value from one position of a ring to another, both included; positions only grow."""
    filled = array(ring.format, [value]) * len(ring)
    if last - first + 1 >= len(ring):
        ring[:] = memoryview(filled)
        return
    begin, end = first % len(ring), last % len(ring) + 1
    for part in [slice(begin, end)] if begin < end else [slice(begin, None), slice(0, end)]:
        ring[part] = memoryview(filled)[part]


def listed(numbers: "memoryview[float]") -> list[float]:
    """The numbers as a list: much faster than iterating; typeshed declares the wrong type."""
    return numbers.tolist()  # type: ignore[return-value]


def known(value: float) -> float | None:
    """The value; None instead of UNKNOWN."""
    return None if value < 0 else value


class DayCodes:
    """A ring of codes of ten bits, in memory of the caller, by the tick modulo DAY_TICKS.

    Four codes share five bytes: the low bytes of the four, then two more bits of each. Two bytes
    for each code would take 6.5 KB more per series, of 18. The five bytes are together, so that a
    tick touches one place, and a page that is lost with the power takes no other page's codes with
    it.
    """

    __slots__ = ("_memory",)

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory

    def __getitem__(self, tick: int) -> int:
        group, number = divmod(tick % DAY_TICKS, CODE_GROUP)
        at = group * GROUP_BYTES
        return self._memory[at + number] | (self._memory[at + CODE_GROUP] >> 2 * number & 3) << 8

    def put(self, tick: int, code: int) -> int:
        """Set the code of a tick; return that of a day before."""
        memory = self._memory
        group, number = divmod(tick % DAY_TICKS, CODE_GROUP)
        at, shift = group * GROUP_BYTES, 2 * number
        low, high = memory[at + number], memory[at + CODE_GROUP]
        memory[at + number] = code & 0xFF
        memory[at + CODE_GROUP] = high & ~(3 << shift) | code >> 8 << shift
        return low | (high >> shift & 3) << 8

    def is_empty(self) -> bool:
        """Whether all of them are ABSENT."""
        return not self._memory.tobytes().strip(b"\0")

    def all(self) -> "memoryview[int]":
        """All codes, by tick modulo DAY_TICKS: strides of the whole memory, because a loop over the
        codes takes a hundred times as long."""
        packed = self._memory.tobytes()
        high = packed[CODE_GROUP::GROUP_BYTES]
        unpacked = bytearray(2 * DAY_TICKS)
        for number, bits in enumerate(_HIGH_BITS):
            at = 2 * number
            unpacked[at + _LOW_AT :: 2 * CODE_GROUP] = packed[number::GROUP_BYTES]
            unpacked[at + 1 - _LOW_AT :: 2 * CODE_GROUP] = high.translate(bits)
        return memoryview(unpacked).cast("H")

    def drop(self, first: int, last: int) -> None:
        """Record that these ticks have no data, both included."""
        if last - first + 1 >= DAY_TICKS:
            self._memory[:] = bytes(CODE_BYTES)
            return
        tick = first
        while tick <= last:
            whole = tick % CODE_GROUP == 0 and tick % DAY_TICKS + CODE_GROUP <= DAY_TICKS
            if whole and tick + CODE_GROUP <= last + 1:
                at = tick % DAY_TICKS // CODE_GROUP * GROUP_BYTES
                self._memory[at : at + GROUP_BYTES] = bytes(GROUP_BYTES)
                tick += CODE_GROUP
            else:
                self.put(tick, ABSENT)
                tick += 1
