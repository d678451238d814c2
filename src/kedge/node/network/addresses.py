"""The addresses of pods. Each is held by a file with its name, so that a restarted agent knows
them."""

import os
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, ip_address
from pathlib import Path
from typing import Final

from kedge.api.builtin.service_networks import NODE_PREFIX, POD_NETWORK

CLUSTER: Final = POD_NETWORK


class NoFreeAddress(Exception):
    """All addresses of the network are in use."""


def free_network(taken: Iterable[IPv4Network]) -> IPv4Network:
    """Return the first network for a node to which the machine has no route."""
    used = list(taken)
    for network in CLUSTER.subnets(new_prefix=NODE_PREFIX):
        if not any(network.overlaps(other) for other in used):
            return network
    raise NoFreeAddress(f"no network of {CLUSTER} is free on this machine")


def kept_network(file: Path) -> IPv4Network | None:
    """Return the network that a node has kept; None if there is none, or the file is damaged."""
    try:
        return IPv4Network(file.read_text(errors="replace"))
    except (FileNotFoundError, ValueError):
        return None


def internal_address(configured: str, gateway: str) -> str:
    """Return the InternalIP of a node: the configured address or, if that is the loopback address
    which all nodes of the machine have, the node's own one, if it has a bridge.

    Pods cannot reach a loopback address, and node ports do not exist there.
    """
    return gateway if gateway and _is_loopback(configured) else configured


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class AddressPool:
    """Allocates the addresses of one network, those longest unused first."""

    def __init__(self, directory: Path, network: IPv4Network) -> None:
        self._directory = directory
        self._network = network
        directory.mkdir(parents=True, exist_ok=True)
        self._last = network.network_address + 1
        self._held = {path.read_text(): IPv4Address(path.name) for path in directory.iterdir()}
        # An agent was killed before it wrote the holder.
        self.give_back("")

    @property
    def gateway(self) -> IPv4Address:
        """The address of the bridge: the default gateway of pods."""
        return self._network.network_address + 1

    def take(self, holder: str) -> IPv4Address:
        """Return an address for the holder; the same one if it has one already."""
        if known := self.of(holder):
            return known
        for address in self._from_the_last():
            path = self._directory / str(address)
            try:
                held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue
            os.write(held, holder.encode())
            os.close(held)
            self._last = self._held[holder] = address
            return address
        raise NoFreeAddress(f"all addresses of {self._network} are in use")

    def of(self, holder: str) -> IPv4Address | None:
        return self._held.get(holder)

    def holders(self) -> list[str]:
        """Return all holders of an address."""
        return list(self._held)

    def give_back(self, holder: str) -> None:
        if known := self._held.pop(holder, None):
            (self._directory / str(known)).unlink(missing_ok=True)

    def _from_the_last(self) -> Iterator[IPv4Address]:
        first, size = int(self._network.network_address), self._network.num_addresses
        last = int(self._last) - first
        for number in (*range(last + 1, size), *range(last + 1)):
            # Without the addresses of the network, of the gateway and of broadcast.
            if 1 < number < size - 1:
                yield IPv4Address(first + number)
