"""How a node reaches the pods of others, as a table of decisions."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.node import RESOURCE
from kedge.client.view import sketches
from kedge.node.network.peers import (
    LocalNetworks,
    NodeAddresses,
    NodeSite,
    PeerNode,
    PeerPlan,
    UnreachableNode,
    described,
    plan,
    site,
)

HERE = LocalNetworks(
    addresses={IPv4Address("192.0.2.1"), IPv4Address("10.244.0.1")},
    bridges={IPv4Network("10.244.9.0/24")},
)


def at(
    name: str, network: str, machine: str = "", setting: str = "auto", since: str = ""
) -> NodeSite:
    return NodeSite(
        name,
        IPv4Network(network) if network else None,
        IPv4Interface(machine) if machine else None,
        setting,
        since,
    )


OWN = at("a", "10.244.0.0/24", "192.0.2.1/24")


@pytest.mark.parametrize(
    ("own", "other", "way"),
    [
        (OWN, at("b", "10.244.1.0/24", "192.0.2.2/24"), "routes"),
        (OWN, at("b", "10.244.1.0/24", "198.51.100.2/24"), "vxlan"),
        # Each must be in the other one's network: both ends decide alike.
        (OWN, at("b", "10.244.1.0/24", "192.0.2.200/28"), "vxlan"),
        (OWN._replace(setting="vxlan"), at("b", "10.244.1.0/24", "192.0.2.2/24"), "vxlan"),
        (OWN, at("b", "10.244.1.0/24", "192.0.2.2/24", "vxlan"), "vxlan"),
        (OWN._replace(setting="routes"), at("b", "10.244.1.0/24", "192.0.2.2/24"), "routes"),
    ],
)
def test_the_way_depends_on_segments_and_settings(own: NodeSite, other: NodeSite, way: str) -> None:
    assert other.network is not None
    assert other.machine is not None
    found = PeerNode("b", other.network, other.machine.ip, way)
    assert plan(own, [own, other], HERE) == PeerPlan((found,))


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (OWN, at("b", "10.244.1.0/24", "192.0.2.2/24")),
        (OWN, at("b", "10.244.1.0/24", "192.0.2.200/28")),
        (OWN, at("b", "10.244.1.0/24", "198.51.100.2/24", "vxlan")),
        (OWN, at("b", "10.244.1.0/24", "192.0.2.2/24", "routes")),
    ],
)
def test_both_ends_choose_the_same_way(own: NodeSite, other: NodeSite) -> None:
    [there] = plan(own, [other], LocalNetworks()).peers
    [back] = plan(other, [own], LocalNetworks()).peers
    assert there.way == back.way


@pytest.mark.parametrize(
    ("own", "other", "why"),
    [
        (
            OWN._replace(setting="routes"),
            at("b", "10.244.1.0/24", "198.51.100.2/24"),
            'the node "a" does not use VXLAN, and the node "b" is not on the same network segment',
        ),
        (
            OWN._replace(setting="vxlan"),
            at("b", "10.244.1.0/24", "192.0.2.2/24", "routes"),
            'the node "b" does not use VXLAN, and the node "a" is told to use it',
        ),
        (
            OWN,
            at("b", "10.244.0.0/24", "192.0.2.2/24"),
            'its pod network 10.244.0.0/24 belongs to the node "a"',
        ),
        (
            OWN,
            at("b", "10.244.0.0/16", "192.0.2.2/24"),
            "its pod network 10.244.0.0/16 is not a /24 network of 10.244.0.0/16",
        ),
        (
            OWN,
            at("b", "8.8.8.0/24", "192.0.2.2/24"),
            "its pod network 8.8.8.0/24 is not a /24 network of 10.244.0.0/16",
        ),
        (
            OWN,
            at("b", "10.244.9.0/24", "192.0.2.2/24"),
            "another cluster of this machine uses its pod network 10.244.9.0/24",
        ),
        (
            OWN,
            at("b", "10.244.1.0/24"),
            'the node "b" has no address that other machines reach',
        ),
        (
            OWN,
            at("b", "10.244.1.0/24", "192.0.2.2/24", "carrier-pigeon"),
            "it does not say how its pods are reached",
        ),
    ],
)
def test_nodes_that_cannot_be_reached_are_named(own: NodeSite, other: NodeSite, why: str) -> None:
    assert plan(own, [other], HERE) == PeerPlan(unreachable=(UnreachableNode("b", why),))


@pytest.mark.parametrize(
    "other",
    [
        at("b", ""),
        at("b", "10.244.1.0/24", "192.0.2.1/24"),
        at("b", "10.244.9.0/24"),
        at("b", "10.244.9.0/24", "192.0.2.1/24"),
    ],
)
def test_nodes_without_pods_and_nodes_of_this_machine_need_nothing(other: NodeSite) -> None:
    assert plan(OWN, [OWN, other], HERE) == PeerPlan()


def test_nodes_of_a_machine_without_an_address_are_all_there() -> None:
    own = OWN._replace(machine=None)
    assert plan(own, [at("b", "10.244.1.0/24")], HERE) == PeerPlan()


def test_the_older_of_two_nodes_keeps_a_network() -> None:
    honest = at("z", "10.244.1.0/24", "192.0.2.2/24", since="2030-01-01T00:00:00Z")
    thief = at("b", "10.244.1.0/24", "192.0.2.3/24", since="2030-01-02T00:00:00Z")
    found = plan(OWN, [thief, honest], HERE)
    assert [each.name for each in found.peers] == ["z"]
    assert [each.name for each in found.unreachable] == ["b"]


def node(cidr: str, **annotations: str) -> NodeAddresses:
    notes = {f"kedge.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return decoded({"metadata": {"name": "b", "annotations": notes}, "spec": {"podCIDR": cidr}})


def decoded(document: dict[str, Any]) -> NodeAddresses:
    return sketches(RESOURCE, NodeAddresses).decode(msgspec.json.encode(document))


def test_a_node_of_others_has_no_place() -> None:
    bare = {"metadata": {"name": "b", "annotations": None, "labels": {"a": "b"}}, "spec": None}
    assert site(decoded(bare)) == NodeSite("b", None, None, "")


def test_a_node_says_where_it_is() -> None:
    said = node("10.244.1.0/24", machine_address="192.0.2.2/24", node_network="auto (routes)")
    assert site(said) == at("b", "10.244.1.0/24", "192.0.2.2/24")


@pytest.mark.parametrize(
    "address",
    ["", "here", "127.0.0.1/8", "224.0.0.1/4", "0.0.0.0/0", "10.244.3.1/24", "10.96.0.1/16",
     "255.255.255.255/32", "169.254.0.1/16", "192.0.2.2/33", "::1/128"],
)  # fmt: skip
def test_addresses_that_no_machine_has_count_as_missing(address: str) -> None:
    assert site(node("10.244.1.0/24", machine_address=address)).machine is None


@pytest.mark.parametrize("cidr", ["", "nonsense", "fd00::/64", "10.244.1.5/24"])
def test_networks_that_are_none_count_as_missing(cidr: str) -> None:
    assert site(node(cidr)).network is None


def test_users_read_what_is_in_use() -> None:
    routed = PeerNode("b", IPv4Network("10.244.1.0/24"), IPv4Address("192.0.2.2"), "routes")
    both = (routed, routed._replace(way="vxlan"))
    lost = tuple(UnreachableNode(name, "") for name in "cdef")
    assert described("auto", PeerPlan()) == "auto"
    assert described("auto", PeerPlan((routed,))) == "auto (routes)"
    assert described("auto", PeerPlan(both)) == "auto (routes and vxlan)"
    assert described("routes", PeerPlan(), "the kernel has no VXLAN") == (
        "routes (the kernel has no VXLAN)"
    )
    assert described("auto", PeerPlan((routed,), lost)) == (
        "auto (routes; unreachable: c, d, e and 1 more)"
    )
