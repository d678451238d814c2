"""Random choice from a range in two bands: users take numbers from the lower one by name, so the
server draws from the upper one first (upstream's KEP-3070)."""

from collections.abc import Callable
from random import Random
from typing import Final

_SMALLEST: Final = 16
"""The smallest lower band; a range of no more than this has only one band."""


def lower_band(size: int, *, part: int, most: int) -> int:
    """Return the size of the lower band: a part of the range, within limits."""
    if size <= _SMALLEST:
        return 0
    return min(max(_SMALLEST, size // part), most)


def draw(count: int, lower: int, is_taken: Callable[[int], bool], random: Random) -> int | None:
    """Return a free index below `count`: in the upper band if one is free there, else in the
    lower band. None if all are taken.

    The search begins at random and goes up from there, as upstream's, so that it finds the last
    free index too.
    """
    for first, size in ((lower, count - lower), (0, lower)):
        begin = random.randrange(size) if size > 0 else 0
        for step in range(size):
            index = first + (begin + step) % size
            if not is_taken(index):
                return index
    return None
