"""How the seats of a priority level were used over time, for metrics and for lending."""

from math import sqrt
from typing import Final

from kedge.apiserver.histogram import MetricHistogram

DEMAND_RATIOS: Final = (0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6)
SEAT_RATIOS: Final = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
REQUEST_RATIOS: Final = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1)
_NANOSECONDS: Final = 1_000_000_000
"""Upstream counts the time in nanoseconds, in place of observations."""


class SeatUse:
    """Values that hold for a while. Each is counted for as long as it held."""

    def __init__(self) -> None:
        self.demand = MetricHistogram(DEMAND_RATIOS)
        self.seats = MetricHistogram(SEAT_RATIOS)
        self.executing = MetricHistogram(REQUEST_RATIOS)
        self.waiting = MetricHistogram(REQUEST_RATIOS)
        self._begin()

    def _begin(self) -> None:
        self._seconds = self._sum = self._squares = 0.0

    def wanted(self, seats: int, nominal: int, seconds: float) -> None:
        """Record how many seats were wanted for some time, those in use included."""
        self.demand.weigh(seats / max(nominal, 1), round(seconds * _NANOSECONDS))
        self._seconds += seconds
        self._sum += seats * seconds
        self._squares += seats * seats * seconds

    def used(self, seats: int, requests: int, limit: int, seconds: float) -> None:
        """Record how many seats were in use, and by how many requests."""
        weight = round(seconds * _NANOSECONDS)
        self.seats.weigh(seats / max(limit, 1), weight)
        self.executing.weigh(requests / max(limit, 1), weight)

    def queued(self, requests: int, places: int, seconds: float) -> None:
        """Record how many requests waited, of those that could."""
        self.waiting.weigh(requests / max(places, 1), round(seconds * _NANOSECONDS))

    def settle(self) -> tuple[float, float]:
        """Return mean and standard deviation of the wanted seats since the last call."""
        if not self._seconds:
            return 0.0, 0.0
        mean = self._sum / self._seconds
        variance = self._squares / self._seconds - mean * mean
        self._begin()
        return mean, sqrt(max(0.0, variance))
