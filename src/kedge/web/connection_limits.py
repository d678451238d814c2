"""Limits on the connections of a server, and which one is closed at the limit.

Users and the administrator of one machine all have the address 127.0.0.1, and so do pods where the
kernel refuses nf_tables, so addresses do not distinguish callers. Connections are therefore counted
by authenticated caller. Connections that have not authenticated yet share a small part of all
places, and the oldest of them is closed first. To occupy that part, an attacker has to reconnect
every half second; a caller with credentials needs it only for one round trip.
"""

import resource
from collections import Counter
from typing import Final, Protocol

import msgspec

from kedge.machinery.errors import StatusError

_OWN_DESCRIPTORS: Final = 4
"""One in so many descriptors is reserved for files, pipes and outgoing connections."""


class SlotHolder(Protocol):
    """A connection, from the moment it is accepted."""

    def evict(self) -> None:
        """Close immediately."""
        ...


class ConnectionCaller(Protocol):
    """The caller of a request, after authentication."""

    @property
    def tenant(self) -> str:
        """The tenant that the caller's connections count for; empty for anonymous callers."""
        ...

    @property
    def is_privileged(self) -> bool:
        """Whether the cluster or its repair depends on this caller."""
        ...


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits on connections."""

    total: int = 4096
    strangers: int = 512
    """Connections that have not authenticated yet."""
    per_tenant: int = 1024
    """A busy operator holds a connection per watch."""
    reserve: int = 64
    """Places that only privileged callers get."""
    stranger_seconds: float = 0.5
    """Seconds in which a new connection is not evicted. Without it, a burst of valid clients
    would evict each other during their handshakes."""

    @classmethod
    def within(cls, descriptors: int) -> "ConnectionLimits":
        """Return the limits for so many open files."""
        total = min(cls().total, descriptors - descriptors // _OWN_DESCRIPTORS)
        return cls(total, total // 8, total // 4, total // 64)


def affordable() -> ConnectionLimits:
    """Return the limits for this process's limit of open files."""
    return ConnectionLimits.within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class ConnectionSlots:
    """Counts connections and evicts unauthenticated ones."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._strangers: dict[SlotHolder, float] = {}
        """Unauthenticated connections with their start time, the oldest first."""
        self._tenants: dict[SlotHolder, str] = {}
        self._counts: Counter[str] = Counter()
        self.evicted = 0
        """How many unauthenticated connections were evicted."""

    def make_room(self, now: float) -> float:
        """Make room for a new connection; returns 0, or the seconds until there may be room."""
        if len(self._strangers) < self._limits.strangers:
            return 0.0
        oldest, since = next(iter(self._strangers.items()))
        if now < (until := since + self._limits.stranger_seconds):
            return until - now
        self._evict(oldest)
        return 0.0

    def evict_stranger(self) -> None:
        """Evict the oldest unauthenticated connection, to free a descriptor."""
        for oldest in self._strangers:
            self._evict(oldest)
            return

    def _evict(self, holder: SlotHolder) -> None:
        self.evicted += 1
        self.leave(holder)
        holder.evict()

    def arrive(self, holder: SlotHolder, now: float) -> None:
        """Count a new connection as unauthenticated."""
        self._strangers.setdefault(holder, now)

    def settle(self, holder: SlotHolder, caller: ConnectionCaller) -> bool:
        """Count a connection for its caller; raises 429 at the caller's limit. Returns whether
        the caller is authenticated."""
        tenant = caller.tenant
        if not tenant or holder in self._tenants:
            return bool(tenant)
        limits = self._limits
        room = limits.total - limits.strangers - (0 if caller.is_privileged else limits.reserve)
        if len(self._tenants) >= room:
            raise too_many("the server has as many connections as it can serve")
        if self._counts[tenant] >= limits.per_tenant and not caller.is_privileged:
            raise too_many(f"{tenant} has {limits.per_tenant} connections already")
        self._strangers.pop(holder, None)
        self._tenants[holder] = tenant
        self._counts[tenant] += 1
        return True

    def leave(self, holder: SlotHolder) -> None:
        """Remove a closed connection. Idempotent."""
        self._strangers.pop(holder, None)
        tenant = self._tenants.pop(holder, None)
        if tenant is not None:
            self._counts[tenant] -= 1
            if not self._counts[tenant]:
                del self._counts[tenant]


def too_many(why: str) -> StatusError:
    message = f"Too many requests, please try again later: {why}"
    return StatusError(429, "TooManyRequests", message, retry_after=1)
