"""Indexes: the completed indexes of a job, kept and written as intervals such as `0,2-5`."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Self


class Indexes:
    """A set of non-negative integers, stored as intervals."""

    __slots__ = ("_intervals",)

    def __init__(self, intervals: Iterable[range] = ()) -> None:
        self._intervals = tuple(_merged(intervals))

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Self:
        return cls(range(number, number + 1) for number in numbers)

    @classmethod
    @lru_cache(maxsize=32)
    def parse(cls, text: str, completions: int) -> Self:
        """Parse the indexes of a status or a rule, without unreadable ones and ones beyond the
        completions.

        Rules may have 64 KB of them, and are evaluated for each pod that ends.
        """
        return cls(_readable(text, completions))

    def __or__(self, others: "Indexes") -> "Indexes":
        return Indexes((*self._intervals, *others._intervals))

    def __contains__(self, number: int) -> bool:
        after = bisect_right(self._intervals, number, key=lambda each: each.start)
        return after > 0 and number in self._intervals[after - 1]

    def __len__(self) -> int:
        return sum(map(len, self._intervals))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indexes) and self._intervals == other._intervals

    def __hash__(self) -> int:
        return hash(self._intervals)

    def __repr__(self) -> str:
        return f"Indexes({self})"

    def __str__(self) -> str:
        return ",".join(map(_written, self._intervals))

    def common(self, others: "Indexes") -> int:
        """How many numbers are in both."""
        few, many = sorted((self._intervals, others._intervals), key=len)
        count = 0
        for one in few:
            # Intervals within one list do not overlap, so those that overlap this one are
            # consecutive.
            at = bisect_right(many, one.start, key=lambda each: each.start)
            at = max(at - 1, 0)
            while at < len(many) and many[at].start < one.stop:
                count += max(0, min(one.stop, many[at].stop) - max(one.start, many[at].start))
                at += 1
        return count

    def absent(self, end: int) -> Iterator[int]:
        """The numbers below an end that are not in here, from the lowest."""
        start = 0
        for interval in self._intervals:
            yield from range(start, min(interval.start, end))
            start = interval.stop
        yield from range(start, end)


def _merged(intervals: Iterable[range]) -> Iterator[range]:
    ordered = iter(sorted(intervals, key=lambda each: each.start))
    if (last := next(ordered, None)) is None:
        return
    for each in ordered:
        if each.start <= last.stop:
            last = range(last.start, max(last.stop, each.stop))
        else:
            yield last
            last = each
    yield last


def _readable(text: str, completions: int) -> Iterator[range]:
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or len(part) > 21:
            continue
        interval = range(int(first), min(int(last or first) + 1, completions))
        if interval:
            yield interval


def _written(interval: range) -> str:
    # As upstream writes them: two neighbours are listed, more are an interval.
    if len(interval) <= 2:
        return ",".join(map(str, interval))
    return f"{interval[0]}-{interval[-1]}"
