"""The map elements and chains of one Service."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

from kedge.node.network import ruleset
from kedge.node.network.nftables import expressions
from kedge.node.network.ruleset import ANY_ADDRESS, ENDPOINTS, OUTSIDE, REFUSED, SERVICES
from kedge.node.services.service_ports import CarriedPort, EndpointChoice, EndpointTarget
from kedge.node.services.service_rules import (
    CLUSTER,
    EXTERNAL,
    PINNED,
    ElementKey,
    ServiceRules,
    pinned_rules,
    service_rules,
)

ADDRESS = IPv4Address("10.96.0.5")
ONE, TWO = (EndpointTarget(IPv4Address(f"10.244.0.{number}"), 8080) for number in (2, 3))
CLUSTER_KEY = ruleset.key(ADDRESS, "TCP", 80)
NODE_PORT_KEY = ruleset.key(ANY_ADDRESS, "TCP", 30080)


def port(
    cluster: tuple[EndpointTarget, ...] = (ONE, TWO),
    local: tuple[EndpointTarget, ...] = (),
    **more: Any,
) -> CarriedPort:
    whole = {
        "name": "",
        "protocol": "TCP",
        "cluster_addresses": (ADDRESS,),
        "external_addresses": (),
        "balancer_addresses": (),
        "port": 80,
        "node_port": 0,
        "choice": EndpointChoice(cluster, local),
        "is_internal_local": False,
        "is_external_local": False,
        **more,
    }
    return CarriedPort(**whole)


def verdicts(made: ServiceRules) -> dict[tuple[str, bytes], str]:
    """The chain that each element leads to."""
    chains = {expressions.goto_verdict(name): name for name in (*made.chains, ruleset.REFUSE)}
    chains[expressions.drop_verdict()] = "drop"
    return {
        (element.map, element.key): chains[data]
        for claim in made.keys.values()
        for element, data in claim.elements.items()
        if element.map != ENDPOINTS
    }


def indices(made: ServiceRules, key: bytes) -> list[int]:
    elements = made.keys[key].elements
    found = [each.key[len(key) :] for each in elements if each.map == ENDPOINTS]
    return [int.from_bytes(each, "little") for each in found]


def test_a_cluster_ip_has_one_verdict_and_an_element_per_endpoint() -> None:
    made = service_rules("default/web", [port()])
    assert verdicts(made) == {(SERVICES, CLUSTER_KEY): "service_2"}
    assert indices(made, CLUSTER_KEY) == [0, 1]
    claim = made.keys[CLUSTER_KEY]
    assert claim.rank == CLUSTER
    first = ElementKey(ENDPOINTS, CLUSTER_KEY + bytes(4))
    assert claim.elements[first] == ruleset.target(*ONE)
    assert list(made.chains) == ["service_2"]


def test_a_node_port_hides_the_client_unless_the_policy_is_local() -> None:
    made = service_rules("default/web", [port(node_port=30080)])
    assert verdicts(made)[SERVICES, NODE_PORT_KEY] == "node_port_2_external"
    assert made.keys[NODE_PORT_KEY].rank == EXTERNAL
    local = service_rules(
        "default/web", [port(local=(TWO,), node_port=30080, is_external_local=True)]
    )
    assert verdicts(local) == {
        (SERVICES, CLUSTER_KEY): "service_2",
        (SERVICES, NODE_PORT_KEY): "node_port_2",
        (OUTSIDE, NODE_PORT_KEY): "node_port_1_local",
    }
    assert indices(local, NODE_PORT_KEY) == [0, 1, 65536]


def test_policy_local_without_local_endpoints_drops() -> None:
    outside = service_rules("default/web", [port(node_port=30080, is_external_local=True)])
    assert verdicts(outside)[OUTSIDE, NODE_PORT_KEY] == "drop"
    inside = service_rules("default/web", [port(is_internal_local=True)])
    assert verdicts(inside) == {(REFUSED, CLUSTER_KEY): "drop"}


def test_without_any_endpoint_all_addresses_refuse() -> None:
    external = IPv4Address("192.0.2.7")
    made = service_rules("default/web", [port((), external_addresses=(external,), node_port=30080)])
    keys = (CLUSTER_KEY, ruleset.key(external, "TCP", 80), NODE_PORT_KEY)
    assert verdicts(made) == {(REFUSED, key): "refuse" for key in keys}
    assert not made.chains


def test_session_affinity_has_a_set_and_a_chain_per_endpoint() -> None:
    made = service_rules("default/web", [port(node_port=30080, affinity_seconds=30)])
    (name,) = {name for name in verdicts(made).values() if not name.endswith("external")}
    assert verdicts(made)[SERVICES, NODE_PORT_KEY] == f"{name}_external"
    assert made.sets.keys() == {
        f"{name}_10.244.0.2_8080_30s",
        f"{name}_10.244.0.3_8080_30s",
    }
    assert all(each.timeout_seconds == 30 for each in made.sets.values())
    assert made.chains.keys() == {name, f"{name}_external", *made.sets}
    # Two rules for clients that are known, two for the others.
    assert len(made.chains[name].rules) == 4
    assert not indices(made, CLUSTER_KEY)


def test_chains_of_two_services_differ() -> None:
    one, two = (service_rules(name, [port(affinity_seconds=30)]) for name in ("a/web", "b/web"))
    assert one.chains.keys().isdisjoint(two.chains)


def test_a_pinned_port_leads_to_one_program() -> None:
    made = pinned_rules(ADDRESS, "TCP", 80, ONE)
    assert made.keys[CLUSTER_KEY].rank == PINNED
    assert verdicts(made) == {(SERVICES, CLUSTER_KEY): "service_1"}


def test_source_ranges_limit_the_clients_of_a_load_balancer() -> None:
    balancer = IPv4Address("127.0.50.1")
    ranges = (IPv4Network("192.0.2.0/24"), IPv4Network("198.51.100.0/24"))
    made = service_rules(
        "default/web",
        [
            port(
                external_addresses=(balancer, IPv4Address("192.0.2.7")),
                balancer_addresses=(balancer,),
                source_ranges=ranges,
            )
        ],
    )
    limited = {key: name for (place, key), name in verdicts(made).items() if place == REFUSED}
    (name,) = limited.values()
    assert limited == {ruleset.key(balancer, "TCP", 80): name}
    assert len(made.chains[name].rules) == 3
