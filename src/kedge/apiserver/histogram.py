"""Histograms of the server's metrics."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class MetricHistogram:
    """Observed values, counted by upper bounds."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the lines of a metric with these labels."""
        total, comma = 0, "," if labels else ""
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}'
        within = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{within} {self._sum:.6f}"
        yield f"{name}_count{within} {total}"
