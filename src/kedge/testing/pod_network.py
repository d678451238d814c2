"""A machine with nodes and pods for tests of packet rules, in network namespaces: real bridges,
links and servers."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Final

from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.node.network.bridge import BALANCER_RANGE, Bridge
from kedge.node.network.netlink import Netlink
from kedge.node.runtime.runtime import PortMapping, SandboxConfig
from kedge.node.services.datapath import ServiceDatapath
from kedge.node.services.service_ports import NodePlace, carried_ports
from kedge.node.services.service_rules import service_rules
from kedge.node.services.stale_flows import UdpTargets, udp_targets
from kedge.testing.network import NetworkNamespace, run_elsewhere

PORT: Final = 8080
"""The port of the servers of pods."""
_TEST_SECONDS: Final = 90
"""For one test; its namespaces last for 120."""
_BRIDGED: Final = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


class NetworkPod:
    """A pod of a node, with a server that says the pod's name and the address of the client."""

    def __init__(self, name: str, node: "NetworkNode") -> None:
        self.name = name
        self.node = node
        self.inside = NetworkNamespace()
        self.address = ""

    async def attach(self, *ports: PortMapping) -> None:
        spec = SandboxConfig(namespace="default", name=self.name, uid="u", ports=ports)
        self.address = (
            await self.node.bridge.attach(self.name, spec, self.inside.path, self.inside.netlink())
        )[0]

    def tcp(self) -> socket.socket:
        return self.inside.opened(socket.AF_INET, socket.SOCK_STREAM)

    def udp(self) -> socket.socket:
        return self.inside.opened(socket.AF_INET, socket.SOCK_DGRAM)

    async def serve(self, stack: AsyncExitStack) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(f"{self.name} {writer.get_extra_info('peername')[0]}".encode())
            await writer.drain()
            writer.close()

        listener = self.tcp()
        listener.bind(("0.0.0.0", PORT))
        await stack.enter_async_context(await asyncio.start_server(answer, sock=listener))
        datagrams = stack.enter_context(self.udp())
        datagrams.bind(("0.0.0.0", PORT))
        datagrams.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(datagrams, self._echo, datagrams)
        stack.callback(loop.remove_reader, datagrams)

    def _echo(self, channel: socket.socket) -> None:
        _, sender = channel.recvfrom(100)
        channel.sendto(self.name.encode(), sender)


class NetworkNode:
    """A node with a bridge and its table, whose content is up to the tests."""

    def __init__(self, name: str, directory: Path, balancers: IPv4Network = BALANCER_RANGE) -> None:
        """`balancers` is the pool of load balancers."""
        self.name = name
        self.bridge = Bridge.find(directory / name, balancers=balancers)
        self.datapath = ServiceDatapath()
        self.pods: list[NetworkPod] = []

    async def open(self) -> None:
        await self.bridge.open()
        await self.bridge.table.rewrite(self.datapath.everything)

    async def pod(self, name: str, *ports: PortMapping) -> NetworkPod:
        made = NetworkPod(name, self)
        self.pods.append(made)
        await made.attach(*ports)
        return made

    async def carry(self, service: Service, *slices: EndpointSlice) -> UdpTargets:
        ports = carried_ports(service, slices, NodePlace(self.name))
        name = service.metadata.name
        self.datapath.put(name, service_rules(name, ports))
        await self.bridge.table.apply(self.datapath.change)
        self.datapath.confirm()
        return udp_targets(ports)

    async def remove(self) -> None:
        await self.bridge.remove()
        for each in self.pods:
            each.inside.end()


class NetworkMachine:
    """The namespace that stands for a machine."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory = directory
        self.stack = stack
        self.nodes: list[NetworkNode] = []

    async def node(
        self, name: str = "node-1", balancers: IPv4Network = BALANCER_RANGE
    ) -> NetworkNode:
        made = NetworkNode(name, self.directory, balancers)
        self.nodes.append(made)
        await made.open()
        return made

    async def server(self, node: NetworkNode, name: str, *ports: PortMapping) -> NetworkPod:
        pod = await node.pod(name, *ports)
        await pod.serve(self.stack)
        return pod


def run_on_machine(
    test: Callable[[NetworkMachine], Awaitable[None]], directory: Path, bridged: str
) -> None:
    """Run a test in a namespace of its own, with this setting of `bridge-nf-call-iptables`."""

    async def inside() -> None:
        with Netlink() as netlink:
            netlink.raise_link(netlink.index("lo"))
        if _BRIDGED.exists():
            _BRIDGED.write_text(bridged)
        async with asyncio.timeout(_TEST_SECONDS), AsyncExitStack() as stack:
            machine = NetworkMachine(directory, stack)
            try:
                await test(machine)
            finally:
                for each in machine.nodes:
                    await each.remove()

    run_elsewhere(inside)


@asynccontextmanager
async def outsider() -> AsyncIterator[NetworkNamespace]:
    """Another machine, 192.0.2.9, on a link of this one, 192.0.2.1."""
    made = NetworkNamespace()
    with Netlink(socket.socket(fileno=made.netlink())) as inside, Netlink() as host:
        host.add_bridge("outer")
        host.add_address(host.index("outer"), IPv4Interface("192.0.2.1/24"))
        host.raise_link(host.index("outer"))
        host.add_pair("outer0", "eth0", made.path, host.index("outer"))
        inside.add_address(inside.index("eth0"), IPv4Interface("192.0.2.9/24"))
        inside.raise_link(inside.index("eth0"))
    try:
        yield made
    finally:
        made.end()


async def ask(where: socket.socket, host: str, port: int = 80, within: float = 20) -> list[str]:
    """Return the name of the server that answers, and the address that it sees."""
    loop = asyncio.get_running_loop()
    where.setblocking(False)
    with where:
        async with asyncio.timeout(within):
            await loop.sock_connect(where, (host, port))
            return (await loop.sock_recv(where, 100)).decode().split()


async def ask_udp(client: socket.socket, host: str, port: int = 80) -> str:
    """Ask until there is an answer: the first packet of a new pod may be lost."""
    loop = asyncio.get_running_loop()
    client.setblocking(False)
    async with asyncio.timeout(20):
        while True:
            await loop.sock_sendto(client, b"?", (host, port))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    return (await loop.sock_recvfrom(client, 100))[0].decode()
