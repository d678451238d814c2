"""Carries Services in user space, where the kernel refuses nf_tables.

Pods reach cluster IPs, because packets for the service range are delivered to the agent's
listeners. Node ports are listeners on all addresses of the machine. Programs of the machine do not
reach cluster IPs, pods see the machine as their client, and connections end with the agent.
"""

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from kedge.client.informer import Key
from kedge.machinery.clock import Clock
from kedge.node.network import forward
from kedge.node.network.forward import PortListener, RetryingListener, Target
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


class ServiceNetwork(Protocol):
    """Opens listeners, and retries those whose port is in use (kedge.node.network.bridge)."""

    @property
    def link(self) -> str: ...

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


class UserspaceProxy:
    """Forwards connections to Services. The owner must `run` it."""

    def __init__(
        self, watch: ServiceWatch, network: ServiceNetwork, place: NodePlace, clock: Clock
    ) -> None:
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
        wanted = {} if is_api_server else dict(service_addresses(ports))
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
            listen = partial(_listen, self._network.link, address, partial(self._choose, address))
            self._listeners[address] = await self._network.listener(what, listen)

    def _close(self, address: ServiceAddress) -> None:
        del self._owners[address], self._services[address]
        self._listeners.pop(address).close()

    def _choose(self, address: ServiceAddress, client: str) -> Target:
        target = choose_target(self._services.get(address, _NOTHING), client)
        return str(target.address), target.port


def choose_target(service: ListenedService, client: str) -> EndpointTarget:
    """Return any endpoint; with affinity, the same one for each client while none comes or goes."""
    if not service.targets:
        raise ConnectionRefusedError("the service has no endpoints")
    if not service.is_sticky:
        return random.choice(service.targets)
    digest = hashlib.sha256(client.encode()).digest()
    return service.targets[int.from_bytes(digest[:8], "big") % len(service.targets)]


async def _listen(
    link: str, address: ServiceAddress, find: Callable[[str], Target]
) -> PortListener:
    here = (address.address, address.port)
    match address.address == _EVERYWHERE, address.protocol:
        case True, "TCP":
            return await forward.listen_tcp_for(*here, find)
        case True, _:
            return await forward.listen_udp_for(*here, find)
        case False, "TCP":
            return await forward.listen_on_link(link, here, find)
    return await forward.listen_udp_on_link(link, here, find)
