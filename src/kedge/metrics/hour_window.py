"""The window of an hour: every tick of it is kept, so all three statistics are exact.

Samples are the means of ticks here, not of seconds: the 95th is that of 360 means of ten seconds
each. The maximum is that of single seconds, since each tick keeps its largest second.
"""

from array import array
from bisect import bisect_left, insort
from typing import Final

from kedge.metrics import series_memory
from kedge.metrics.series_memory import (
    HOUR_TICKS,
    MAXIMA,
    MEANS,
    SUMS,
    UNKNOWN,
    known,
    listed,
)
from kedge.metrics.statistics import Statistics, Total, rank
from kedge.metrics.usage_history import UsageHistory
from kedge.metrics.windows import TICK_SECONDS

_SPARE: Final = 2
"""The factor between the values that are kept sorted and those that are needed."""


class HourWindow:
    """Means and maxima of the ticks of an hour, in the memory of a series.

    Sorting 360 means per tick and series would cost more than everything else in a tick. Two facts
    avoid it. A tick replaces one value, so the total changes by a difference. And the 95th of n
    values is among the n/20 largest, so only those need to be sorted: `_top` holds between one and
    four times as many as are needed, and is sorted anew from the ring only if it runs short, which
    takes a run of ticks in which large values leave and small ones come.
    """

    __slots__ = ("_covered", "_floats", "_top", "_total", "ticks")

    def __init__(self, floats: "memoryview[float]", covered: "memoryview[int]") -> None:
        self._floats = floats
        self._covered = covered
        self.ticks = 0
        """Ticks with data."""
        self._top = array("f")
        """The largest means, sorted: at least those from the 95th on."""
        self._total = Total()

    @property
    def peak(self) -> float:
        """The maximum; UNKNOWN without data."""
        return self._total.peak

    def is_empty(self) -> bool:
        """Whether the memory has nothing: cheap, because every new pod asks. Covered time without
        means is what a loss of power leaves, and `load` must drop it."""
        return self._floats[
            MEANS:SUMS
        ].tobytes() == series_memory.NO_HOUR and not self._covered.tobytes().strip(b"\0")

    def load(self) -> None:
        """Compute everything that is not in the memory."""
        self._drop_torn()
        means = self.sorted_means()
        self.ticks = len(means)
        self._top = array("f", means)
        self._total = self._sum()

    def _drop_torn(self) -> None:
        """Drop ticks with a part of their data missing. A process that is killed leaves none, but
        a machine that loses its power has written some pages of the file and not others."""
        floats = self._floats
        hour = zip(
            listed(floats[MEANS:MAXIMA]),
            listed(floats[MAXIMA:SUMS]),
            self._covered.tolist(),
            strict=True,
        )
        for slot, (mean, peak, covered) in enumerate(hour):
            if not (mean < 0) == (peak < 0) == (not covered):
                floats[MEANS + slot] = floats[MAXIMA + slot] = UNKNOWN
                self._covered[slot] = 0

    def put(self, tick: int, mean: float, peak: float, covered: float) -> None:
        """Replace the tick of an hour ago; the mean is UNKNOWN if the tick has no data."""
        slot = tick % HOUR_TICKS
        floats, total = self._floats, self._total
        weight = self._covered[slot]
        old, old_peak = floats[MEANS + slot], floats[MAXIMA + slot]
        if old >= 0:
            self.ticks -= 1
            if old >= self._top[0]:
                del self._top[bisect_left(self._top, old)]
            total.add(-old * weight, -weight, UNKNOWN)
        floats[MEANS + slot] = mean
        floats[MAXIMA + slot] = peak
        self._covered[slot] = weight = min(round(covered * 1000), 0xFFFF)
        if mean >= 0:
            # Read back, since the memory rounds to 32 bits: `old >= top[0]` and bisect above must
            # meet this very number again an hour later.
            kept = floats[MEANS + slot]
            self.ticks += 1
            if not self._top or kept >= self._top[0]:
                insort(self._top, kept)
            total.add(kept * weight, weight, floats[MAXIMA + slot])
        self._trim()
        if old_peak >= total.peak > floats[MAXIMA + slot]:
            # Only if the maximum itself has left are all of them compared again.
            total.peak = max(listed(floats[MAXIMA:SUMS]))
        if slot == 0:
            # A total that is only ever changed by differences drifts: once an hour, add it up.
            self._total = self._sum()

    def statistics(self) -> Statistics | None:
        """None without data."""
        if not self.ticks:
            return None
        total = self._total
        return Statistics(total.sum / total.weight, total.peak, self.percentile())

    def percentile(self) -> float:
        return self._top[rank(self.ticks) - 1 - self.ticks]

    def last(self, tick: int, ticks: int) -> tuple[list[float], list[int]]:
        """Means and covered milliseconds of the ticks up to this one, in any order."""
        end = tick % HOUR_TICKS + 1
        begin = max(end - ticks, 0)
        means = listed(self._floats[MEANS + begin : MEANS + end])
        covered = self._covered[begin:end].tolist()
        if end < ticks:
            # They begin before the end of the ring.
            begin = HOUR_TICKS + end - ticks
            means += listed(self._floats[MEANS + begin : MAXIMA])
            covered += self._covered[begin:].tolist()
        return means, covered

    def history(self, tick: int) -> UsageHistory:
        """Mean and maximum of each tick up to this one."""
        ticks = range(tick - HOUR_TICKS + 1, tick + 1)
        means, maxima = listed(self._floats[MEANS:MAXIMA]), listed(self._floats[MAXIMA:SUMS])
        values = {
            "mean": [known(means[each % HOUR_TICKS]) for each in ticks],
            "max": [known(maxima[each % HOUR_TICKS]) for each in ticks],
        }
        return UsageHistory((ticks[0] - 1) * TICK_SECONDS, TICK_SECONDS, values)

    def sorted_means(self) -> list[float]:
        """The means of all ticks with data."""
        return sorted(mean for mean in listed(self._floats[MEANS:MAXIMA]) if mean >= 0)

    def _trim(self) -> None:
        """Keep enough of the largest means, and not too many."""
        needed = self.ticks - rank(self.ticks) + 1
        if len(self._top) < min(needed, self.ticks):
            self._top = array("f", self.sorted_means()[-_SPARE * needed :])
        elif len(self._top) > _SPARE * _SPARE * needed:
            self._top = self._top[-_SPARE * needed :]

    def _sum(self) -> Total:
        found = Total()
        floats = self._floats
        for mean, weight, peak in zip(
            floats[MEANS:MAXIMA], self._covered, floats[MAXIMA:SUMS], strict=True
        ):
            if weight:
                found.add(mean * weight, weight, peak)
        return found
