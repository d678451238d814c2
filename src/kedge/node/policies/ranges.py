"""Ranges of addresses and ports: unions, and what is left of a range without others."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from typing import NamedTuple


class Range(NamedTuple):
    """Whole numbers from the first to the last."""

    first: int
    last: int


Ranges = tuple[Range, ...]
"""In order, without overlaps, and with a gap between any two."""


def network_range(network: IPv4Network) -> Range:
    return Range(int(network.network_address), int(network.broadcast_address))


def union(ranges: Iterable[Range]) -> Ranges:
    """Return the numbers that are in any of these."""
    found: list[Range] = []
    for each in sorted(ranges):
        if found and each.first <= found[-1].last + 1:
            found[-1] = Range(found[-1].first, max(found[-1].last, each.last))
        else:
            found.append(each)
    return tuple(found)


def without(whole: Range, holes: Iterable[Range]) -> Iterator[Range]:
    """Yield what is left of a range outside of these."""
    first = whole.first
    for hole in union(holes):
        if hole.last < first:
            continue
        if hole.first > whole.last:
            break
        if first < hole.first:
            yield Range(first, hole.first - 1)
        first = hole.last + 1
    if first <= whole.last:
        yield Range(first, whole.last)


def contains(ranges: Ranges, number: int) -> bool:
    place = bisect_right(ranges, (number, number)) - 1
    at = ranges[place] if place >= 0 else None
    follows = ranges[place + 1] if place + 1 < len(ranges) else None
    return (at is not None and at.first <= number <= at.last) or (
        follows is not None and follows.first <= number <= follows.last
    )
