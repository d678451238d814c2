"""The pool of addresses for Services of type LoadBalancer: pure decisions."""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Final, NamedTuple

from kedge.api.core_v1.service_types import Service

CLASS: Final = "kedge.dev/load-balancer"
"""The loadBalancerClass that names kedge's own load balancer; Services without a class get it
too."""


class PoolError(Exception):
    """The Service cannot have an address; the text says why."""


class ServiceRank(NamedTuple):
    """Orders Services that have the same address: the oldest keeps it."""

    created: str
    namespace: str
    name: str


def is_balanced(service: Service) -> bool:
    """Return whether kedge gives the Service an address."""
    ours = service.spec.loadBalancerClass in (None, CLASS)
    return service.spec.type == "LoadBalancer" and ours


def address_of(service: Service) -> str | None:
    """Return the address in the status of a Service of type LoadBalancer, kedge's or another."""
    if service.spec.type != "LoadBalancer":
        return None
    return next((place.ip for place in service.status.loadBalancer.ingress if place.ip), None)


def rank(service: Service) -> ServiceRank:
    meta = service.metadata
    return ServiceRank(meta.creationTimestamp, meta.namespace, meta.name)


def choose_address(
    pool: IPv4Network, service: Service, holders: Callable[[str], list[Service]]
) -> str:
    """Return the address of a Service: the one that it has if it may keep it, the one that it
    asks for, or the lowest free one. `holders` returns the Services that have an address.

    The lowest and not a random one: people read these addresses and type them, and a Service that
    is created again gets the same one.
    """
    asked, present = service.spec.loadBalancerIP, address_of(service)
    if present and asked in ("", present) and _is_in(pool, present):
        first = min(holders(present), key=rank, default=service)
        if rank(first) == rank(service):
            return present
    if asked:
        return _asked(pool, service, holders)
    for address in _addresses(pool):
        if not holders(address):
            return address
    raise PoolError(f"all addresses of {pool} are in use")


def _asked(pool: IPv4Network, service: Service, holders: Callable[[str], list[Service]]) -> str:
    address = service.spec.loadBalancerIP
    if not _is_in(pool, address):
        raise PoolError(f"the address {address} that spec.loadBalancerIP asks for is not in {pool}")
    others = [each for each in holders(address) if rank(each) != rank(service)]
    if others:
        holder = min(map(rank, others))
        raise PoolError(f"the address {address} belongs to {holder.namespace}/{holder.name}")
    return address


def _is_in(pool: IPv4Network, address: str) -> bool:
    try:
        given = IPv4Address(address)
    except ValueError:
        return False
    if pool.prefixlen >= 31:
        return given in pool
    return given in pool and given not in (pool.network_address, pool.broadcast_address)


def _addresses(pool: IPv4Network) -> Iterator[str]:
    return map(str, pool.hosts())
