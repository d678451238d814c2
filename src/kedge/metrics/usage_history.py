"""UsageHistory: the course of a quantity over a window, from the data that its statistics use.

A node keeps a day: each second of the last minute, each ten seconds of the last hour, each five
minutes of the last day. Nothing older exists, and nothing in between is made up: a point without
data is None.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from kedge.machinery.durations import format_time

PARAMETER: Final = "history"
"""The parameter of a get that asks for it."""

Points = Sequence[float | None]


class UsageHistory(NamedTuple):
    """Points at equal distances, the oldest first."""

    start: int
    """The second since the epoch at which the first point begins."""
    step: int
    """Seconds of each point."""
    values: Mapping[str, Points]
    """By statistic: mean, max and, of the day, the 95th percentile of ten-second means."""


def document(histories: Mapping[str, Mapping[str, UsageHistory]]) -> dict[str, Any]:
    """Return histories by window and resource, as they are served. Amounts are numbers, in cores
    and bytes: thousands of quantities would take three times as many characters."""
    served: dict[str, Any] = {}
    for window, by_resource in histories.items():
        for resource, history in by_resource.items():
            start = format_time(datetime.fromtimestamp(history.start, UTC))
            shown = served.setdefault(window, {"starttime": start, "step": f"{history.step}s"})
            shown[resource] = {
                name: [_rounded(resource, each) for each in points]
                for name, points in history.values.items()
            }
    return served


def _rounded(resource: str, value: float | None) -> float | int | None:
    if value is None:
        return None
    return round(value, 4) if resource == "cpu" else round(value)
