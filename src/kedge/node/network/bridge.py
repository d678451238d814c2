"""The bridge of one node: a veth pair and an address for each pod, and host ports."""

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator, Set
from functools import partial
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Final

from kedge.api.builtin import service_networks
from kedge.dns import query_budget
from kedge.machinery import atomic
from kedge.machinery.clock import Clock, SystemClock
from kedge.node.network import forward, forwarding, peer_links, tunnel
from kedge.node.network.addresses import CLUSTER, AddressPool, free_network, kept_network
from kedge.node.network.attached_pods import AttachedPod, AttachedPods
from kedge.node.network.forward import NodeLink, PortListener, RetryingListener
from kedge.node.network.link_remover import LinkRemover
from kedge.node.network.netlink import Netlink
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.node_table import NodeTable, host_port_element, machine_lock
from kedge.node.network.policy_table import PolicyTable
from kedge.node.network.port_guard import PortGuard
from kedge.node.network.ruleset import (
    QueryLimit,
    ServerLimit,
    TableScope,
    WayOutAddress,
    WayOutPorts,
)
from kedge.node.runtime.runtime import PortMapping, RuntimeFailure, SandboxConfig
from kedge.settings.service_defaults import LOAD_BALANCER_NETWORK
from kedge.supervisor.files.spread import spread

log = logging.getLogger(__name__)

SERVICE: Final = IPv4Address(service_networks.API_SERVICE_ADDRESS)
"""The cluster IP of the service `kubernetes`, at which pods find the API server."""
SERVICE_PORT: Final = 443
SERVICE_RANGE: Final = service_networks.SERVICE_RANGE
DNS_SERVICE: Final = IPv4Address(service_networks.DNS_SERVICE_ADDRESS)
"""The cluster IP of the service `kube-dns`."""
DNS_PORT: Final = 53
BALANCER_RANGE: Final = IPv4Network(LOAD_BALANCER_NETWORK)
"""The default addresses of Services of type LoadBalancer."""
_TABLE: Final = 27_000
"""The number of a node's routing table is this plus the third octet of its network."""
_POD_LINK: Final = "eth0"
_TRIED_EVERY: Final = 1.0
"""Seconds between two tries to listen on a port that is in use."""
_BRIDGES: Final = "kbr"
"""The prefix of the bridges of all nodes, of all users."""


class Bridge:
    """The network of one node.

    Its name, its network and the holders of addresses are stored in a directory, so that a
    restarted agent continues with them and `remove` finds everything. The owner must `run` it.
    """

    def __init__(
        self,
        directory: Path,
        network: IPv4Network,
        clock: Clock | None = None,
        balancers: IPv4Network = BALANCER_RANGE,
        pod_mtu: int = 0,
        namespace: NetworkPlace = MACHINE,
    ) -> None:
        """`balancers` is the network of Services of type LoadBalancer, `pod_mtu` the largest packet
        of pods; 0 for the kernel's default."""
        self.network = network
        self.namespace = namespace
        self._balancers = balancers
        self._pod_mtu = pod_mtu
        self.refusal = ""
        """Why the kernel carries no Services; empty if it does."""
        self._directory = directory
        self._addresses = AddressPool(directory / "addresses", network)
        self._link = link_name(_BRIDGES, str(directory))
        self._clock = clock or SystemClock()
        self._host = Netlink.within(namespace)
        self._remover = LinkRemover(namespace)
        self._way_out: WayOutPorts | None = None
        self.table = NodeTable(self._scope(), namespace)
        self.policies = PolicyTable(self._link, namespace)
        self.attached = AttachedPods()
        self._guard = PortGuard(self._link, _hardware_address(self._link), namespace)
        self._ports: dict[str, list[PortListener]] = {}
        self._host_ports: dict[str, list[bytes]] = {}
        self._door: PortListener | None = None
        self._refused: asyncio.Queue[RetryingListener] = asyncio.Queue()

    @classmethod
    def find(
        cls,
        directory: Path,
        clock: Clock | None = None,
        balancers: IPv4Network = BALANCER_RANGE,
        pod_mtu: int = 0,
        namespace: NetworkPlace = MACHINE,
    ) -> "Bridge":
        """Return the bridge of this directory, with a new network if it has none."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        spread(str(directory))
        kept = directory / "network"
        network = kept_network(kept)
        if network is None:
            with Netlink.within(namespace) as netlink:
                network = free_network(netlink.networks())
            atomic.write(kept, str(network).encode())
        return cls(directory, network, clock, balancers, pod_mtu, namespace)

    @property
    def link(self) -> str:
        """The name of the bridge, which is also the name of its table."""
        return self._link

    @property
    def way_out(self) -> WayOutAddress | None:
        """Where connections to the outside are sent to; None if they are routed."""
        return None if self._way_out is None else WayOutAddress(self.gateway, self._way_out)

    @property
    def ends_with_supervisor(self) -> bool:
        """Whether the supervisor holds the network namespace."""
        return not self.namespace.is_machine

    @property
    def tunnel(self) -> str:
        """The name of the node's VXLAN link, if it has one."""
        return tunnel.LINKS + self._link.removeprefix(_BRIDGES)

    @property
    def gateway(self) -> IPv4Address:
        """The address of the machine on this bridge."""
        return self._addresses.gateway

    @property
    def metric(self) -> int:
        """The metric of the node's routes to pods of other machines, which no other node of this
        machine has."""
        return self._delivery

    def _scope(self) -> TableScope:
        return TableScope(
            link=self._link,
            links=_BRIDGES,
            network=self.network,
            gateway=self.gateway,
            pods=CLUSTER,
            services=(SERVICE_RANGE, self._balancers),
            owns_machine=False,
            query_limit=QueryLimit(DNS_PORT, query_budget.PER_SECOND, query_budget.BURST),
            way_out=self._way_out,
        )

    @property
    def _delivery(self) -> int:
        """A number that no other node of this machine has: that of the routing table of packets to
        the API server, if the kernel refuses nf_tables."""
        return _TABLE + self.network.network_address.packed[2]

    def prefer(self, network: IPv4Network) -> None:
        """Take a network that the node had before, if the bridge does not exist yet."""
        if network != self.network and not self._host.index(self._link):
            self._renumber(network)

    def reserve(self, avoided: Collection[IPv4Network] = ()) -> None:
        """Create the bridge, so that no other node of this machine takes its network. It gets
        another network if the machine uses this one, or if it is among those to avoid."""
        host = self._host
        with machine_lock():
            if not host.index(self._link):
                self._avoid_others(avoided)
                host.add_bridge(self._link, _hardware_address(self._link))
            index = host.index(self._link)
            with contextlib.suppress(FileExistsError):
                gateway = f"{self.gateway}/{self.network.prefixlen}"
                host.add_address(index, IPv4Interface(gateway))
            host.raise_link(index)

    def release(self) -> bool:
        """Remove a bridge that has no pods yet; return whether that was possible."""
        if self._addresses.holders():
            return False
        self._host.remove_link(self._link)
        return True

    async def open(self) -> None:
        """Create the bridge, unless it is reserved, and its nf_tables table."""
        self.add_bridge()
        await self.add_rules()

    def add_bridge(self) -> None:
        """Create the bridge, unless it is reserved."""
        self.reserve()
        forwarding.forward_between_pods(self._link, self.namespace)
        self._guard.open()

    async def add_rules(self, way_out: WayOutPorts | None = None) -> None:
        """Create its nf_tables table, or take over that of the previous agent. With a `way_out`,
        connections to the outside go to these ports of the gateway address."""
        self._way_out = way_out
        self.table.scope = self.table.scope._replace(way_out=way_out)
        try:
            await self.table.open()
        except OSError as error:
            self.refusal = f"the kernel refuses nf_tables: {error}"
            log.warning("%s; Services are forwarded in user space", self.refusal)
            log.warning("pods reach only this machine and each other")
            return
        log.info("network of pods bridge=%s network=%s", self._link, self.network)
        if self.namespace.is_machine:
            forwarding.reach_loopback(self._link)
            forwarding.start_forwarding()
            self._warn_of_firewalls()

    def _warn_of_firewalls(self) -> None:
        with contextlib.suppress(OSError), contextlib.closing(NftablesSocket()) as channel:
            for table in channel.dropping_tables():
                log.warning(
                    "table=%s drops forwarded packets: pods may not reach each other or the outside"
                    " unless it accepts those of the interfaces %s+",
                    table,
                    _BRIDGES,
                )

    async def open_server(self, server: tuple[str, int]) -> tuple[str, int]:
        """Return the address at which rules reach the API server. Without rules, forward its
        service address in user space."""
        host, port = server
        if self.refusal:
            self._host.deliver_here(self._link, SERVICE_RANGE, self._delivery)
            here, link = (str(SERVICE), SERVICE_PORT), NodeLink(self._link, self.namespace)
            self._door = await self.listener(
                f"the API server at {SERVICE}",
                lambda: forward.listen_on_link(link, here, lambda _: server),
            )
            return server
        if self._way_out is not None:
            return self._limited(self.gateway, self._way_out.server)
        try:
            there = IPv4Address(host)
        except ValueError:
            # The name may mean another address tomorrow.
            door = await forward.listen_tcp(str(self.gateway), 0, server)
            self._door = door
            there, port = self.gateway, door.sockets[0].getsockname()[1]
        return self._limited(there, port)

    def _limited(self, server: IPv4Address, port: int) -> tuple[str, int]:
        """Limit the connections of each pod to the API server; return its address."""
        limit = ServerLimit(server, port, forward.PER_SOURCE)
        self.table.scope = self.table.scope._replace(server_limit=limit)
        return str(server), port

    def _avoid_others(self, avoided: Collection[IPv4Network]) -> None:
        """Take another network if another node has taken this one. No pod is attached yet."""
        if self._taken() or self.network in avoided:
            self._renumber(free_network([*self._host.networks(), *avoided]))

    def _renumber(self, network: IPv4Network) -> None:
        for holder in self._addresses.holders():
            self._addresses.give_back(holder)
        self.network = network
        atomic.write(self._directory / "network", str(self.network).encode())
        self._addresses = AddressPool(self._directory / "addresses", self.network)
        self.table = NodeTable(self._scope(), self.namespace)

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
                # Before there is a link: no packet reaches a pod that its policies do not guard.
                await self.attached.admit(address, _attached(spec))
                master = self._host.index(self._link)
                hardware = _hardware_address(sandbox)
                self._host.add_pair(
                    cable, _POD_LINK, namespace, master, hardware, mtu=self._pod_mtu
                )
                index = self._host.index(cable)
                self._host.reflect(index)
                self._guard.protect(index, hardware, address)
                _configure(inside, address, self.gateway)
                opened = self._ports.setdefault(sandbox, [])
                for port in self._machine_ports(spec):
                    opened.append(await self._opened(port, str(address)))
                await self._translate_host_ports(sandbox, spec, address)
            except TimeoutError as error:
                await self.detach(sandbox)
                raise RuntimeFailure("the network policies of the pod are not in place") from error
            except OSError as error:
                await self.detach(sandbox)
                raise RuntimeFailure(f"cannot set up the network of the pod: {error}") from error
        return [str(address)]

    async def detach(self, sandbox: str) -> None:
        """Detach a pod and release its address. Idempotent."""
        for listening in self._ports.pop(sandbox, []):
            listening.close()
        await self.table.close_host_ports(self._host_ports.pop(sandbox, []))
        cable, address = link_name("kv", sandbox), self._addresses.of(sandbox)
        if address is None:
            # A pod has its address before its link.
            return
        self._guard.forget(self._host.index(cable), _hardware_address(sandbox), address)
        # The address is free when the link is gone: until then the old pod might answer.
        await self._remover.remove(cable)
        if self._addresses.of(sandbox) == address:
            self.attached.release(address)
            self._addresses.give_back(sandbox)

    async def detach_others(self, sandboxes: Set[str]) -> None:
        """Detach all pods but these."""
        async with asyncio.TaskGroup() as tasks:
            for holder in self._addresses.holders():
                if holder not in sandboxes:
                    tasks.create_task(self.detach(holder))

    def address_of(self, sandbox: str) -> str:
        """Return the address of a pod; empty if it has none."""
        return str(self._addresses.of(sandbox) or "")

    def collisions(self, sandbox: str) -> list[str]:
        """Return nothing: each pod has all ports of its own address."""
        return []

    async def adopt(self, sandbox: str, spec: SandboxConfig, address: str) -> None:
        """Take over a pod after a restart of the agent, and open its host ports again. A port that
        is in use is opened as soon as it is free."""
        self.attached.adopt(IPv4Address(address), _attached(spec))
        opened = self._ports.setdefault(sandbox, [])
        for port in self._machine_ports(spec):
            what = f"pod {spec.namespace}/{spec.name} at port {port.host_port}"
            opened.append(await self.listener(what, partial(self._opened, port, address)))
        await self._translate_host_ports(sandbox, spec, IPv4Address(address))

    def _machine_ports(self, spec: SandboxConfig) -> Iterator[PortMapping]:
        """Yield the host ports to listen on. The address of the node is no address of the machine
        if the network is a user's; the kernel alone serves ports there."""
        own = "" if self.namespace.is_machine else str(self.gateway)
        return (port for port in _host_ports(spec) if not own or port.host_ip != own)

    async def _translate_host_ports(
        self, sandbox: str, spec: SandboxConfig, address: IPv4Address
    ) -> None:
        """Let the kernel send connections to host ports into the pod. The listeners in user space
        hold the ports, and serve where the kernel does not."""
        elements = dict(_elements(spec, address))
        self._host_ports[sandbox] = list(elements)
        await self.table.open_host_ports(elements)

    async def _opened(self, port: PortMapping, address: str) -> PortListener:
        """Listen on a host port of the machine."""
        here = port.host_ip or "0.0.0.0"
        target = (address, port.container_port)
        try:
            match port.protocol:
                case "TCP":
                    return await forward.listen_tcp(here, port.host_port, target, self.namespace)
                case "UDP":
                    return await forward.listen_udp(here, port.host_port, target, self.namespace)
        except PermissionError as error:
            why = f"host port {port.host_port} takes root: choose one above 1023"
            raise PermissionError(error.errno, why) from error
        raise OSError(f"host ports for {port.protocol} are not supported")

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
        """Close the listeners; links and routes stay, so pods keep their network."""
        for opened in self._ports.values():
            for listening in opened:
                listening.close()
        if self._door is not None:
            self._door.close()
        self.table.close()
        self.policies.close()
        self._guard.close()
        self._remover.close()
        self._host.close()

    async def remove(self) -> None:
        """Remove the bridge and everything that belongs to it."""
        host = self._host
        await self.detach_others(frozenset())
        with machine_lock():
            self.table.remove()
            self.policies.remove()
            self._guard.remove()
            # Without the bridge, the network and its routes may belong to another node by now.
            if host.index(self._link) or not self._taken():
                for delivered in (SERVICE_RANGE, IPv4Network(SERVICE)):
                    host.stop_delivering(self._link, delivered, self._delivery)
                routes = peer_links.own_routes(host, self.metric)
                peer_links.remove_routes(host, routes, self.metric)
                host.remove_link(self.tunnel)
                host.remove_link(self._link)
                is_last = not any(name.startswith(_BRIDGES) for name in host.links())
                if is_last and self.namespace.is_machine:
                    forwarding.stop_forwarding()
        self.close()


def _configure(inside: Netlink, address: IPv4Address, gateway: IPv4Address) -> None:
    """Give a pod its address. All its packets go to the gateway, also those to pods of the same
    bridge: otherwise answers would reach them past the rules that translated the request."""
    index = inside.index(_POD_LINK)
    inside.add_address(index, IPv4Interface(f"{address}/32"))
    inside.raise_link(index)
    inside.add_link_route(index, IPv4Network(f"{gateway}/32"))
    inside.add_default_route(index, gateway)


def _attached(spec: SandboxConfig) -> AttachedPod:
    return AttachedPod(spec.namespace, spec.name, spec.labels)


def _host_ports(spec: SandboxConfig) -> Iterator[PortMapping]:
    return (port for port in spec.ports if port.host_port)


def _elements(spec: SandboxConfig, address: IPv4Address) -> Iterator[tuple[bytes, bytes]]:
    for port in _host_ports(spec):
        with contextlib.suppress(ValueError):
            yield host_port_element(
                port.host_ip, port.protocol, port.host_port, address, port.container_port
            )


def link_name(prefix: str, what: str) -> str:
    """Return a name for a link of at most 15 characters, the kernel's limit."""
    return prefix + hashlib.sha256(os.fsencode(what)).hexdigest()[:10]


def _hardware_address(name: str) -> bytes:
    """Return a hardware address of our own making: the bit for local administration is set."""
    return b"\x02" + hashlib.sha256(name.encode()).digest()[:5]
