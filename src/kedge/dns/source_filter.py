"""Which clients are served: pods and the machine itself. A server for everybody could be misused
to send large answers to forged addresses."""

import ipaddress
from collections.abc import Callable, Collection, Sequence
from typing import Final

from kedge.machinery.clock import Clock

MOST_KNOWN: Final = 4096
KNOWN_SECONDS: Final = 10.0


class SourceFilter:
    """Decides about source addresses, and remembers the decisions for a while."""

    def __init__(
        self,
        networks: Sequence[ipaddress.IPv4Network],
        own: Callable[[], Collection[str]],
        clock: Clock,
    ) -> None:
        self._networks = networks
        self._find_own = own
        self._clock = clock
        self._known: dict[str, bool] = {}
        self._own: frozenset[str] = frozenset()
        self._read_at = -KNOWN_SECONDS

    def admits(self, source: str) -> bool:
        """Return whether queries from this address are answered."""
        known = self._known.get(source)
        return self._decide(source) if known is None else known

    def forget(self) -> None:
        """Decide anew about all addresses: the machine's may have changed."""
        self._known.clear()

    def _decide(self, source: str) -> bool:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        found = self._known[source] = self._is_pod(source) or source in self._own_addresses()
        return found

    def _is_pod(self, source: str) -> bool:
        try:
            address = ipaddress.ip_address(source)
        except ValueError:
            return False
        return address.is_loopback or any(address in each for each in self._networks)

    def _own_addresses(self) -> frozenset[str]:
        now = self._clock.monotonic()
        if now - self._read_at >= KNOWN_SECONDS:
            self._read_at = now
            self._own = frozenset(self._find_own())
        return self._own
