"""Which UDP flows are deleted when endpoints change."""

from ipaddress import IPv4Address, IPv4Network

import pytest

from kedge.node.network.conntrack import TrackedFlow
from kedge.node.network.ruleset import TableScope
from kedge.node.services.service_ports import CarriedPort, EndpointChoice, EndpointTarget
from kedge.node.services.stale_flows import (
    UdpAddress,
    UdpTargets,
    stale_flows,
    to_check,
    udp_targets,
)

SCOPE = TableScope(
    link="kbr1",
    links="kbr",
    network=IPv4Network("10.244.1.0/24"),
    gateway=IPv4Address("10.244.1.1"),
    pods=IPv4Network("10.244.0.0/16"),
    services=(IPv4Network("10.96.0.0/16"),),
    owns_machine=False,
)
ONE, TWO = (EndpointTarget(IPv4Address(f"10.244.1.{number}"), 5353) for number in (2, 3))
DNS = UdpAddress(IPv4Address("10.96.0.10"), 53)
NODE_PORT = UdpAddress(IPv4Address(0), 30053)


def port(protocol: str) -> CarriedPort:
    return CarriedPort(
        name="dns",
        protocol=protocol,
        cluster_addresses=(DNS.address,),
        external_addresses=(IPv4Address("192.0.2.7"),),
        balancer_addresses=(),
        port=53,
        node_port=30053,
        choice=EndpointChoice((ONE,), (TWO,)),
        is_internal_local=False,
        is_external_local=False,
    )


def test_every_address_of_a_udp_port_counts() -> None:
    external = UdpAddress(IPv4Address("192.0.2.7"), 53)
    expected = dict.fromkeys((DNS, external, NODE_PORT), frozenset({ONE, TWO}))
    assert udp_targets([port("UDP"), port("TCP")]) == expected


@pytest.mark.parametrize(
    ("old", "new", "checked"),
    [
        ({DNS: frozenset({ONE})}, {DNS: frozenset({ONE})}, {}),
        ({DNS: frozenset({ONE})}, {DNS: frozenset({ONE, TWO})}, {}),
        ({DNS: frozenset({ONE})}, {DNS: frozenset({TWO})}, {DNS: frozenset({TWO})}),
        ({DNS: frozenset({ONE})}, {}, {DNS: frozenset()}),
        ({DNS: frozenset()}, {DNS: frozenset({ONE})}, {DNS: frozenset({ONE})}),
        ({}, {DNS: frozenset({ONE})}, {DNS: frozenset({ONE})}),
        ({}, {DNS: frozenset()}, {}),
    ],
)
def test_flows_are_checked_when_an_endpoint_goes_or_the_first_comes(
    old: UdpTargets, new: UdpTargets, checked: UdpTargets
) -> None:
    assert to_check(old, new) == checked


def flow(source: str, destination: str, number: int, answered: str, by: int) -> TrackedFlow:
    ends = (IPv4Address(destination), number, IPv4Address(answered), by)
    return TrackedFlow(IPv4Address(source), 5000, *ends, tuple=b"", id=b"")


@pytest.mark.parametrize(
    ("found", "owns_machine", "is_stale"),
    [
        (flow("10.244.1.9", "10.96.0.10", 53, "10.244.1.2", 5353), False, True),
        (flow("10.244.1.9", "10.96.0.10", 53, "10.244.1.3", 5353), False, False),
        (flow("10.244.1.9", "10.96.0.10", 54, "10.244.1.2", 5353), False, False),
        # Packets from before the service had an endpoint.
        (flow("10.244.1.9", "10.96.0.10", 53, "10.96.0.10", 53), False, True),
        # Node ports: whatever address of the machine was asked.
        (flow("10.244.1.9", "192.0.2.1", 30053, "10.244.1.2", 5353), False, True),
        (flow("10.244.1.9", "198.51.100.1", 30053, "198.51.100.1", 30053), False, False),
        # Flows of others.
        (flow("10.244.7.9", "10.96.0.10", 53, "10.244.1.2", 5353), True, False),
        (flow("192.0.2.5", "192.0.2.1", 30053, "10.244.1.2", 5353), False, False),
        (flow("192.0.2.5", "192.0.2.1", 30053, "10.244.1.2", 5353), True, True),
    ],
)
def test_flows_to_endpoints_that_are_gone_are_stale(
    found: TrackedFlow, owns_machine: bool, is_stale: bool
) -> None:
    checked = {DNS: frozenset({TWO}), NODE_PORT: frozenset({TWO})}
    scope = SCOPE._replace(owns_machine=owns_machine)
    assert list(stale_flows([found], checked, scope)) == [found] * is_stale
