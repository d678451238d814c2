"""LogScale: codes for values in steps of equal ratio, two bytes for each tick of a day."""

import math
from typing import Final

CODES: Final = 1024
ABSENT: Final = 0
"""The code of a tick without data."""
ZERO: Final = 1
"""The code of all values below the scale."""


class LogScale:
    """Values from `least` to `most` in CODES - 2 steps of equal ratio.

    A code stands for the middle of its step, so the relative error is at most half a step:
    0.73 % for CPU and 0.89 % for MEMORY. Equal ratios rather than equal differences, because
    idle containers and busy ones differ by a factor of a million and both want their percentile.
    """

    __slots__ = ("_least", "_step")

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._step = math.log(most / least) / (CODES - 2)
        """The logarithm of the ratio between two steps."""

    def code(self, value: float) -> int:
        """The code of a value; values above the scale share the last one."""
        if value < self._least:
            return ZERO
        return min(2 + int(math.log(value / self._least) / self._step), CODES - 1)

    def value(self, code: int) -> float:
        """The middle of the step with this code."""
        return 0.0 if code <= ZERO else self._least * math.exp((code - 1.5) * self._step)


CPU: Final = LogScale(0.0001, 256.0)
"""Cores."""
MEMORY: Final = LogScale(2.0**16, 2.0**42)
"""Bytes."""
