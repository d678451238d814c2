"""Statistics of one window, and the arithmetic that all windows share."""

from typing import NamedTuple

from kedge.metrics.series_memory import UNKNOWN


class Statistics(NamedTuple):
    """The numbers of one window, in the order of `windows.STATISTICS`."""

    mean: float
    max: float
    percentile: float
    """The 95th, by nearest rank."""


class Total:
    """A weighted sum and a maximum that grow."""

    __slots__ = ("peak", "sum", "weight")

    def __init__(self) -> None:
        self.sum = 0.0
        self.weight = 0.0
        self.peak = UNKNOWN

    def add(self, sum_: float, weight: float, peak: float) -> None:
        self.sum += sum_
        self.weight += weight
        self.peak = max(self.peak, peak)


def rank(count: int) -> int:
    """The position of the 95th among so many sorted values, counted from one: ceil(0.95 count)."""
    return -(-19 * count // 20)
