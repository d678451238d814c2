"""The network of pods that share the machine's: each pod has an address of the loopback network.

Without the right to make network links, a pod cannot have a network of its own. Every address of
127.0.0.0/8 belongs to the machine, so a program reaches the pods and, through listeners of the
agent, the Services at addresses of that network. A program that binds to all addresses answers at
the address of every pod: two of them cannot use the same port.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Set
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from kedge.api.builtin import service_networks
from kedge.api.builtin.service_networks import (
    LOOPBACK_PODS,
    LOOPBACK_SERVICES,
    NODE_PREFIX,
    on_loopback,
)
from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery import atomic
from kedge.machinery.clock import Clock, SystemClock
from kedge.node.network import forward
from kedge.node.network.addresses import AddressPool, NoFreeAddress, kept_network
from kedge.node.network.forward import PortListener, RetryingListener
from kedge.node.network.machine_names import MachineNames
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.runtime.runtime import PortMapping, RuntimeFailure, SandboxConfig

_SERVER_PORT: Final = 443
_KINDS: Final = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}
_TRIED_EVERY: Final = 1.0
"""Seconds between two tries to listen on a port that is in use."""


class LoopbackNetwork:
    """Addresses of the pods of one node, and listeners for Services and host ports. The owner must
    `run` it."""

    link: str = "lo"
    namespace: NetworkPlace = MACHINE
    ends_with_supervisor: bool = False

    def __init__(
        self, directory: Path, clock: Clock | None = None, *, has_dns: bool = True
    ) -> None:
        """Use the network that the directory names, or choose one."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._clock = clock or SystemClock()
        self._use(kept_network(directory / "network") or _free_network(directory, ()))
        self.services, self._claim = _claimed_services(directory / "services")
        """The network in which pods find cluster IPs."""
        self.names = MachineNames(is_wanted=has_dns)
        self._specs: dict[str, SandboxConfig] = {}
        self._ports: dict[str, list[PortListener]] = {}
        self._refused: asyncio.Queue[RetryingListener] = asyncio.Queue()
        self._door: RetryingListener | None = None

    def _use(self, network: IPv4Network) -> None:
        self.network = network
        atomic.write(self._directory / "network", str(network).encode())
        self._addresses = AddressPool(self._directory / "addresses", network)

    @property
    def gateway(self) -> IPv4Address:
        """The address of the node."""
        return self._addresses.gateway

    def prefer(self, network: IPv4Network) -> None:
        """Take a network that the node had before."""
        if network != self.network and network.subnet_of(LOOPBACK_PODS):
            self._use(network)

    def reserve(self, avoided: Collection[IPv4Network] = ()) -> None:
        """Take another network if this one is among those to avoid."""
        if self.network in avoided:
            self._use(_free_network(self._directory, avoided))

    def release(self) -> bool:
        """Return whether the network can be replaced: it has no pods yet."""
        return not self._addresses.holders()

    async def open_server(self, server: tuple[str, int]) -> None:
        """Forward the service address of the API server."""
        here = self.service_address(service_networks.API_SERVICE_ADDRESS)
        listen = partial(forward.listen_tcp, here, _SERVER_PORT, server)
        self._door = await self.listener(f"the API server at {here}", listen)

    @property
    def dns(self) -> IPv4Address:
        """The address at which pods find the cluster's DNS server."""
        return IPv4Address(self.service_address(service_networks.DNS_SERVICE_ADDRESS))

    def service_address(self, cluster_ip: str) -> str:
        """Return the address at which pods find a cluster IP."""
        return on_loopback(cluster_ip, self.services) or cluster_ip

    def resolver_variables(self, pod: Pod) -> Mapping[str, str]:
        """Return the variables by which a pod finds names of its namespace."""
        return self.names.variables(pod, self.dns)

    def address_of(self, sandbox: str) -> str:
        """Return the address of a pod; empty if it has none."""
        return str(self._addresses.of(sandbox) or "")

    async def attach(
        self, sandbox: str, spec: SandboxConfig, namespace: str, descriptor: int
    ) -> list[str]:
        """Give a pod an address, and open its host ports. There is no namespace."""
        try:
            address = str(self._addresses.take(sandbox))
        except NoFreeAddress as error:
            raise RuntimeFailure(str(error)) from error
        self._specs[sandbox] = spec
        try:
            opened = self._ports.setdefault(sandbox, [])
            for port in _forwarded(spec):
                opened.append(await _listen(port, address))
        except OSError as error:
            await self.detach(sandbox)
            raise RuntimeFailure(f"cannot set up the network of the pod: {error}") from error
        return [address]

    async def detach(self, sandbox: str) -> None:
        """Release the address of a pod. Idempotent."""
        for listening in self._ports.pop(sandbox, []):
            listening.close()
        self._specs.pop(sandbox, None)
        self._addresses.give_back(sandbox)

    async def detach_others(self, sandboxes: Set[str]) -> None:
        """Detach all pods but these."""
        for holder in self._addresses.holders():
            if holder not in sandboxes:
                await self.detach(holder)

    async def adopt(self, sandbox: str, spec: SandboxConfig, address: str) -> None:
        """Take over a pod after a restart of the agent, and open its host ports again."""
        self._specs[sandbox] = spec
        opened = self._ports.setdefault(sandbox, [])
        for port in _forwarded(spec):
            what = f"pod {spec.namespace}/{spec.name} at port {port.host_port}"
            opened.append(await self.listener(what, partial(_listen, port, address)))

    def collisions(self, sandbox: str) -> list[str]:
        """Return, in words, the declared ports of a pod that it may not get."""
        spec, address = self._specs.get(sandbox), self.address_of(sandbox)
        if spec is None:
            return []
        return [
            f"port {port.container_port} ({port.protocol}) {why}: pods of this node share the"
            f" machine's network, so its program must bind to {address}, the pod's address"
            " (status.podIP)"
            for port in spec.ports
            if (why := self._collision(sandbox, port, address))
        ]

    def _collision(self, sandbox: str, port: PortMapping, address: str) -> str:
        for other, spec in self._specs.items():
            if other != sandbox and any(_is_same(port, each) for each in spec.ports):
                return f"is also declared by the pod {spec.namespace}/{spec.name}"
        return "is in use by another program" if _is_in_use(port, address) else ""

    async def listener(
        self, what: str, listen: Callable[[], Awaitable[PortListener]]
    ) -> RetryingListener:
        """Open a listener now or, if that fails, in `run`."""
        made = RetryingListener(what, listen)
        if not await made.attempt():
            self._refused.put_nowait(made)
        return made

    async def run(self) -> None:
        """Retry listeners that could not be opened, until cancelled."""
        while True:
            each = await self._refused.get()
            await self._clock.sleep(_TRIED_EVERY)
            if not await each.attempt():
                self._refused.put_nowait(each)

    def close(self) -> None:
        """Close all listeners of pods and that of the API server."""
        for opened in self._ports.values():
            for listening in opened:
                listening.close()
        if self._door is not None:
            self._door.close()
        self._claim.close()
        self.names.close()


def _claimed_services(kept: Path) -> tuple[IPv4Network, socket.socket]:
    """Return a network of cluster IPs that no other node of the machine uses, and the socket that
    says so: the one of before if it is free. The name of the socket has no file, and ends with
    this process."""
    before = IPv4Network(kept.read_text()) if kept.exists() else LOOPBACK_SERVICES[0]
    for network in (before, *LOOPBACK_SERVICES):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0kedge-services-{network}")
        except OSError:
            claim.close()
            continue
        atomic.write(kept, str(network).encode())
        return network, claim
    raise OSError(errno.EADDRINUSE, f"{len(LOOPBACK_SERVICES)} nodes of this machine have Services")


def _free_network(directory: Path, avoided: Collection[IPv4Network]) -> IPv4Network:
    """Return a network for a node, another one for most other directories: nodes of several
    clusters do not know of each other."""
    subnets = list(LOOPBACK_PODS.subnets(new_prefix=NODE_PREFIX))
    first = hashlib.sha256(os.fsencode(directory)).digest()[0]
    for network in subnets[first:] + subnets[:first]:
        if network not in avoided:
            return network
    raise NoFreeAddress(f"no network of {LOOPBACK_PODS} is free")


def _forwarded(spec: SandboxConfig) -> Iterator[PortMapping]:
    """Yield the host ports to forward. A program that listens on the same number needs none."""
    return (port for port in spec.ports if port.host_port and port.host_port != port.container_port)


async def _listen(port: PortMapping, address: str) -> PortListener:
    here, target = (port.host_ip or "0.0.0.0", port.host_port), (address, port.container_port)
    match port.protocol:
        case "TCP":
            return await forward.listen_tcp(*here, target)
        case "UDP":
            return await forward.listen_udp(*here, target)
    raise OSError(f"host ports for {port.protocol} are not supported")


def _is_same(port: PortMapping, other: PortMapping) -> bool:
    return (port.container_port, port.protocol) == (other.container_port, other.protocol)


def _is_in_use(port: PortMapping, address: str) -> bool:
    """Return whether a program listens on the port, at this address or at all."""
    kind = _KINDS.get(port.protocol)
    if kind is None or not address:
        return False
    with contextlib.closing(socket.socket(socket.AF_INET, kind)) as tried:
        if kind == socket.SOCK_STREAM:
            # Connections that have ended do not count.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address, port.container_port))
        except PermissionError:
            return False
        except OSError:
            return True
    return False
