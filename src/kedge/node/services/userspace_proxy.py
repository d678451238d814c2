"""Carries Services in user space: all of them where the kernel refuses nf_tables, and those from
outside if the pods' network namespace has no link to the machine's network.

Without nf_tables, pods reach cluster IPs, because packets for the service range are delivered to
the agent's listeners. Node ports are listeners on all addresses of the machine. Programs of the
machine do not reach cluster IPs, pods see the machine as their client, and connections end with the
agent.
"""

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from ipaddress import IPv4Address
from typing import Final, NamedTuple, Protocol

from kedge.client.informer import Key
from kedge.machinery.clock import Clock
from kedge.node.network import forward
from kedge.node.network.forward import (
    AddressTargets,
    NodeLink,
    PortListener,
    RetryingListener,
    Target,
)
from kedge.node.network.network_place import NetworkPlace
from kedge.node.services.service_ports import (
    CarriedPort,
    EndpointTarget,
    NodePlace,
    carried_ports,
)
from kedge.node.services.service_watch import ServiceWatch

log = logging.getLogger(__name__)

MERGE_SECONDS: Final = 0.005
_EVERYWHERE: Final = "0.0.0.0"
_LOOPBACK: Final = IPv4Address("127.0.0.1")
_PRIVILEGED: Final = 1024
"""Ports below this one take root."""
_LISTENERS: Final = 1000
"""Listeners of one node; each takes a file descriptor."""


class ServiceAddress(NamedTuple):
    """The address of a service port; node ports have 0.0.0.0."""

    address: str
    protocol: str
    port: int


class ListenedService(NamedTuple):
    """The endpoints of a service address."""

    targets: tuple[EndpointTarget, ...]
    is_sticky: bool
    """Whether a client stays with its endpoint."""


_NOTHING: Final = ListenedService((), False)


ListenedAddresses = Callable[
    [Sequence[CarriedPort]], Iterator[tuple[ServiceAddress, ListenedService]]
]
"""Yields the addresses of a Service at which to listen."""


class ServiceNetwork(Protocol):
    """Opens listeners, and retries those whose port is in use (kedge.node.network.bridge)."""

    @property
    def link(self) -> str: ...

    namespace: NetworkPlace

    async def listener(
        self, what: str, listen: Callable[[], Awaitable[PortListener]]
    ) -> RetryingListener: ...


def service_addresses(
    ports: Sequence[CarriedPort],
) -> Iterator[tuple[ServiceAddress, ListenedService]]:
    """Yield the addresses of a Service at which to listen. A cluster IP without endpoints has a
    listener too, which closes connections: the kernel does not refuse those to addresses that the
    machine does not have."""
    for port in ports:
        if port.protocol not in ("TCP", "UDP"):
            continue
        everywhere, local = port.choice
        sticky = bool(port.affinity_seconds)
        internal = local if port.is_internal_local else everywhere
        external = local if port.is_external_local else everywhere
        for address in port.cluster_addresses:
            here = ServiceAddress(str(address), port.protocol, port.port)
            yield here, ListenedService(internal, sticky)
        if port.node_port and external:
            here = ServiceAddress(_EVERYWHERE, port.protocol, port.node_port)
            yield here, ListenedService(external, sticky)


def loopback_addresses(
    ports: Sequence[CarriedPort],
) -> Iterator[tuple[ServiceAddress, ListenedService]]:
    """Yield the loopback addresses of a Service at which to listen for programs of the machine:
    node ports, and ports of load balancers as far as an ordinary user may use them."""
    for port in ports:
        everywhere, local = port.choice
        external = local if port.is_external_local else everywhere
        if port.protocol not in ("TCP", "UDP") or not external:
            continue
        for number in dict.fromkeys((port.node_port, _balancer_port(port))):
            if number:
                here = ServiceAddress(str(_LOOPBACK), port.protocol, number)
                yield here, ListenedService(external, bool(port.affinity_seconds))


def shared_network_addresses(
    find: Callable[[str], str], ports: Sequence[CarriedPort]
) -> Iterator[tuple[ServiceAddress, ListenedService]]:
    """Yield the addresses of a Service at which to listen for pods that share the machine's
    network: loopback addresses for cluster IPs, which `find` returns, and those for programs of
    the machine."""
    for port in ports:
        everywhere, local = port.choice
        internal = local if port.is_internal_local else everywhere
        if port.protocol not in ("TCP", "UDP"):
            continue
        for address in port.cluster_addresses:
            # Without endpoints there is no listener, and the kernel refuses connections.
            here = find(str(address))
            if internal and IPv4Address(here).is_loopback:
                place = ServiceAddress(here, port.protocol, port.port)
                yield place, ListenedService(internal, bool(port.affinity_seconds))
    yield from loopback_addresses(ports)


def _balancer_port(port: CarriedPort) -> int:
    """Return the port of a load balancer that a program of the machine may use; 0 for none."""
    ranges = port.source_ranges
    is_open = ranges is None or any(_LOOPBACK in each for each in ranges)
    return port.port if port.balancer_addresses and port.port >= _PRIVILEGED and is_open else 0


class UserspaceProxy:
    """Forwards connections to Services. The owner must `run` it."""

    def __init__(
        self,
        watch: ServiceWatch,
        network: ServiceNetwork,
        place: NodePlace,
        clock: Clock,
        addresses: ListenedAddresses = service_addresses,
    ) -> None:
        """`addresses` returns where to listen for a Service."""
        self._find_addresses = addresses
        self._watch = watch
        self._network = network
        self._place = place
        self._clock = clock
        self._dirty: dict[Key, None] = {}
        self._woken = asyncio.Event()
        self._owners: dict[ServiceAddress, Key] = {}
        self._services: dict[ServiceAddress, ListenedService] = {}
        self._listeners: dict[ServiceAddress, RetryingListener] = {}
        watch.listen(self._note)

    async def run(self) -> None:
        """Follow Services until cancelled."""
        await self._watch.synced()
        try:
            while True:
                self._woken.clear()
                while self._dirty:
                    key = next(iter(self._dirty))
                    del self._dirty[key]
                    await self._update(key)
                    await self._clock.give_way()
                await self._woken.wait()
                await self._clock.sleep(MERGE_SECONDS)
        finally:
            for listener in self._listeners.values():
                listener.close()

    def _note(self, key: Key) -> None:
        self._dirty[key] = None
        self._woken.set()

    async def _update(self, key: Key) -> None:
        found = self._watch.services.get(key.name, key.namespace)
        ports = [] if found is None else carried_ports(found, self._watch.slices(key), self._place)
        # The API server has a listener of its own.
        is_api_server = key == Key("default", "kubernetes")
        wanted = {} if is_api_server else dict(self._find_addresses(ports))
        for gone in [each for each, owner in self._owners.items() if owner == key]:
            if gone not in wanted:
                self._close(gone)
        for address, service in wanted.items():
            # Two Services may name the same address; the first one keeps it.
            if self._owners.get(address, key) == key:
                await self._carry(key, address, service)

    async def _carry(self, key: Key, address: ServiceAddress, service: ListenedService) -> None:
        if address not in self._listeners and len(self._listeners) >= _LISTENERS:
            log.warning("too many services to forward in user space service=%s/%s", *key)
            return
        self._owners[address] = key
        self._services[address] = service
        if address not in self._listeners:
            what = f"service {key.namespace}/{key.name} at {address.address}:{address.port}"
            link = NodeLink(self._network.link, self._network.namespace)
            targets = AddressTargets(
                partial(self._choose, address), partial(self._is_current, address)
            )
            listen = partial(_listen, link, address, targets)
            self._listeners[address] = await self._network.listener(what, listen)

    def _close(self, address: ServiceAddress) -> None:
        del self._owners[address], self._services[address]
        self._listeners.pop(address).close()

    def _choose(self, address: ServiceAddress, client: str) -> Target:
        target = choose_target(self._services.get(address, _NOTHING), client)
        return str(target.address), target.port

    def _is_current(self, address: ServiceAddress, target: Target) -> bool:
        targets = self._services.get(address, _NOTHING).targets
        return any((str(each.address), each.port) == target for each in targets)


def choose_target(service: ListenedService, client: str) -> EndpointTarget:
    """Return any endpoint; with affinity, the same one for each client while none comes or goes."""
    if not service.targets:
        raise ConnectionRefusedError("the service has no endpoints")
    if not service.is_sticky:
        return random.choice(service.targets)
    digest = hashlib.sha256(client.encode()).digest()
    return service.targets[int.from_bytes(digest[:8], "big") % len(service.targets)]


async def _listen(link: NodeLink, address: ServiceAddress, targets: AddressTargets) -> PortListener:
    find, is_current = targets
    here = (address.address, address.port)
    is_of_machine = address.address == _EVERYWHERE or IPv4Address(address.address).is_loopback
    match is_of_machine, address.protocol:
        case True, "TCP":
            return await forward.listen_tcp_for(*here, find, link.network)
        case True, _:
            return await forward.listen_udp_for(*here, find, link.network, is_current)
        case False, "TCP":
            return await forward.listen_on_link(link, here, find, link.network)
    return await forward.listen_udp_on_link(link, here, find, is_current)
