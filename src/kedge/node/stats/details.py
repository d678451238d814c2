"""DetailMeter: the details of one thing, from its counters to the values of a tick."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from kedge.metrics.detail_windows import NONE_KNOWN
from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.windows import DETAILS, Unit

NUMBER: Final = {each.name: at for at, each in enumerate(DETAILS)}
"""The position of each detail."""
THROTTLED: Final = NUMBER["cpu-throttled"]
STORAGE: Final = NUMBER["ephemeral-storage"]
INODES: Final = NUMBER["ephemeral-inodes"]
OOM_KILLS: Final = NUMBER["oom-kills"]
PERIODS: Final = len(DETAILS)
"""The position of the counter of periods, behind all details: the throttled ones are a share."""
_SHARES: Final = tuple(at for at, each in enumerate(DETAILS) if each.unit is Unit.SHARE)
_COUNTERS: Final = tuple(each.is_counter for each in DETAILS)
_AMOUNTS: Final = tuple(at for at, each in enumerate(DETAILS) if not each.is_counter)
_LONGEST: Final = 60.0
"""Seconds between two readings above which their difference says nothing about a tick."""

DetailReading = list[float]
"""Amounts and counters in the order of DETAILS, then periods; UNKNOWN if missing. Pressure counts
seconds."""


class DetailSource(Protocol):
    """Something with counters of details."""

    def fill(self, found: DetailReading) -> None:
        """Write those that it knows."""
        ...

    def close(self) -> None: ...


class DetailMeter:
    """One measured thing. Its last reading is in memory only: after a restart of the agent, the
    first tick has no rates."""

    __slots__ = ("_at", "_is_idle", "_last", "_sources", "_spent")

    def __init__(self) -> None:
        self._sources: tuple[DetailSource, ...] = ()
        self._last: DetailReading | None = None
        self._at = 0.0
        self._spent = -1
        self._is_idle = False
        """Whether neither processor time nor a counter grew at the last reading."""

    def read_from(self, *sources: DetailSource) -> None:
        """Read another run of the thing: its counters begin again."""
        for source in self._sources:
            source.close()
        self._sources = sources
        self._last = None
        self._is_idle = False

    def start_from(self, at: float) -> None:
        """Count from zero at that moment: the run began then."""
        self._last, self._at = [0.0] * (PERIODS + 1), at
        self._spent = -1
        self._is_idle = False

    def values(self, at: float, spent: int) -> list[float]:
        """The values of the tick that ends now, at this monotonic time; `spent` is the processor
        time so far."""
        last = self._last
        has_run = spent < 0 or spent != self._spent
        if last is not None and self._is_idle and not has_run:
            # A thing that waits for nothing and has not run has not begun to wait either.
            self._at = at
            return _unchanged(last)
        found = [UNKNOWN] * (PERIODS + 1)
        for source in self._sources:
            source.fill(found)
        elapsed = at - self._at
        self._last, self._at, self._spent = found, at, spent
        self._is_idle = last is not None and not has_run and not _has_grown(found, last)
        if last is None or not 0 < elapsed <= _LONGEST:
            return _amounts(found)
        return _rates(found, last, elapsed)


def _has_grown(found: Sequence[float], last: Sequence[float]) -> bool:
    return any(
        is_counter and now > before
        for now, before, is_counter in zip(found, last, _COUNTERS, strict=False)
    )


def _unchanged(last: Sequence[float]) -> list[float]:
    return [
        0.0 if is_counter and each >= 0 else each
        for each, is_counter in zip(last, _COUNTERS, strict=False)
    ]


def _amounts(found: Sequence[float]) -> list[float]:
    """The values of a first reading, which has no rates."""
    return [
        UNKNOWN if is_counter else each for each, is_counter in zip(found, _COUNTERS, strict=False)
    ]


def _rates(found: Sequence[float], last: Sequence[float], elapsed: float) -> list[float]:
    values = [
        (now - before) / elapsed if now >= before >= 0 else UNKNOWN
        for now, before in zip(found, last, strict=True)
    ]
    del values[PERIODS]
    for at in _AMOUNTS:
        values[at] = found[at]
    if values[THROTTLED] >= 0:
        periods = found[PERIODS] - last[PERIODS]
        values[THROTTLED] = (found[THROTTLED] - last[THROTTLED]) / periods if periods > 0 else 0.0
    for at in _SHARES:
        # The kernel's counter of waiting may run ahead of the clock by a little.
        if values[at] > 1.0:
            values[at] = 1.0
    return values


def added(parts: Iterable[Sequence[float]], whole: Sequence[float] = NONE_KNOWN) -> list[float]:
    """The values of several things together. `whole` has what is known of all of them. Else amounts
    and rates are added, and of shares the largest counts; missing ones are left out."""
    known_parts = [each for each in parts if each is not NONE_KNOWN]
    if len(known_parts) == 1 and whole is NONE_KNOWN:
        return list(known_parts[0])
    total = list(NONE_KNOWN)
    for part in known_parts:
        for at, each in enumerate(part):
            if each >= 0:
                known = max(total[at], 0.0)
                total[at] = max(known, each) if at in _SHARES else known + each
    return [each if each >= 0 else sum_ for each, sum_ in zip(whole, total, strict=True)]
