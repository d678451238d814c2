"""The ranges of cluster IPs: one for each IPv4 network of the ServiceCIDRs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network
from random import Random
from typing import Any, Final

import msgspec

from kedge.api.builtin.service_networks import (
    DEFAULT_SERVICE_CIDR,
    SERVICE_RANGE,
    is_allocatable,
    is_ready,
    networks,
)
from kedge.apiserver.allocation.bands import draw, lower_band

FULL: Final = "range is full"
NOT_READY: Final = "allocator not ready"
ALLOCATED: Final = "provided IP is already allocated"


class AddressRange(msgspec.Struct, frozen=True):
    """One network of cluster IPs."""

    network: IPv4Network
    is_ready: bool = True
    """Whether new addresses may be taken from it."""

    def draw(self, is_taken: Callable[[str], bool], random: Random) -> str | None:
        """Return a free address; None if there is none."""
        size, first = self.network.num_addresses, int(self.network.network_address) + 1
        index = draw(
            max(0, size - 2),
            min(lower_band(size, part=16, most=256), max(0, size - 2)),
            lambda index: is_taken(str(IPv4Address(first + index))),
            random,
        )
        return None if index is None else str(IPv4Address(first + index))


def ranges_of(
    service_cidrs: Iterable[dict[str, Any]], default: IPv4Network = SERVICE_RANGE
) -> list[AddressRange]:
    """Return the ranges of the ServiceCIDRs, the default range first.

    The default range exists even while its object does not: the object is created after the
    Service `kubernetes`, and again if it was deleted. Of two objects with one network, one that
    is ready suffices.
    """
    known: dict[IPv4Network, bool] = {}
    is_default_known = False
    for document in service_cidrs:
        is_default_known |= document["metadata"]["name"] == DEFAULT_SERVICE_CIDR
        ready = is_ready(document) and "deletionTimestamp" not in document["metadata"]
        for network in networks(document):
            if isinstance(network, IPv4Network):
                known[network] = known.get(network, False) or ready
    if not is_default_known:
        known[default] = True
    default_first = sorted(known, key=lambda network: (network != default, network))
    return [AddressRange(network, known[network]) for network in default_first]


def draw_address(
    ranges: Sequence[AddressRange], is_taken: Callable[[str], bool], random: Random
) -> str | None:
    """Return a free address of the first range that has one; None if all are full."""
    for each in ranges:
        if each.is_ready and (address := each.draw(is_taken, random)):
            return address
    return None


def fault(ranges: Sequence[AddressRange], address: str) -> str:
    """Return why an address that a writer asks for cannot be allocated; empty if it can."""
    holding = list(_holding(ranges, address))
    if any(each.is_ready for each in holding):
        return ""
    if holding:
        return NOT_READY
    valid = ", ".join(str(each.network) for each in ranges)
    return (
        f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {valid}"
    )


def _holding(ranges: Sequence[AddressRange], address: str) -> Iterator[AddressRange]:
    return (each for each in ranges if is_allocatable(each.network, address))
