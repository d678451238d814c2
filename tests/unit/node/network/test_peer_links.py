"""Routes, neighbours and tunnels: from a plan to a state, and to a real kernel."""

import os
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest

from kedge.node.network import peer_links, tunnel
from kedge.node.network.netlink import Netlink
from kedge.node.network.peer_links import (
    Neighbour,
    PeerRoute,
    PeerState,
    TunnelEntry,
    VxlanLink,
)
from kedge.node.network.peers import PeerNode, PeerPlan
from kedge.testing.network import run_elsewhere

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")

OWN = IPv4Network("10.244.0.0/24")
NEAR = PeerNode("near", IPv4Network("10.244.1.0/24"), IPv4Address("192.0.2.2"), "routes")
FAR = PeerNode("far", IPv4Network("10.244.2.0/24"), IPv4Address("198.51.100.2"), "vxlan")
FAR_HARDWARE = bytes.fromhex("026b0af40200")
LINK, TUNNEL, METRIC = 2, 7, 27000


def test_a_plan_becomes_routes_neighbours_and_tunnel_entries() -> None:
    assert peer_links.wanted(PeerPlan((NEAR, FAR)), LINK, TUNNEL) == PeerState(
        frozenset(
            (
                PeerRoute(NEAR.network, NEAR.address, LINK),
                PeerRoute(FAR.network, IPv4Address("10.244.2.0"), TUNNEL),
            )
        ),
        frozenset((Neighbour(IPv4Address("10.244.2.0"), FAR_HARDWARE),)),
        frozenset((TunnelEntry(FAR_HARDWARE, FAR.address, 0x6BF402),)),
    )


def test_only_differences_are_written() -> None:
    both = peer_links.wanted(PeerPlan((NEAR, FAR)), LINK, TUNNEL)
    one = peer_links.wanted(PeerPlan((NEAR,)), LINK, TUNNEL)
    only_far = peer_links.wanted(PeerPlan((FAR,)), LINK, TUNNEL)
    assert peer_links.difference(both, both) == (PeerState(), PeerState())
    assert peer_links.difference(both, one) == (only_far, PeerState())
    assert peer_links.difference(one, both) == (PeerState(), only_far)


def machine() -> tuple[int, int]:
    """Make a link to other machines and a tunnel; return their indexes."""
    with Netlink() as netlink:
        netlink.add_bridge("eth0")
        underlay = netlink.index("eth0")
        netlink.add_address(underlay, IPv4Interface("192.0.2.1/24"))
        netlink.raise_link(underlay)
        link = VxlanLink(tunnel.number(OWN), IPv4Address("192.0.2.1"), 1450)
        peer_links.add_vxlan(netlink, "kvx0", link, OWN)
        assert peer_links.read_vxlan(netlink, "kvx0") == link
        assert peer_links.read_vxlan(netlink, "eth0") is None
        assert netlink.mtu(netlink.index("kvx0")) == 1450
        # Another node of the machine has a tunnel too.
        other = IPv4Network("10.244.5.0/24")
        beside = VxlanLink(tunnel.number(other), IPv4Address("192.0.2.1"), 1450)
        peer_links.add_vxlan(netlink, "kvx1", beside, other)
        return underlay, netlink.index("kvx0")


@needs_root
def test_the_kernel_has_what_was_written() -> None:
    async def inside() -> None:
        underlay, vxlan = machine()
        moved = FAR._replace(address=IPv4Address("203.0.113.9"))
        turned = NEAR._replace(way="vxlan")
        plans = [PeerPlan((NEAR, FAR)), PeerPlan((NEAR, moved)), PeerPlan((turned, moved))]
        with Netlink() as netlink:
            for each in (*plans, *reversed(plans), PeerPlan()):
                want = peer_links.wanted(each, underlay, vxlan)
                have = peer_links.read(netlink, METRIC, vxlan)
                peer_links.apply(netlink, peer_links.difference(have, want), METRIC, vxlan)
                assert peer_links.read(netlink, METRIC, vxlan) == want

    run_elsewhere(inside)


@needs_root
def test_routes_of_others_and_of_other_nodes_stay() -> None:
    async def inside() -> None:
        underlay, vxlan = machine()
        want = peer_links.wanted(PeerPlan((NEAR,)), underlay, vxlan)
        other = METRIC + 1
        with Netlink() as netlink:
            netlink.add_link_route(underlay, NEAR.network)
            for metric in (METRIC, other):
                have = peer_links.read(netlink, metric, vxlan)
                peer_links.apply(netlink, peer_links.difference(have, want), metric, vxlan)
            peer_links.remove_routes(netlink, want.routes, METRIC)
            peer_links.remove_routes(netlink, want.routes, METRIC)
            assert not peer_links.own_routes(netlink, METRIC)
            assert frozenset(peer_links.own_routes(netlink, other)) == want.routes
            peer_links.remove_routes(netlink, want.routes, other)
            assert NEAR.network in netlink.routes()

    run_elsewhere(inside)
