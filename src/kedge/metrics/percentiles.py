"""Percentiles that a request asks for beside the 95th: `?percentiles=50,99`."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import Final, NamedTuple

PARAMETER: Final = "percentiles"
MOST: Final = 8
"""Percentiles of one request."""
_MOST_PLACES: Final = 2
_LONGEST: Final = 80
"""Characters of the parameter."""


class Percentile(NamedTuple):
    """One percentile by nearest rank."""

    percent: Decimal
    """Above 0, at most 100."""

    @property
    def key(self) -> str:
        """The key in a document, always with "th", so that clients can derive it: `99.9th`."""
        return f"{self.percent.normalize():f}th"

    def rank(self, count: int) -> int:
        """The position among so many sorted values, counted from one."""
        return max(1, ceil(self.percent * count / 100))

    def of(self, ordered: Sequence[float]) -> float:
        """The percentile of sorted values; there is at least one."""
        return ordered[self.rank(len(ordered)) - 1]


def parse(text: str) -> tuple[Percentile, ...]:
    """Parse the parameter; raises ValueError."""
    parts = text.split(",") if len(text) <= _LONGEST else []
    if not 0 < len(parts) <= MOST:
        raise ValueError(f"{PARAMETER} must name 1 to {MOST} percentiles, separated by commas")
    found = [_one(part) for part in parts]
    if len({each.percent for each in found}) < len(found):
        raise ValueError(f"{PARAMETER} must not name one percentile twice")
    return tuple(found)


def _one(text: str) -> Percentile:
    plain = text.replace(".", "", 1)
    try:
        percent = Decimal(text) if plain.isascii() and plain.isdecimal() else Decimal(0)
    except InvalidOperation:
        percent = Decimal(0)
    places = len(text.partition(".")[2])
    if not 0 < percent <= 100 or places > _MOST_PLACES:
        raise ValueError(
            f'percentile "{text}" must be a number above 0 and up to 100, with up to two decimals'
        )
    return Percentile(percent)
