"""A bridge for the pods of one node, a cable and an address for each, and their host ports."""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Final, Protocol

from kedge.machinery import atomic
from kedge.node.network import forward, masquerade
from kedge.node.network.addresses import Addresses, free_network
from kedge.node.network.netlink import Netlink
from kedge.node.runtime.runtime import PortMapping, RuntimeFailure, SandboxSpec
from kedge.supervisor.spread import spread

log = logging.getLogger(__name__)

SERVICE: Final = IPv4Address("10.96.0.1")
"""The address of the service `kubernetes`, under which pods look for the API server."""
SERVICE_PORT: Final = 443
_TABLE: Final = 27_000
"""Routing tables of nodes are numbered from here, by the third part of their network."""
_POD_LINK: Final = "eth0"


class Closing(Protocol):
    """Something that listens until it is closed."""

    def close(self) -> None: ...


class Bridge:
    """The network of one node. Its name, its network and who has which address are kept in a
    directory, so that the next agent goes on with it and `remove` finds everything."""

    def __init__(self, directory: Path, network: IPv4Network) -> None:
        self.network = network
        self._directory = directory
        self._addresses = Addresses(directory / "addresses", network)
        self._link = link_name("kbr", str(directory))
        self._host = Netlink()
        self._ports: dict[str, list[Closing]] = {}
        self._door: asyncio.Server | None = None

    @classmethod
    def find(cls, directory: Path) -> "Bridge":
        """The bridge of this directory, with a network of its own, made if need be."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        spread(str(directory))
        kept = directory / "network"
        if not kept.exists():
            with Netlink() as netlink:
                chosen = free_network(netlink.networks())
            atomic.write(kept, str(chosen).encode())
        return cls(directory, IPv4Network(kept.read_text()))

    @property
    def table(self) -> int:
        return _TABLE + self.network.network_address.packed[2]

    async def open(self, server: Callable[[], tuple[str, int]]) -> None:
        """Bring the bridge up, and let pods find the API server at its usual address."""
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
        self._door = await forward.listen_on_link(self._link, SERVICE_PORT, server)
        said = await masquerade.allow(self._link, self.network, self._directory / "forwarding")
        log.info("network of pods bridge=%s network=%s: %s", self._link, self.network, said)

    def _avoid_others(self) -> None:
        """Take another network if somebody has ours by now. No pod is plugged in yet."""
        taken = list(self._host.networks())
        if not any(self.network.overlaps(other) for other in taken):
            return
        for holder in self._addresses.holders():
            self._addresses.give_back(holder)
        self.network = free_network(taken)
        atomic.write(self._directory / "network", str(self.network).encode())
        self._addresses = Addresses(self._directory / "addresses", self.network)

    async def attach(
        self, sandbox: str, spec: SandboxSpec, namespace: str, descriptor: int
    ) -> list[str]:
        """Plug a pod in; returns its addresses. The descriptor is a netlink socket inside of it,
        and is closed."""
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
                await self.open_ports(sandbox, spec, str(address))
            except OSError as error:
                await self.detach(sandbox)
                raise RuntimeFailure(f"network of the pod: {error}") from error
        return [str(address)]

    async def detach(self, sandbox: str) -> None:
        """Unplug a pod and forget its address; idempotent."""
        for listening in self._ports.pop(sandbox, []):
            listening.close()
        self._host.remove_link(link_name("kv", sandbox))
        self._addresses.give_back(sandbox)

    async def open_ports(self, sandbox: str, spec: SandboxSpec, address: str) -> None:
        """Let the machine's ports that a pod asks for lead into it; also after a restart."""
        opened = self._ports.setdefault(sandbox, [])
        for port in spec.ports:
            if port.host_port:
                opened.append(await _opened(port, address))

    def close(self) -> None:
        """Let go; what the kernel holds stays, and pods go on."""
        for opened in self._ports.values():
            for listening in opened:
                listening.close()
        if self._door is not None:
            self._door.close()
        self._host.close()

    async def remove(self) -> None:
        """Leave nothing behind."""
        host = self._host
        for sandbox in self._addresses.holders():
            await self.detach(sandbox)
        await masquerade.forbid(self._link, self.network, self._directory / "forwarding")
        host.stop_delivering(self._link, SERVICE, self.table)
        host.remove_link(self._link)
        self.close()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One agent at a time on this machine: two must not take the same network."""
    held = os.open("/sys/class/net", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


async def _opened(port: PortMapping, address: str) -> Closing:
    here = port.host_ip or "0.0.0.0"
    target = (address, port.container_port)
    match port.protocol:
        case "TCP":
            return await forward.listen_tcp(here, port.host_port, target)
        case "UDP":
            return await forward.listen_udp(here, port.host_port, target)
    raise OSError(f"host ports for {port.protocol} are not supported")


def link_name(prefix: str, what: str) -> str:
    """A name for a link: the kernel takes fifteen letters."""
    return prefix + hashlib.sha256(os.fsencode(what)).hexdigest()[:10]
