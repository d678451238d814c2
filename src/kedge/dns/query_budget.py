"""How fast a client may ask: a flood of one pod takes neither the time nor the room of others."""

from typing import Final

from kedge.machinery.clock import Clock

PER_SECOND: Final = 1000
BURST: Final = 2000
MOST_CLIENTS: Final = 4096
RECORDS: Final = 64
"""Records of an answer that count as another query: a Service may have thousands of endpoints."""


class QueryBudget:
    """A bucket of queries for each client: each takes one, and the bucket fills up again.

    Where the kernel has nf_tables, it drops datagrams beyond the same rate before they wait in the
    socket that all pods share. This also counts queries over TCP.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """Queries that are left, and when that was so."""

    def admits(self, client: str) -> bool:
        """Take one query of a client; return whether it had one left."""
        now = self._clock.monotonic()
        left, since = self._buckets.get(client, (BURST, now))
        left = min(float(BURST), left + (now - since) * PER_SECOND)
        if client not in self._buckets and len(self._buckets) >= MOST_CLIENTS:
            self._buckets.clear()
        self._buckets[client] = (left - 1 if left >= 1 else left), now
        return left >= 1

    def charge(self, client: str, records: int) -> None:
        """Count the work for an answer of so many records."""
        if records >= RECORDS and client in self._buckets:
            left, since = self._buckets[client]
            self._buckets[client] = left - records // RECORDS, since
