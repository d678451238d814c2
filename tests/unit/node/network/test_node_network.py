"""The way to other machines follows the Nodes of the cluster, in a namespace of its own."""

import errno
import os
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any

import pytest

from kedge.node.network import node_network, peer_links, ruleset, tunnel
from kedge.node.network.netlink import Netlink
from kedge.node.network.node_network import (
    NodeNetwork,
    Underlay,
    accepted,
    effective_setting,
    find_underlay,
    lack_of_vxlan,
    local_networks,
    pod_mtu,
)
from kedge.node.network.node_sites import NodeSites
from kedge.node.network.node_table import NodeTable
from kedge.node.network.peers import NodeSite, PeerNode, PeerPlan
from kedge.node.network.ruleset import TableScope
from kedge.testing.local_server import LocalServer
from kedge.testing.network import run_elsewhere

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")

OWN = IPv4Network("10.244.0.0/24")
MACHINE = IPv4Interface("192.0.2.1/24")
METRIC = 27000


class Links:
    """The links of a node without pods."""

    tunnel = "kvx0"
    metric = METRIC

    def __init__(self) -> None:
        self.network = OWN
        self.table = NodeTable(
            TableScope(
                link="kbr0",
                links="kbr",
                network=OWN,
                gateway=OWN[1],
                pods=IPv4Network("10.244.0.0/16"),
                services=(),
                owns_machine=False,
            )
        )
        with Netlink() as netlink:
            netlink.raise_link(netlink.index("lo"))
            for name, address in ("kbr0", IPv4Interface("10.244.0.1/24")), ("eth0", MACHINE):
                netlink.add_bridge(name)
                netlink.add_address(netlink.index(name), address)
                netlink.raise_link(netlink.index(name))


def node(name: str, cidr: str, machine: str, setting: str = "auto") -> dict[str, Any]:
    notes = {"kedge.dev/machine-address": machine, "kedge.dev/node-network": setting}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"podCIDR": cidr},
    }


class Seen:
    """What the network reported."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.warnings: list[str] = []


def with_network(
    work: Callable[[LocalServer, NodeNetwork, Seen], Awaitable[None]],
) -> None:
    async def inside() -> None:
        links, seen = Links(), Seen()
        found = find_underlay("192.0.2.1")
        assert found is not None
        async with LocalServer.running() as server:
            network = NodeNetwork(
                server.client,
                server.clock,
                links,
                NodeSite("a", OWN, MACHINE, "auto"),
                found,
                NodeSites(),
                lack="",
                report=seen.reports.append,
                warn=seen.warnings.append,
            )
            server.start(network.run())
            await network.ready.wait()
            await work(server, network, seen)

    run_elsewhere(inside)


def kernel() -> tuple[set[str], set[IPv4Address], bool]:
    """The networks that routes lead to, the machines that tunnels lead to, and whether there is a
    tunnel."""
    with Netlink() as netlink:
        index = netlink.index("kvx0")
        state = peer_links.read(netlink, METRIC, index)
    routes = {str(each.network) for each in state.routes}
    return routes, {each.machine for each in state.entries}, bool(index)


async def until(server: LocalServer, condition: Callable[[], bool]) -> None:
    """Let time pass until the kernel was written, which happens in a thread."""
    for _ in range(500):
        if condition():
            return
        await server.clock.advance(0.01)
    raise AssertionError(kernel())


@needs_root
def test_nodes_come_move_and_go() -> None:
    far = IPv4Address("198.51.100.2")

    async def work(server: LocalServer, network: NodeNetwork, seen: Seen) -> None:
        path = "/api/v1/nodes"
        await server.post(path, node("near", "10.244.1.0/24", "192.0.2.2/24"))
        await until(server, lambda: kernel() == ({"10.244.1.0/24"}, set(), False))
        await server.post(path, node("far", "10.244.2.0/24", f"{far}/24"))
        both = {"10.244.1.0/24", "10.244.2.0/24"}
        await until(server, lambda: kernel() == (both, {far}, True))
        moved = {"metadata": {"annotations": {"kedge.dev/machine-address": "203.0.113.7/24"}}}
        await server.merge(f"{path}/far", moved)
        await until(server, lambda: kernel() == (both, {IPv4Address("203.0.113.7")}, True))
        await server.delete(f"{path}/far")
        await until(server, lambda: kernel() == ({"10.244.1.0/24"}, set(), False))
        reports = ["auto", "auto (routes)", "auto (routes and vxlan)", "auto (routes)"]
        await until(server, lambda: seen.reports == reports)
        assert seen.warnings == []

    with_network(work)


@needs_root
def test_a_node_that_claims_anothers_network_gets_no_packets() -> None:
    async def work(server: LocalServer, network: NodeNetwork, seen: Seen) -> None:
        await server.post("/api/v1/nodes", node("thief", "10.244.0.0/24", "192.0.2.3/24"))
        await until(server, lambda: bool(seen.warnings))
        assert kernel() == (set(), set(), False)
        assert seen.warnings == [
            'Pods of the node "thief" cannot be reached: its pod network 10.244.0.0/24 belongs to'
            ' the node "a"'
        ]

    with_network(work)


@needs_root
def test_routes_that_the_kernel_lost_come_back() -> None:
    async def work(server: LocalServer, network: NodeNetwork, seen: Seen) -> None:
        await server.post("/api/v1/nodes", node("near", "10.244.1.0/24", "192.0.2.2/24"))
        await until(server, lambda: kernel()[0] == {"10.244.1.0/24"})
        with Netlink() as netlink:
            peer_links.remove_routes(netlink, peer_links.own_routes(netlink, METRIC), METRIC)
        assert not kernel()[0]
        await server.clock.advance(node_network.RESYNC_SECONDS)
        await until(server, lambda: kernel()[0] == {"10.244.1.0/24"})

    with_network(work)


@needs_root
def test_the_machine_is_known_by_its_links() -> None:
    async def inside() -> None:
        links = Links()
        with Netlink() as netlink:
            netlink.add_bridge("kbr9")
            netlink.add_address(netlink.index("kbr9"), IPv4Interface("10.244.9.1/24"))
            found = local_networks(netlink, links.table.scope)
            assert IPv4Address("192.0.2.1") in found.addresses
            assert found.bridges == {IPv4Network("10.244.9.0/24")}
            underlay = Underlay(netlink.index("eth0"), MACHINE, 1500)
        assert find_underlay("192.0.2.1") == underlay
        for other in ("192.0.2.99", "127.0.0.1", "10.244.0.1", "machine.example.com", "::1", ""):
            assert find_underlay(other) is None
        assert lack_of_vxlan() == ""
        with Netlink() as netlink:
            assert "kvx-probe" not in netlink.links()

    run_elsewhere(inside)


@needs_root
def test_a_kernel_without_vxlan_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(peer_links, "add_bare_vxlan", refuse)
    lack = lack_of_vxlan()
    assert lack == "the kernel has no VXLAN"
    assert [effective_setting(each, lack) for each in ("auto", "vxlan")] == ["routes", "routes"]
    assert effective_setting("auto", "") == "auto"


@pytest.mark.parametrize(
    ("mtu", "setting", "expected"),
    [(1500, "auto", 1450), (1500, "routes", 0), (9000, "vxlan", 0), (1400, "routes", 1400)],
)
def test_packets_of_pods_fit_into_tunnels(mtu: int, setting: str, expected: int) -> None:
    assert pod_mtu(Underlay(2, MACHINE, mtu), setting) == expected
    assert pod_mtu(None, setting) == 0


def test_only_packets_of_peers_are_accepted() -> None:
    routed = PeerNode("b", IPv4Network("10.244.1.0/24"), IPv4Address("192.0.2.2"), "routes")
    wrapped = PeerNode("c", IPv4Network("10.244.2.0/24"), IPv4Address("198.51.100.2"), "vxlan")
    assert accepted(PeerPlan((routed, wrapped))) == {
        ruleset.ROUTED_PEERS: frozenset((bytes((10, 244, 1, 0)),)),
        ruleset.TUNNEL_PEERS: frozenset((bytes((198, 51, 100, 2, 10, 244, 2, 0)),)),
    }
    assert tunnel.number(OWN) != tunnel.number(wrapped.network)
