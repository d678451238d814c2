"""Pods on a real bridge: they reach each other, the API server and the machine; nothing is left."""

import asyncio
import errno
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from kedge.node.network import attached_pods, forwarding
from kedge.node.network import bridge as bridges
from kedge.node.network.attached_pods import AttachedPod
from kedge.node.network.bridge import SERVICE, Bridge
from kedge.node.network.netlink import Netlink
from kedge.node.network.node_table import NodeTable
from kedge.node.runtime.runtime import PortMapping, RuntimeFailure, SandboxConfig
from kedge.node.services.datapath import ServiceDatapath
from kedge.node.services.service_ports import EndpointTarget
from kedge.node.services.service_rules import pinned_rules
from kedge.testing.clock import FakeClock
from kedge.testing.network import NetworkNamespace


def can_make_links() -> bool:
    try:
        with Netlink() as netlink:
            netlink.add_bridge("kbr-probe")
            netlink.remove_link("kbr-probe")
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(
    not can_make_links(), reason="this user may not make network links on this machine"
)


@pytest.fixture
def namespaces() -> Iterator[list[NetworkNamespace]]:
    made = [NetworkNamespace(), NetworkNamespace()]
    yield made
    for each in made:
        each.end()


@asynccontextmanager
async def bridge(directory: Path, server: tuple[str, int]) -> AsyncIterator[Bridge]:
    made = Bridge.find(directory)
    await made.open()
    await carry_server(made, server)
    try:
        yield made
    finally:
        await made.remove()


async def carry_server(made: Bridge, server: tuple[str, int]) -> None:
    """Lead the address of the service `kubernetes` to a server, by rules or by a listener."""
    host, port = await made.open_server(server)
    if not made.refusal:
        datapath = ServiceDatapath()
        there = EndpointTarget(IPv4Address(host), port)
        datapath.put("api", pinned_rules(SERVICE, "TCP", bridges.SERVICE_PORT, there))
        await made.table.rewrite(datapath.everything)


@pytest.fixture
def refusing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without nf_tables."""

    async def refuse(table: NodeTable) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(NodeTable, "open", refuse)


def spec(*ports: PortMapping) -> SandboxConfig:
    return SandboxConfig(namespace="default", name="p", uid="u", ports=ports)


async def said_by(where: socket.socket, target: tuple[str, int]) -> bytes:
    """What somebody who listens at the target says to one who calls from this socket."""
    where.setblocking(False)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(5):
        with where:
            await loop.sock_connect(where, target)
            return await loop.sock_recv(where, 100)


@asynccontextmanager
async def saying(text: bytes, listener: socket.socket) -> AsyncIterator[int]:
    """Somebody who says one thing to each caller."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()
        writer.close()

    listener.bind(("0.0.0.0", 0))
    async with await asyncio.start_server(answer, sock=listener):
        yield listener.getsockname()[1]


def tcp(namespace: NetworkNamespace | None = None) -> socket.socket:
    if namespace is None:
        return socket.socket()
    return namespace.opened(socket.AF_INET, socket.SOCK_STREAM)


async def test_pods_reach_each_other_the_machine_and_the_api_server(
    tmp_path: Path, namespaces: list[NetworkNamespace]
) -> None:
    one, other = namespaces
    async with (
        saying(b"api", tcp()) as api,
        bridge(tmp_path, ("127.0.0.1", api)) as network,
        saying(b"pod", tcp(other)) as port,
    ):
        ours = await network.attach("one", spec(), one.path, one.netlink())
        theirs = await network.attach("other", spec(), other.path, other.netlink())
        assert ours != theirs
        assert await said_by(tcp(one), (theirs[0], port)) == b"pod"
        assert await said_by(tcp(), (theirs[0], port)) == b"pod"
        assert await said_by(tcp(one), (str(SERVICE), 443)) == b"api"


async def test_host_port_leads_into_the_pod_until_it_is_gone(
    tmp_path: Path, namespaces: list[NetworkNamespace]
) -> None:
    pod, other = namespaces
    with tcp() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    async with (
        bridge(tmp_path, ("127.0.0.1", 1)) as network,
        saying(b"pod", tcp(pod)) as port,
    ):
        mapping = PortMapping(container_port=port, host_port=free, host_ip="127.0.0.1")
        await network.attach("one", spec(mapping), pod.path, pod.netlink())
        assert await said_by(tcp(), ("127.0.0.1", free)) == b"pod"
        with pytest.raises(RuntimeFailure, match="address already in use"):
            await network.attach("two", spec(mapping), other.path, other.netlink())
        await network.detach("one")
        with pytest.raises(ConnectionRefusedError):
            await said_by(tcp(), ("127.0.0.1", free))


@asynccontextmanager
async def running(network: Bridge) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(network.run())
        yield
        work.cancel()


async def test_a_host_port_taken_while_no_agent_ran_leads_into_the_pod_once_it_is_free(
    tmp_path: Path, namespaces: list[NetworkNamespace]
) -> None:
    pod, _ = namespaces
    clock = FakeClock()
    first = Bridge.find(tmp_path)
    await first.open()
    address = (await first.attach("one", spec(), pod.path, pod.netlink()))[0]
    first.close()
    second = Bridge.find(tmp_path, clock)
    await second.open()
    try:
        async with running(second), saying(b"pod", tcp(pod)) as port:
            with tcp() as stranger:
                stranger.bind(("127.0.0.1", 0))
                stranger.listen()
                taken = stranger.getsockname()[1]
                mapping = PortMapping(container_port=port, host_port=taken, host_ip="127.0.0.1")
                await second.adopt("one", spec(mapping), address)
            await clock.advance(1)
            assert await said_by(tcp(), ("127.0.0.1", taken)) == b"pod"
            await second.detach("one")
            with pytest.raises(ConnectionRefusedError):
                await said_by(tcp(), ("127.0.0.1", taken))
    finally:
        await second.remove()


@pytest.mark.usefixtures("refusing_kernel")
async def test_a_program_at_the_port_of_the_api_server_keeps_no_node_from_coming_up(
    tmp_path: Path, namespaces: list[NetworkNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, _ = namespaces
    clock = FakeClock()
    network = Bridge.find(tmp_path, clock)
    try:
        async with saying(b"api", tcp()) as api, running(network):
            with tcp() as stranger:
                stranger.bind(("0.0.0.0", 0))
                stranger.listen()
                taken = stranger.getsockname()[1]
                monkeypatch.setattr(bridges, "SERVICE_PORT", taken)
                await network.open()
                await carry_server(network, ("127.0.0.1", api))
                await network.attach("one", spec(), pod.path, pod.netlink())
            await clock.advance(1)
            assert await said_by(tcp(pod), (str(SERVICE), taken)) == b"api"
    finally:
        await network.remove()


@pytest.mark.usefixtures("refusing_kernel")
async def test_programs_at_other_addresses_do_not_mind_the_api_server(
    tmp_path: Path, namespaces: list[NetworkNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, _ = namespaces
    with tcp() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        monkeypatch.setattr(bridges, "SERVICE_PORT", port)
        async with saying(b"api", tcp()) as api, bridge(tmp_path, ("127.0.0.1", api)) as network:
            await network.attach("one", spec(), pod.path, pod.netlink())
            assert await said_by(tcp(pod), (str(SERVICE), port)) == b"api"


async def test_datagrams_find_their_way_in_and_back(
    tmp_path: Path, namespaces: list[NetworkNamespace]
) -> None:
    pod, _ = namespaces
    with (
        pod.opened(socket.AF_INET, socket.SOCK_DGRAM) as inside,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        inside.bind(("0.0.0.0", 0))
        client.bind(("127.0.0.1", 0))
        for each in (inside, client):
            each.setblocking(False)
        port = inside.getsockname()[1]
        mapping = PortMapping(
            container_port=port, host_port=port, host_ip="127.0.0.1", protocol="UDP"
        )
        loop = asyncio.get_running_loop()
        async with bridge(tmp_path, ("127.0.0.1", 1)) as network, asyncio.timeout(5):
            await network.attach("one", spec(mapping), pod.path, pod.netlink())
            await loop.sock_sendto(client, b"ping", ("127.0.0.1", port))
            data, sender = await loop.sock_recvfrom(inside, 100)
            await loop.sock_sendto(inside, data[::-1], sender)
            assert await loop.sock_recv(client, 100) == b"gnip"


async def test_next_agent_goes_on_with_the_same_network(
    tmp_path: Path, namespaces: list[NetworkNamespace]
) -> None:
    pod, other = namespaces
    first = Bridge.find(tmp_path)
    await first.open()
    address = await first.attach("one", spec(), pod.path, pod.netlink())
    first.close()
    async with bridge(tmp_path, ("127.0.0.1", 1)) as second, saying(b"pod", tcp(pod)) as port:
        assert second.network == first.network
        await second.attach("two", spec(), other.path, other.netlink())
        assert await said_by(tcp(other), (address[0], port)) == b"pod"


async def test_a_network_that_was_taken_meanwhile_is_left_to_the_other(tmp_path: Path) -> None:
    one, other = Bridge.find(tmp_path / "one"), Bridge.find(tmp_path / "other")
    assert one.network == other.network, "neither is up, so both have chosen the first that is free"
    try:
        for each in (one, other):
            await each.open()
        assert not one.network.overlaps(other.network)
        other.close()
        other = Bridge.find(tmp_path / "other")
        assert not one.network.overlaps(other.network)
    finally:
        await one.remove()
        await other.remove()


async def test_two_clusters_have_networks_of_their_own(tmp_path: Path) -> None:
    async with (
        bridge(tmp_path / "a", ("127.0.0.1", 1)) as one,
        bridge(tmp_path / "b", ("127.0.0.1", 1)) as other,
    ):
        assert not one.network.overlaps(other.network)


async def test_a_node_that_goes_again_leaves_alone_whoever_has_its_network_now(
    tmp_path: Path, namespaces: list[NetworkNamespace]
) -> None:
    pod, _ = namespaces
    async with bridge(tmp_path / "gone", ("127.0.0.1", 1)):
        pass
    async with (
        saying(b"api", tcp()) as api,
        bridge(tmp_path / "here", ("127.0.0.1", api)) as network,
    ):
        await network.attach("one", spec(), pod.path, pod.netlink())
        gone = Bridge.find(tmp_path / "gone")
        assert gone.network == network.network
        await gone.remove()
        assert await said_by(tcp(pod), (str(SERVICE), 443)) == b"api"


async def test_packets_are_let_through_until_the_last_node_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "ip_forward"
    switch.write_text("0\n")

    monkeypatch.setattr(forwarding, "_FORWARDING", switch)
    monkeypatch.setattr(forwarding, "_BEFORE", tmp_path / "run" / "forwarding")
    # Other clusters that this machine may have count for nothing here.
    monkeypatch.setattr(bridges, "_BRIDGES", "kbt")
    first = Bridge.find(tmp_path / "first")
    await first.open()
    async with bridge(tmp_path / "second", ("127.0.0.1", 1)):
        await first.remove()
        assert switch.read_text() == "1"
    assert switch.read_text() == "0\n"


async def test_nothing_is_left_behind(tmp_path: Path, namespaces: list[NetworkNamespace]) -> None:
    before = _seen()
    pod, _ = namespaces
    async with bridge(tmp_path, ("127.0.0.1", 1)) as network:
        await network.attach("one", spec(), pod.path, pod.netlink())
        assert _seen() != before
    assert _seen() == before


async def test_nothing_is_left_behind_of_a_bridge_that_somebody_has_removed(tmp_path: Path) -> None:
    before = _seen()
    async with bridge(tmp_path, ("127.0.0.1", 1)):
        with Netlink() as netlink:
            netlink.remove_link(bridges.link_name("kbr", str(tmp_path)))
    assert _seen() == before


def _seen() -> tuple[list[str], list[str], str]:
    rules = subprocess.run(["ip", "rule"], capture_output=True, text=True, check=True).stdout
    forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    with Netlink() as netlink:
        networks = sorted(map(str, netlink.networks()))
    return sorted(os.listdir("/sys/class/net")), networks, rules + forwarding


async def test_a_pod_has_no_link_before_its_rules_are_written(
    tmp_path: Path, namespaces: list[NetworkNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached_pods, "ADMIT_SECONDS", 0.1)
    pod, _ = namespaces
    links: list[int] = []
    async with bridge(tmp_path, ("127.0.0.1", 1)) as network:

        def note(address: IPv4Address, attached: AttachedPod) -> bool:
            with Netlink() as netlink:
                links.append(netlink.index(bridges.link_name("kv", "one")))
            return True

        network.attached.listen(note)
        with pytest.raises(RuntimeFailure, match="network policies"):
            await network.attach("one", spec(), pod.path, pod.netlink())
        with Netlink() as netlink:
            links.append(netlink.index(bridges.link_name("kv", "one")))
        assert set(links) == {0}
        assert network.attached.by_address == {}
