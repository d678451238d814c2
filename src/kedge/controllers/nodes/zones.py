"""Zones: the eviction rate of nodes, by the fraction of unhealthy nodes in the zone."""

from collections.abc import Iterable
from enum import Enum
from typing import Final

RATE: Final = 0.1
"""Nodes a second that are given up in a zone which is well otherwise."""
SLOW_RATE: Final = 0.01
"""The same in a large zone where most nodes are in trouble; in a small one none is."""
LARGE: Final = 50
"""A zone with more nodes than this is large."""
TROUBLED: Final = 0.55
"""The share of nodes in trouble from which on it is rather the zone that is in trouble."""


class ZoneState(Enum):
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


def state_of(ready: Iterable[bool]) -> ZoneState:
    """Return the state of a zone from the readiness of its nodes."""
    all_ = list(ready)
    bad = all_.count(False)
    if bad and bad == len(all_):
        return ZoneState.FULL
    if bad > 2 and bad / len(all_) >= TROUBLED:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


def rate_of(state: ZoneState, size: int, *, everywhere: bool) -> float:
    """Return how many nodes a second may be evicted in a zone.

    If no node is ready in any zone (`everywhere`), the fault is rather with the control plane.
    """
    if everywhere:
        return 0.0
    if state is ZoneState.PARTIAL:
        return SLOW_RATE if size > LARGE else 0.0
    return RATE


class EvictionRate:
    """Grants one permit at a time, at a variable rate."""

    def __init__(self) -> None:
        self._rate = RATE
        self._free_at = 0.0

    @property
    def rate(self) -> float:
        return self._rate

    def change(self, rate: float) -> bool:
        """Whether this is another rate than before."""
        changed, self._rate = rate != self._rate, rate
        if changed:
            self._free_at = 0.0
        return changed

    def take(self, now: float) -> float | None:
        """Seconds to wait for the next permit, 0 if this one is given; None if there is none
        until the rate changes."""
        if not self._rate:
            return None
        if now < self._free_at:
            return self._free_at - now
        self._free_at = now + 1 / self._rate
        return 0.0
