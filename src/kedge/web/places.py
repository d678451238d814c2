"""Places: how many connections a server keeps, and which one goes when there is no room.

A pod, a user and the administrator of one machine all come from 127.0.0.1, so addresses tell
callers apart no better than chance. Connections are therefore counted by who their caller turned
out to be. Those whose caller is not known yet share a small part of all places, and the oldest of
them goes first: to hold that part costs an attacker a new connection every half second each, and
costs somebody with credentials nothing, who needs it for the length of one round trip.
"""

import resource
from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

from kedge.machinery.errors import StatusError

_OWN_DESCRIPTORS: Final = 4
"""One in so many descriptors is kept for files, pipes, and connections that the process makes."""


class Occupant(Protocol):
    """A connection, from the moment it is accepted."""

    def evict(self) -> None:
        """Close at once."""
        ...


class Caller(Protocol):
    """Somebody who has shown who they are."""

    @property
    def tenant(self) -> str:
        """Whose share of the connections this one counts against; empty for anonymous callers."""
        ...

    @property
    def is_privileged(self) -> bool:
        """Whether the cluster, or the way to mend it, depends on this caller."""
        ...


@dataclass(frozen=True)
class PlaceLimits:
    """How the places are shared out."""

    total: int = 4096
    strangers: int = 512
    """Connections whose caller is not known yet."""
    per_tenant: int = 1024
    """A busy operator holds a connection per watch."""
    reserve: int = 64
    """Places that only privileged callers get."""
    stranger_seconds: float = 0.5
    """Time that a stranger is left in peace even if all their places are taken. Without it, a burst
    of good clients would push each other out in the middle of their handshakes."""

    @classmethod
    def within(cls, descriptors: int) -> "PlaceLimits":
        """The shares that fit in so many open files."""
        total = min(cls.total, descriptors - descriptors // _OWN_DESCRIPTORS)
        return cls(total, total // 8, total // 4, total // 64)


def affordable() -> PlaceLimits:
    """The shares that fit in the open files that this process may have."""
    return PlaceLimits.within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class Places:
    """Who occupies which place."""

    def __init__(self, limits: PlaceLimits) -> None:
        self._limits = limits
        self._strangers: dict[Occupant, float] = {}
        """Since when each of them is here, the oldest first."""
        self._tenants: dict[Occupant, str] = {}
        self._counts: Counter[str] = Counter()
        self.evicted = 0
        """How many strangers had to go."""

    def make_room(self, now: float) -> float:
        """Make room for another stranger; returns 0, or the seconds until there may be some."""
        if len(self._strangers) < self._limits.strangers:
            return 0.0
        oldest, since = next(iter(self._strangers.items()))
        if now < (until := since + self._limits.stranger_seconds):
            return until - now
        self._evict(oldest)
        return 0.0

    def evict_stranger(self) -> None:
        """Give a descriptor back to a process that has none left."""
        for oldest in self._strangers:
            self._evict(oldest)
            return

    def _evict(self, occupant: Occupant) -> None:
        self.evicted += 1
        self.leave(occupant)
        occupant.evict()

    def arrive(self, occupant: Occupant, now: float) -> None:
        """Count a connection, first as a stranger's."""
        self._strangers.setdefault(occupant, now)

    def settle(self, occupant: Occupant, caller: Caller) -> bool:
        """Count a connection as its caller's; raises 429 if they have their share already. Returns
        whether the caller is anybody in particular."""
        tenant = caller.tenant
        if not tenant or occupant in self._tenants:
            return bool(tenant)
        limits = self._limits
        room = limits.total - limits.strangers - (0 if caller.is_privileged else limits.reserve)
        if len(self._tenants) >= room:
            raise too_many("the server has as many connections as it can serve")
        if self._counts[tenant] >= limits.per_tenant and not caller.is_privileged:
            raise too_many(f"{tenant} has {limits.per_tenant} connections already")
        self._strangers.pop(occupant, None)
        self._tenants[occupant] = tenant
        self._counts[tenant] += 1
        return True

    def leave(self, occupant: Occupant) -> None:
        """Forget a connection that is over; harmless if that was done before."""
        self._strangers.pop(occupant, None)
        tenant = self._tenants.pop(occupant, None)
        if tenant is not None:
            self._counts[tenant] -= 1
            if not self._counts[tenant]:
                del self._counts[tenant]


def too_many(why: str) -> StatusError:
    message = f"Too many requests, please try again later: {why}"
    return StatusError(429, "TooManyRequests", message, retry_after=1)
