"""UsageCourse: the measured points of one node, pod or container over the last minute, hour and
day."""

from array import array
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Final, NamedTuple

import msgspec

from kedge.machinery.durations import parse_time
from kedge.metrics.windows import TICK_SECONDS

Points = Sequence[float | None]

MINUTE_SECONDS: Final = 60
HOUR_SECONDS: Final = 3600
_HOUR_TICKS: Final = HOUR_SECONDS // TICK_SECONDS


class HistoryPoints(msgspec.Struct, frozen=True, gc=False):
    """One resource in a history that a node has sent."""

    mean: list[float | None] = []


class HistoryWindow(msgspec.Struct, frozen=True, gc=False):
    """One window of it."""

    starttime: str = ""
    step: str = ""
    cpu: HistoryPoints = HistoryPoints()
    memory: HistoryPoints = HistoryPoints()


class TickUsage(NamedTuple):
    """Means of ten seconds."""

    cpu: float | None
    memory: float | None


class _Sent(NamedTuple):
    """Points that a node has sent."""

    start: int = 0
    cpu: Points = ()
    memory: Points = ()


class UsageCourse:
    """Ten-second means from reports, and finer and older points that the node has sent. Nothing is
    made up: a point without data is None."""

    def __init__(self) -> None:
        # Rings of numbers, not objects: there is a course for each of thousands of pods.
        self._ticks = {each: array("f", [nan]) * _HOUR_TICKS for each in ("cpu", "memory")}
        self._newest = -1
        self._minute = _Sent()
        self._day = _Sent()
        self.due = float("-inf")
        """When to ask the node for its points, on the monotonic clock."""

    def take(self, end: int, usage: TickUsage) -> None:
        """Take in the ten seconds before a moment, in seconds since the epoch."""
        self._put(end // TICK_SECONDS - 1, usage)

    def seed(self, history: Mapping[str, HistoryWindow]) -> None:
        """Take in the points that the node keeps."""
        if minute := history.get("1m"):
            self._minute = _sent(minute)
        if day := history.get("1d"):
            self._day = _sent(day)
        if hour := history.get("1h"):
            start, cpu, memory = _sent(hour)
            for offset, pair in enumerate(zip(cpu, memory, strict=False)):
                if pair != (None, None):
                    self._put(start // TICK_SECONDS + offset, TickUsage(*pair))

    def _put(self, tick: int, usage: TickUsage) -> None:
        if tick <= self._newest - _HOUR_TICKS:
            return
        # The slots of ticks without a report still have values of an hour before.
        for missed in range(max(self._newest + 1, tick - _HOUR_TICKS + 1), tick):
            self._set(missed, TickUsage(None, None))
        self._newest = max(self._newest, tick)
        self._set(tick, usage)

    def _set(self, tick: int, usage: TickUsage) -> None:
        slot = tick % _HOUR_TICKS
        for resource, value in zip(("cpu", "memory"), usage, strict=True):
            self._ticks[resource][slot] = nan if value is None else value

    def _at(self, resource: str, tick: int) -> float | None:
        if not self._newest - _HOUR_TICKS < tick <= self._newest:
            return None
        value = self._ticks[resource][tick % _HOUR_TICKS]
        return None if isnan(value) else value

    def minute(self, resource: str, end: int) -> list[float | None]:
        """Return a point for each second of the minute before a moment. Where the node has not sent
        them yet, all seconds have the mean of their ten."""
        start = self._minute.start
        fine: Points = getattr(self._minute, resource)
        return [
            self._second(resource, each, fine, each - start)
            for each in range(end - MINUTE_SECONDS, end)
        ]

    def _second(self, resource: str, second: int, fine: Points, offset: int) -> float | None:
        if 0 <= offset < len(fine) and fine[offset] is not None:
            return fine[offset]
        return self._at(resource, second // TICK_SECONDS)

    def hour(self, resource: str, end: int) -> list[float | None]:
        """Return a point for each ten seconds of the hour before a moment."""
        last = end // TICK_SECONDS
        return [self._at(resource, tick) for tick in range(last - _HOUR_TICKS, last)]

    def day(self, resource: str) -> list[float | None]:
        """Return a point for each five minutes of the last day that the node has sent."""
        return list(getattr(self._day, resource))


def _sent(window: HistoryWindow) -> _Sent:
    start = int(parse_time(window.starttime).timestamp())
    return _Sent(start, window.cpu.mean, window.memory.mean)
