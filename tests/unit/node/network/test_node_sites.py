"""Which changes of Nodes change the way to their pods."""

from ipaddress import IPv4Interface, IPv4Network

import pytest

from kedge.node.network.node_sites import NodeSites
from kedge.node.network.peers import (
    NetworkAnnotations,
    NodeAddresses,
    NodeAddressesMeta,
    NodeAddressesSpec,
    NodeSite,
)


def node(name: str, cidr: str, machine: str = "192.0.2.2/24") -> NodeAddresses:
    annotations = NetworkAnnotations(machine_address=machine, node_network="auto")
    return NodeAddresses(NodeAddressesMeta(name, annotations=annotations), NodeAddressesSpec(cidr))


B, C = node("b", "10.244.1.0/24"), node("c", "10.244.2.0/24")


@pytest.fixture
def sites() -> NodeSites:
    found = NodeSites()
    found.replace([B, C])
    found.changed.clear()
    return found


def test_the_sites_are_those_of_the_nodes() -> None:
    sites = NodeSites()
    sites.replace([B])
    assert sites.changed.is_set()
    network, machine = IPv4Network("10.244.1.0/24"), IPv4Interface("192.0.2.2/24")
    assert list(sites) == [NodeSite("b", network, machine, "auto")]
    assert len(sites) == 1


def test_a_report_of_the_status_changes_nothing(sites: NodeSites) -> None:
    sites.put(node("b", "10.244.1.0/24"))
    assert not sites.changed.is_set()


def test_the_same_list_once_more_changes_nothing(sites: NodeSites) -> None:
    sites.replace([C, B])
    assert not sites.changed.is_set()


@pytest.mark.parametrize(
    "changed",
    [node("d", "10.244.3.0/24"), node("b", "10.244.4.0/24"), node("b", "10.244.1.0/24", "")],
    ids=["new node", "other network", "no address"],
)
def test_a_node_that_comes_or_moves_is_a_change(sites: NodeSites, changed: NodeAddresses) -> None:
    sites.put(changed)
    assert sites.changed.is_set()


def test_a_node_that_goes_is_a_change_once(sites: NodeSites) -> None:
    sites.remove(C)
    assert sites.changed.is_set()
    assert [each.name for each in sites] == ["b"]
    sites.changed.clear()
    sites.remove(C)
    assert not sites.changed.is_set()


def test_nodes_that_went_while_nobody_watched_are_a_change(sites: NodeSites) -> None:
    sites.replace([B])
    assert sites.changed.is_set()
    assert len(sites) == 1
