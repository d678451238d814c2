"""SharedLeases: the end of keys whose server does not live to delete them.

A server deletes each of its keys by itself when its time is over, so that every deletion has a
revision of its own. A lease of etcd deletes all of its keys in one revision. It ends some time
later, for the keys of a server that was restarted.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kedge.machinery.clock import Clock

LATER_SECONDS: Final = 30
"""How long after the time of a key its lease ends at least."""
SHARE_SECONDS: Final = 60
SHARE_PART: Final = 20
"""A lease takes further keys for a minute, or for this part of their life if that is less."""
MOST_KEYS: Final = 1000


class _Lease(msgspec.Struct):
    id: int
    until: float
    """When it takes no more keys."""
    keys: int = 0


class SharedLeases:
    """One current lease for each time to live."""

    def __init__(self, clock: Clock, grant: Callable[[int], Awaitable[int]]) -> None:
        """`clock` is that of the machine; `grant` makes a lease of so many seconds."""
        self._clock = clock
        self._grant = grant
        self._current: dict[int, _Lease] = {}

    async def lease(self, ttl: int) -> int:
        """Return a lease for one key with this time to live."""
        now = self._clock.monotonic()
        lease = self._current.get(ttl)
        if lease is None or lease.until < now or lease.keys >= MOST_KEYS:
            shared = min(SHARE_SECONDS, ttl // SHARE_PART)
            granted = await self._grant(ttl + shared + LATER_SECONDS)
            lease = self._current[ttl] = _Lease(granted, now + shared)
        lease.keys += 1
        return lease.id

    def forget(self) -> None:
        """Use new leases from now on: those from before may have ended."""
        self._current.clear()
