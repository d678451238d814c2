"""Addresses of simulated nodes and pods: unique, and nothing listens there."""

from collections import deque
from ipaddress import IPv4Address, IPv4Network

from kedge.api.builtin.service_networks import SIMULATED_NETWORK


class NoAddressLeft(Exception):
    """All addresses are taken."""


class SimulatedAddresses:
    """Hands out addresses; those that were given back come last."""

    def __init__(self, network: IPv4Network = SIMULATED_NETWORK) -> None:
        self._network = network
        self._first = int(network.network_address)
        self._next = self._first + 1
        self._end = int(network.broadcast_address)
        self._used: set[int] = set()
        self._free: deque[int] = deque()

    def reserve(self, address: str) -> None:
        """Take an address that is in use already; others than those of the pool do not matter."""
        found = _parsed(address)
        if found is not None and found in self._network:
            self._used.add(int(found))

    def take(self) -> str:
        """Return an address that is free; raises NoAddressLeft."""
        while self._next < self._end:
            candidate, self._next = self._next, self._next + 1
            if candidate not in self._used:
                return self._taken(candidate)
        while self._free:
            candidate = self._free.popleft()
            if candidate not in self._used:
                return self._taken(candidate)
        raise NoAddressLeft(f"all addresses of {self._network} are taken")

    def release(self, address: str) -> None:
        """Take an address back."""
        found = _parsed(address)
        number = -1 if found is None else int(found)
        if number in self._used:
            self._used.discard(number)
            self._free.append(number)

    def _taken(self, number: int) -> str:
        self._used.add(number)
        return str(IPv4Address(number))


def _parsed(address: str) -> IPv4Address | None:
    """Return an address; None for names and addresses of IPv6, which a Node may have too."""
    try:
        return IPv4Address(address)
    except ValueError:
        return None
