"""The way out: pods of a namespace without a link to the machine's network reach the outside."""

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from kedge.machinery.interfaces import own_addresses
from kedge.machinery.sockets import connected_socket
from kedge.node.network.bridge import Bridge
from kedge.node.network.netlink import Netlink
from kedge.node.network.network_place import UserNetwork
from kedge.node.network.way_out import WayOut, is_outside
from kedge.node.runtime.runtime import SandboxConfig
from kedge.testing.network import NetworkNamespace


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", True),
        ("192.168.1.1", True),
        ("169.254.169.254", True),
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("0.0.0.0", False),
        ("0.1.2.3", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("10.96.0.1", False),
        ("10.97.0.3", False),
        ("10.244.7.1", False),
    ],
)
def test_loopback_groups_and_networks_of_clusters_are_not_outside(
    address: str, expected: bool
) -> None:
    assert is_outside(IPv4Address(address)) is expected


class OtherNamespace:
    """Makes sockets in a namespace, as a supervisor would."""

    def __init__(self, namespace: NetworkNamespace) -> None:
        self._namespace = namespace

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return self._namespace.opened(family, kind, protocol)

    def switch(self, link: str, name: str, value: str) -> None:
        write = f"echo {value} > /proc/sys/net/ipv4/conf/{link}/{name}"
        net = f"--net={self._namespace.path}"
        subprocess.run(["nsenter", net, "sh", "-c", write], check=True)


class FakeKeeper:
    """Keeps copies of sockets."""

    def __init__(self) -> None:
        self.kept: list[int] = []

    async def keep_sockets(self, name: str, descriptors: Sequence[int]) -> None:
        self.kept = [os.dup(each) for each in descriptors]

    async def kept_sockets(self, name: str) -> list[int]:
        return [os.dup(each) for each in self.kept]


class Pods:
    """A pod on the bridge of a namespace, with a way out."""

    def __init__(self, network: UserNetwork, bridge: Bridge, pod: NetworkNamespace) -> None:
        self.network = network
        self.bridge = bridge
        self.pod = pod
        self.keeper = FakeKeeper()

    async def say(self, address: str, port: int, seconds: float = 60) -> bytes:
        """Send a word over TCP from the pod and return the answer; empty if there is none in so
        many seconds."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                connected = await connected_socket(self.pod.opened, address, port)
                reader, writer = await asyncio.open_connection(sock=connected)
                writer.write(b"word")
                writer.write_eof()
                try:
                    return await reader.read(100)
                finally:
                    writer.close()
        return b""


@pytest.fixture
def namespaces() -> Iterator[list[NetworkNamespace]]:
    made = [NetworkNamespace(), NetworkNamespace()]
    yield made
    for each in made:
        each.end()


@pytest.fixture
def here() -> str:
    """An address of the machine that pods may reach."""
    found = [each for each in own_addresses() if ":" not in each and is_outside(IPv4Address(each))]
    if not found:
        pytest.skip("this machine has no address besides loopback")
    return found[0]


def can_make_links() -> bool:
    try:
        with Netlink() as netlink:
            netlink.add_bridge("kbr-probe2")
            netlink.remove_link("kbr-probe2")
    except OSError:
        return False
    return True


needs_links = pytest.mark.skipif(
    not can_make_links(), reason="this user may not make network links on this machine"
)


@contextlib.asynccontextmanager
async def pods(directory: Path, namespaces: list[NetworkNamespace]) -> AsyncIterator[Pods]:
    node, pod = namespaces
    network = UserNetwork(OtherNamespace(node))
    bridge = Bridge.find(directory, namespace=network)
    bridge.add_bridge()
    made = Pods(network, bridge, pod)
    spec = SandboxConfig(namespace="n", name="p", uid="u")
    try:
        await bridge.attach("pod", spec, pod.path, pod.netlink())
        yield made
    finally:
        for each in made.keeper.kept:
            os.close(each)
        bridge.close()


@contextlib.asynccontextmanager
async def running(made: Pods, server: tuple[str, int]) -> AsyncIterator[WayOut]:
    way_out = await WayOut.open(made.network, made.bridge.gateway, made.keeper)
    await made.bridge.add_rules(way_out.ports)
    work = asyncio.ensure_future(way_out.run(server))
    try:
        yield way_out
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        way_out.close()
        made.bridge.table.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"heard " + await reader.read(100))
    writer.close()


@needs_links
async def test_pods_reach_the_machines_addresses_but_not_its_loopback(
    tmp_path: Path, namespaces: list[NetworkNamespace], here: str
) -> None:
    async with pods(tmp_path, namespaces) as made, running(made, ("127.0.0.1", 1)):
        open_server = await asyncio.start_server(echo, here, 0)
        port = open_server.sockets[0].getsockname()[1]
        assert await made.say(here, port) == b"heard word"
        hidden_server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = hidden_server.sockets[0].getsockname()[1]
        for address in ("127.0.0.1", here, "10.96.0.7", str(made.bridge.gateway)):
            assert await made.say(address, port, 2) == b""
        open_server.close()
        hidden_server.close()


@needs_links
async def test_the_api_server_is_reached_at_a_port_of_its_own(
    tmp_path: Path, namespaces: list[NetworkNamespace]
) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    at = server.sockets[0].getsockname()
    async with pods(tmp_path, namespaces) as made, running(made, at):
        target = await made.bridge.open_server(at)
        assert await made.say(*target) == b"heard word"
    server.close()


@needs_links
async def test_a_direct_connection_to_the_way_out_leads_nowhere(
    tmp_path: Path, namespaces: list[NetworkNamespace]
) -> None:
    async with pods(tmp_path, namespaces) as made, running(made, ("127.0.0.1", 1)) as way_out:
        assert await made.say(str(made.bridge.gateway), way_out.ports.tcp, 2) == b""


class EchoDatagrams(asyncio.DatagramProtocol):
    """Answers each datagram."""

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self._transport.sendto(b"heard " + data, address)


@needs_links
async def test_datagrams_of_one_port_find_their_destinations(
    tmp_path: Path, namespaces: list[NetworkNamespace], here: str
) -> None:
    loop = asyncio.get_running_loop()
    servers = [
        (await loop.create_datagram_endpoint(EchoDatagrams, local_addr=(here, 0)))[0]
        for _ in range(2)
    ]
    async with pods(tmp_path, namespaces) as made, running(made, ("127.0.0.1", 1)):
        with made.pod.opened(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            for each in servers:
                target = each.get_extra_info("sockname")
                await loop.sock_sendto(channel, b"word", target)
                async with asyncio.timeout(60):
                    assert await loop.sock_recvfrom(channel, 100) == (b"heard word", target)
    for each in servers:
        each.close()


@needs_links
async def test_the_next_agent_continues_with_the_same_ports(
    tmp_path: Path, namespaces: list[NetworkNamespace], here: str
) -> None:
    server = await asyncio.start_server(echo, here, 0)
    port = server.sockets[0].getsockname()[1]
    async with pods(tmp_path, namespaces) as made:
        async with running(made, ("127.0.0.1", 1)) as first:
            before = first.ports
        # No agent runs. The kernel keeps the connection until the next one accepts it.
        waiting = asyncio.ensure_future(made.say(here, port))
        async with running(made, ("127.0.0.1", 1)) as second:
            assert second.ports == before
            assert await waiting == b"heard word"
    server.close()
