"""Sources: how many connections each address has, and whether it may have another."""

from collections import Counter
from typing import Final

CONNECTIONS_PER_SOURCE: Final = 1024
"""Loopback counts as one source, and a busy operator there holds a connection per watch."""


class Sources:
    """Counts the connections of each address."""

    __slots__ = ("_counts", "_limit")

    def __init__(self, limit: int = CONNECTIONS_PER_SOURCE) -> None:
        self._limit = limit
        self._counts: Counter[str] = Counter()

    def enter(self, source: str) -> bool:
        """Whether one more connection from there is welcome; if so, `leave` must follow."""
        if self._counts[source] >= self._limit:
            return False
        self._counts[source] += 1
        return True

    def leave(self, source: str) -> None:
        self._counts[source] -= 1
        if not self._counts[source]:
            del self._counts[source]
