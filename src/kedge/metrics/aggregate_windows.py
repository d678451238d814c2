"""Statistics of groups of pods, from the rows of the pods: sums, bounds and distributions."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kedge.metrics.frame import index
from kedge.metrics.statistics import rank
from kedge.metrics.windows import DETAILS, RESOURCES, STATISTICS, Unit

MEANS_IN_95TH: Final = 20
"""The 95th percentile of amounts that are never negative is below 20 times their mean: more than
one in twenty of them reaches it."""

_SHARES: Final = {each.name for each in DETAILS if each.unit is Unit.SHARE}
"""Shares of several pods do not add up: the average is their mean, the largest their maximum."""

Amounts = dict[str, float]
"""Numbers by resource, in cores, bytes and the like; missing ones are left out."""


class WindowAggregate(NamedTuple):
    """One window of a group of pods."""

    total: dict[str, Amounts]
    """By statistic."""
    lower: dict[str, Amounts]
    """Lower bounds of max and 95th."""
    distribution: dict[str, Amounts]
    """min, 50th, 95th and max of the means."""


class Columns:
    """The rows of all pods of a group, column by column: at least one row, in the order of
    `index`."""

    def __init__(self, rows: Sequence[Sequence[float]]) -> None:
        self._columns: Sequence[Sequence[float]] = list(zip(*rows, strict=True))

    def column(self, window: str, statistic: str, resource: str) -> list[float]:
        """The known numbers of one column."""
        return [each for each in self._columns[index(window, statistic, resource)] if each >= 0]


def aggregate(columns: Columns, window: str) -> WindowAggregate:
    """Aggregate one window.

    The sum of the 95th percentiles is no bound: twenty pods that are busy in turn, each for a
    twenty-fifth of the time, have a 95th percentile of nothing each, and together one is always
    busy. The sum of the maxima bounds it, and so does a multiple of the mean.
    """
    made = WindowAggregate(
        {each: {} for each in STATISTICS},
        {each: {} for each in ("max", "95th")},
        {each: {} for each in ("min", "50th", "95th", "max")},
    )
    for resource in RESOURCES:
        is_share = resource in _SHARES
        means = sorted(columns.column(window, "mean", resource))
        peaks = columns.column(window, "max", resource)
        percentiles = columns.column(window, "95th", resource)
        if means:
            made.total["mean"][resource] = sum(means) / (len(means) if is_share else 1)
            made.distribution["min"][resource] = means[0]
            made.distribution["50th"][resource] = means[-(-len(means) // 2) - 1]
            made.distribution["95th"][resource] = means[rank(len(means)) - 1]
            made.distribution["max"][resource] = means[-1]
        if peaks:
            made.total["max"][resource] = max(peaks) if is_share else sum(peaks)
            made.lower["max"][resource] = max(peaks)
        if percentiles:
            most = max(percentiles) if is_share else _most_of_95th(means, peaks, percentiles)
            made.total["95th"][resource] = most
            made.lower["95th"][resource] = max(percentiles)
    return made


def _most_of_95th(means: list[float], peaks: list[float], percentiles: list[float]) -> float:
    """An upper bound of the 95th percentile of the sum; exact for a single pod."""
    if len(percentiles) == 1:
        return percentiles[0]
    bounds = [sum(peaks)] if len(peaks) == len(percentiles) else []
    if len(means) == len(percentiles):
        bounds.append(MEANS_IN_95TH * sum(means))
    # The day's percentile is the middle of a step and may exceed the exact maximum by a hair.
    return max(min(bounds, default=sum(percentiles)), max(percentiles))
