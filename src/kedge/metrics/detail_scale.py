"""Codes of details: values from a millionth to a quadrillion in two bytes, within 0.04 %.

Equal ratios between codes, for the reason given in `scale`. The memory and the frames of a detail
have codes, not numbers: there are many details and most of them are 0 most of the time.
"""

import math
from typing import Final

NOTHING: Final = 0
"""The code of 0, so that cleared memory has the value 0."""
ABSENT: Final = 0xFFFF
"""The code of a missing value."""
_LARGEST: Final = ABSENT - 1
_LEAST: Final = 2.0**-20
_MOST: Final = 2.0**50
_STEP: Final = math.log(_MOST / _LEAST) / (_LARGEST - 1)
"""The logarithm of the ratio between two codes."""
_UPPER: Final = tuple(_LEAST * math.exp(each * 256 * _STEP) for each in range(257))
_LOWER: Final = tuple(math.exp((each - 0.5) * _STEP) for each in range(256))
"""Values are products of one of each: faster than an exponential function for each value."""


def code(value: float) -> int:
    """The code of a value; ABSENT for a negative one or NaN."""
    if value < _LEAST:
        return ABSENT if value < 0 else NOTHING
    if not value < _MOST:
        return ABSENT if math.isnan(value) else _LARGEST
    return 1 + int(math.log(value / _LEAST) / _STEP)


def value(coded: int) -> float:
    """The middle of the step with this code; not for ABSENT."""
    return _UPPER[coded >> 8] * _LOWER[coded & 255] if coded else 0.0
