"""The bridge of one node: a veth pair and an address for each pod, and host ports."""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Set
from functools import partial
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Final

from kedge.machinery import atomic
from kedge.machinery.clock import Clock, SystemClock
from kedge.node.network import forward, masquerade
from kedge.node.network.addresses import AddressPool, free_network
from kedge.node.network.forward import PortListener, RetryingListener
from kedge.node.network.netlink import Netlink
from kedge.node.runtime.runtime import PortMapping, RuntimeFailure, SandboxConfig
from kedge.supervisor.files.spread import spread

log = logging.getLogger(__name__)

SERVICE: Final = IPv4Address("10.96.0.1")
"""The cluster IP of the service `kubernetes`, at which pods find the API server."""
SERVICE_PORT: Final = 443
_TABLE: Final = 27_000
"""The number of a node's routing table is this plus the third octet of its network."""
_POD_LINK: Final = "eth0"
_TRIED_EVERY: Final = 1.0
"""Seconds between two tries to listen on a port that is in use."""
_LINKS: Final = "/sys/class/net"
_BRIDGES: Final = "kbr"
"""The prefix of the bridges of all nodes, of all users."""


class Bridge:
    """The network of one node.

    Its name, its network and the holders of addresses are stored in a directory, so that a
    restarted agent continues with them and `remove` finds everything. The owner must `run` it.
    """

    def __init__(self, directory: Path, network: IPv4Network, clock: Clock | None = None) -> None:
        self.network = network
        self._directory = directory
        self._addresses = AddressPool(directory / "addresses", network)
        self._link = link_name(_BRIDGES, str(directory))
        self._clock = clock or SystemClock()
        self._host = Netlink()
        self._ports: dict[str, list[PortListener]] = {}
        self._door: PortListener | None = None
        self._refused: asyncio.Queue[RetryingListener] = asyncio.Queue()

    @classmethod
    def find(cls, directory: Path, clock: Clock | None = None) -> "Bridge":
        """Return the bridge of this directory, with a new network if it has none."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        spread(str(directory))
        kept = directory / "network"
        if not kept.exists():
            with Netlink() as netlink:
                chosen = free_network(netlink.networks())
            atomic.write(kept, str(chosen).encode())
        return cls(directory, IPv4Network(kept.read_text()), clock)

    @property
    def gateway(self) -> IPv4Address:
        """The address of the node in the network of its pods."""
        return self._addresses.gateway

    @property
    def table(self) -> int:
        return _TABLE + self.network.network_address.packed[2]

    async def open(self, server: Callable[[], tuple[str, int]]) -> None:
        """Create the bridge, and forward the address of the service `kubernetes` to the API
        server."""
        host = self._host
        with _alone():
            if not host.index(self._link):
                self._avoid_others()
                host.add_bridge(self._link)
            index = host.index(self._link)
            with contextlib.suppress(FileExistsError):
                gateway = f"{self._addresses.gateway}/{self.network.prefixlen}"
                host.add_address(index, IPv4Interface(gateway))
            host.raise_link(index)
        host.deliver_here(self._link, SERVICE, self.table)
        here = (str(SERVICE), SERVICE_PORT)
        self._door = await self._awaited(
            f"the API server at {SERVICE}",
            lambda: forward.listen_on_link(self._link, here, server),
        )
        said = await masquerade.allow(self._link, self.network)
        log.info("network of pods bridge=%s network=%s: %s", self._link, self.network, said)

    def _avoid_others(self) -> None:
        """Take another network if another node has taken this one. No pod is attached yet."""
        if not self._taken():
            return
        for holder in self._addresses.holders():
            self._addresses.give_back(holder)
        self.network = free_network(self._host.networks())
        atomic.write(self._directory / "network", str(self.network).encode())
        self._addresses = AddressPool(self._directory / "addresses", self.network)

    def _taken(self) -> bool:
        return any(self.network.overlaps(other) for other in self._host.networks())

    async def attach(
        self, sandbox: str, spec: SandboxConfig, namespace: str, descriptor: int
    ) -> list[str]:
        """Attach a pod; return its addresses. The descriptor is a netlink socket in its network
        namespace, and is closed."""
        address = self._addresses.take(sandbox)
        cable = link_name("kv", sandbox)
        with Netlink(socket.socket(fileno=descriptor)) as inside:
            try:
                self._host.remove_link(cable)
                master = self._host.index(self._link)
                self._host.add_pair(cable, _POD_LINK, namespace, master)
                index = inside.index(_POD_LINK)
                inside.add_address(index, IPv4Interface(f"{address}/{self.network.prefixlen}"))
                inside.raise_link(index)
                inside.add_default_route(index, self._addresses.gateway)
                opened = self._ports.setdefault(sandbox, [])
                for port in _host_ports(spec):
                    opened.append(await _opened(port, str(address)))
            except OSError as error:
                await self.detach(sandbox)
                raise RuntimeFailure(f"cannot set up the network of the pod: {error}") from error
        return [str(address)]

    async def detach(self, sandbox: str) -> None:
        """Detach a pod and release its address. Idempotent."""
        for listening in self._ports.pop(sandbox, []):
            listening.close()
        self._host.remove_link(link_name("kv", sandbox))
        self._addresses.give_back(sandbox)

    async def detach_others(self, sandboxes: Set[str]) -> None:
        """Detach all pods but these."""
        for holder in self._addresses.holders():
            if holder not in sandboxes:
                await self.detach(holder)

    async def open_ports(self, sandbox: str, spec: SandboxConfig, address: str) -> None:
        """Open the host ports of a pod again after a restart. A port that is in use is opened as
        soon as it is free."""
        opened = self._ports.setdefault(sandbox, [])
        for port in _host_ports(spec):
            what = f"pod {spec.namespace}/{spec.name} at port {port.host_port}"
            opened.append(await self._awaited(what, partial(_opened, port, address)))

    async def _awaited(
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
        """Close the listeners; links and routes stay, so pods keep their network."""
        for opened in self._ports.values():
            for listening in opened:
                listening.close()
        if self._door is not None:
            self._door.close()
        self._host.close()

    async def remove(self) -> None:
        """Remove the bridge and everything that belongs to it."""
        host = self._host
        for sandbox in self._addresses.holders():
            await self.detach(sandbox)
        with _alone():
            # Without the bridge, the network and its routes may belong to another node by now.
            if host.index(self._link) or not self._taken():
                await masquerade.forbid(self._link, self.network)
                host.stop_delivering(self._link, SERVICE, self.table)
                host.remove_link(self._link)
                if not any(name.startswith(_BRIDGES) for name in os.listdir(_LINKS)):
                    masquerade.stop_forwarding()
        self.close()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Lock out other agents of this machine: two must not take the same network."""
    held = os.open(_LINKS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _host_ports(spec: SandboxConfig) -> Iterator[PortMapping]:
    return (port for port in spec.ports if port.host_port)


async def _opened(port: PortMapping, address: str) -> PortListener:
    here = port.host_ip or "0.0.0.0"
    target = (address, port.container_port)
    match port.protocol:
        case "TCP":
            return await forward.listen_tcp(here, port.host_port, target)
        case "UDP":
            return await forward.listen_udp(here, port.host_port, target)
    raise OSError(f"host ports for {port.protocol} are not supported")


def link_name(prefix: str, what: str) -> str:
    """Return a name for a link of at most 15 characters, the kernel's limit."""
    return prefix + hashlib.sha256(os.fsencode(what)).hexdigest()[:10]
