"""Seats of priority levels: how many requests of each may be worked on at once."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final, NamedTuple

_SMOOTHING: Final = 0.977
"""The weight of the past in the demand of a level that needs less than before."""


class LevelSettings(NamedTuple):
    """A PriorityLevelConfiguration, as numbers."""

    name: str
    uid: str
    is_exempt: bool
    shares: int
    lendable_percent: int
    borrowing_percent: int | None
    """None for as much as there is."""
    queues: int
    """0 if requests that are too many are refused at once."""
    hand_size: int
    queue_length: int


def level_of(document: Mapping[str, Any]) -> LevelSettings:
    """Return a stored PriorityLevelConfiguration as numbers."""
    meta, spec = document["metadata"], document.get("spec") or {}
    is_exempt = spec.get("type") == "Exempt"
    part = spec.get("exempt" if is_exempt else "limited") or {}
    response = part.get("limitResponse") or {}
    queuing = (response.get("queuing") or {}) if response.get("type") == "Queue" else None
    shares = part.get("nominalConcurrencyShares")
    return LevelSettings(
        name=meta["name"],
        uid=meta.get("uid", ""),
        is_exempt=is_exempt,
        shares=(0 if is_exempt else 30) if shares is None else shares,
        lendable_percent=part.get("lendablePercent") or 0,
        borrowing_percent=part.get("borrowingLimitPercent"),
        queues=0 if queuing is None else queuing.get("queues") or 64,
        hand_size=0 if queuing is None else queuing.get("handSize") or 8,
        queue_length=0 if queuing is None else queuing.get("queueLengthLimit") or 50,
    )


class SeatBounds(NamedTuple):
    """The seats of a level: by its shares, and the bounds within which they are lent."""

    nominal: int
    least: int
    most: int


def bounds_of(levels: Sequence[LevelSettings], total: int) -> dict[str, SeatBounds]:
    """Return the seats of each level, of all seats of the server."""
    shares = sum(level.shares for level in levels) or 1
    return {
        level.name: _bounds(level, ceil(total * level.shares / shares), total) for level in levels
    }


def _bounds(level: LevelSettings, nominal: int, total: int) -> SeatBounds:
    least = nominal - round(nominal * level.lendable_percent / 100)
    borrowed = level.borrowing_percent
    most = total if borrowed is None else nominal + round(nominal * borrowed / 100)
    return SeatBounds(nominal, least, max(nominal, most))


class SettledDemand(NamedTuple):
    """The seats that a level wanted between two adjustments."""

    highest: int = 0
    mean: float = 0.0
    deviation: float = 0.0
    smooth: float = 0.0
    """Mean and deviation: it rises at once, and falls slowly."""


class SeatDemand:
    """The seats that a level needed recently: it rises at once, and falls slowly."""

    def __init__(self) -> None:
        self.highest = 0
        """The most seats that were wanted at the same time since the last adjustment."""
        self.settled = SettledDemand()
        """As it was at the last adjustment."""

    def note(self, wanted: int) -> None:
        """Record how many seats are wanted now."""
        self.highest = max(self.highest, wanted)

    def settle(self, wanted: int, mean: float, deviation: float) -> "SettledDemand":
        """Return the demand since the last adjustment, and begin anew with what is wanted now."""
        usual = mean + deviation
        smooth = max(usual, _SMOOTHING * self.settled.smooth + (1 - _SMOOTHING) * usual)
        self.settled = SettledDemand(self.highest, mean, deviation, smooth)
        self.highest = wanted
        return self.settled


class SeatAllocation(NamedTuple):
    """How the seats are lent."""

    seats: Mapping[str, int]
    """Of each level now."""
    targets: Mapping[str, float]
    """The seats that each level should have."""
    factor: float
    """The part of its target that each level gets."""


def allocation(
    bounds: Mapping[str, SeatBounds], demands: Mapping[str, SettledDemand], total: int
) -> SeatAllocation:
    """Return the seats of each level now: idle levels lend theirs to those with more demand.

    Every level gets the same multiple of its demand, within its bounds. The multiple is found by
    bisection, because the sum grows with it.
    """
    least = {
        name: max(each.least, min(each.nominal, demands[name].highest))
        for name, each in bounds.items()
    }
    targets = {name: max(least[name], demands[name].smooth, 1) for name in bounds}

    def given(factor: float) -> dict[str, float]:
        return {
            name: min(max(least[name], factor * targets[name]), each.most)
            for name, each in bounds.items()
        }

    low, high = 0.0, float(max(total, 1))
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(given(middle).values()) <= total else (low, middle)
    lent = {name: round(seats) for name, seats in given(low).items()}
    return SeatAllocation(lent, targets, low)
