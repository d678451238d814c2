"""The usage of a group of pods as JSON, in metrics/v1alpha1."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.metrics.aggregate_windows import Columns, aggregate
from kedge.metrics.serve.encoding import moment, quantity
from kedge.metrics.usage_object import UsageObject
from kedge.metrics.windows import TICK_SECONDS, WINDOWS

_encode: Final = msgspec.json.Encoder().encode


def group(pods: Sequence[UsageObject]) -> bytes:
    """JSON after the metadata of an aggregate."""
    document: dict[str, Any] = {"pods": len(pods)}
    document |= {"total": {}, "lowerBounds": {}, "distribution": {}}
    if pods:
        columns = Columns([each.frame.row(each.row) for each in pods])
        for window, seconds in WINDOWS.items():
            made = aggregate(columns, window)
            document["total"][window] = _times(pods, seconds) | _quantities(made.total)
            document["lowerBounds"][window] = _quantities(made.lower)
            document["distribution"][window] = _quantities(made.distribution)
    return b"," + _encode(document)[1:]


def _times(pods: Sequence[UsageObject], seconds: int) -> dict[str, str]:
    """The earliest end, since nodes report one after the other; and the latest begin."""
    end = min(each.end_tick for each in pods) * TICK_SECONDS
    since = max(each.since for each in pods)
    times = {"endtime": moment(end).decode()}
    return times | ({"starttime": moment(since).decode()} if since > end - seconds else {})


def _quantities(statistics: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, str]]:
    return {
        statistic: {name: quantity(name, number) for name, number in amounts.items()}
        for statistic, amounts in statistics.items()
    }
