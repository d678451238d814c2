"""Histograms of the server's metrics."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final


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

    def weigh(self, value: float, weight: int) -> None:
        """Count a value as often as its weight, such as the time for which it held."""
        self._counts[bisect_left(self._bounds, value)] += weight
        self._sum += value * weight

    @property
    def count(self) -> int:
        return sum(self._counts)

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the lines of a metric with these labels."""
        total, comma = 0, "," if labels else ""
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}'
        within = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{within} {self._sum:.6f}"
        yield f"{name}_count{within} {total}"


MOST_SERIES: Final = 2_000
"""Combinations of labels of one metric; further ones are counted together."""

LabelValues = tuple[str, ...]


class LabelledMetric:
    """A counter or a histogram with labels."""

    __slots__ = ("_labels", "_series", "bounds")

    def __init__(self, *labels: str, bounds: Sequence[float] = ()) -> None:
        """A counter, or with `bounds` a histogram."""
        self._labels = labels
        self.bounds = bounds
        self._series: dict[LabelValues, MetricHistogram] = {}

    def observe(self, *values: str, amount: float = 1.0) -> None:
        """Count an event, or observe an amount."""
        if values not in self._series and len(self._series) >= MOST_SERIES:
            values = ("other",) * len(self._labels)
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = MetricHistogram(self.bounds)
        found.observe(amount)

    def histograms(self) -> Iterator[tuple[str, MetricHistogram]]:
        """Yield labels as text with their values, in order."""
        for values, histogram in sorted(self._series.items(), key=lambda each: each[0]):
            pairs = zip(self._labels, values, strict=True)
            yield ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs), histogram

    def totals(self) -> Iterator[tuple[str, float]]:
        """Yield labels as text with their counts."""
        return ((labels, each.count) for labels, each in self.histograms())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
