"""Layout of the memory of a series: which part of it is where, how it is cleared and checked.

The memory belongs to the caller, so that it can be a part of a mapped file and outlive the process.
It has three parts: floats (means, maxima, sums), shorts (covered time) and the codes of the day,
which `day_codes` describes.
"""

import sys
from array import array
from typing import Any, Final, NamedTuple

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
