"""Which ports of Services a node carries, and which endpoints it chooses."""

import time
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from kedge.api.core_v1.service_types import (
    ClientIPConfig,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SessionAffinityConfig,
)
from kedge.api.discovery_v1.endpoint_slice import (
    Endpoint,
    EndpointConditions,
    EndpointHints,
    EndpointPort,
    EndpointSlice,
    ForNode,
    ForZone,
)
from kedge.api.model import ObjectMeta
from kedge.node.services.service_ports import (
    MOST_ENDPOINTS,
    MOST_TARGETS,
    CandidateEndpoint,
    CarriedPort,
    EndpointTarget,
    NodePlace,
    carried_ports,
    choose,
    is_large,
)

HERE = NodePlace("node-1", "zone-a")


def service(labels: dict[str, str] | None = None, **spec: Any) -> Service:
    whole = {"clusterIP": "10.96.0.5", "ports": [ServicePort(port=80, protocol="TCP")], **spec}
    return Service(metadata=ObjectMeta(name="web", labels=labels or {}), spec=ServiceSpec(**whole))


def slice_of(*endpoints: Endpoint, port: int = 8080, name: str = "", **more: Any) -> EndpointSlice:
    offered = EndpointPort(name=name, port=port, protocol=more.pop("protocol", "TCP"))
    return EndpointSlice(
        metadata=ObjectMeta(name="s"),
        addressType=more.pop("family", "IPv4"),
        ports=[offered],
        endpoints=list(endpoints),
    )


def at(address: str, **more: Any) -> Endpoint:
    return Endpoint(addresses=[address], **more)


def chosen(port: CarriedPort) -> list[str]:
    return [f"{each.address}:{each.port}" for each in port.choice.cluster]


def test_a_cluster_ip_leads_to_ready_endpoints() -> None:
    ready = at("10.244.0.2", nodeName="node-1")
    failing = at("10.244.0.3", conditions=EndpointConditions(ready=False))
    (port,) = carried_ports(service(), [slice_of(ready, failing)], HERE)
    assert port.cluster_addresses == (IPv4Address("10.96.0.5"),)
    assert chosen(port) == ["10.244.0.2:8080"]
    assert port.choice.local == port.choice.cluster
    assert (port.node_port, port.external_addresses, port.affinity_seconds) == (0, (), 0)


@pytest.mark.parametrize(
    "made",
    [
        service(clusterIP="None"),
        service(clusterIP="", type="ExternalName", externalName="example.com"),
        service(clusterIP="fd00::5"),
        service({"service.kubernetes.io/service-proxy-name": "other"}),
        service({"service.kubernetes.io/headless": ""}),
        service(ports=[]),
    ],
)
def test_services_of_others_and_without_an_address_are_not_carried(made: Service) -> None:
    assert carried_ports(made, [slice_of(at("10.244.0.2"))], HERE) == []


def test_ports_are_matched_by_name_and_protocol() -> None:
    made = service(
        ports=[
            ServicePort(name="dns", port=53, protocol="UDP"),
            ServicePort(name="dns-tcp", port=53, protocol="TCP"),
        ]
    )
    slices = [
        slice_of(at("10.244.0.2"), name="dns", port=5353, protocol="UDP"),
        slice_of(at("10.244.0.3"), name="dns", port=5300, protocol="UDP"),
        slice_of(at("10.244.0.4"), name="dns-tcp", port=5353),
        slice_of(at("10.244.0.5"), name="dns", port=5353),
        slice_of(at("fd00::9"), name="dns-tcp", family="IPv6"),
    ]
    udp, tcp = carried_ports(made, slices, HERE)
    assert chosen(udp) == ["10.244.0.2:5353", "10.244.0.3:5300"]
    assert chosen(tcp) == ["10.244.0.4:5353"]


def test_an_endpoint_in_two_slices_counts_once() -> None:
    (port,) = carried_ports(service(), [slice_of(at("10.244.0.2"))] * 2, HERE)
    assert chosen(port) == ["10.244.0.2:8080"]


def test_external_addresses_and_node_ports() -> None:
    made = service(
        type="LoadBalancer",
        externalIPs=["192.0.2.7", "fd00::1"],
        externalTrafficPolicy="Local",
        internalTrafficPolicy="Local",
        ports=[ServicePort(port=80, nodePort=30080)],
    )
    ingress = [
        LoadBalancerIngress(ip="127.0.50.1"),
        LoadBalancerIngress(ip="192.0.2.9", ipMode="Proxy"),
        LoadBalancerIngress(hostname="example.com"),
    ]
    status = ServiceStatus(loadBalancer=LoadBalancerStatus(ingress=ingress))
    (port,) = carried_ports(Service(spec=made.spec, status=status), [], HERE)
    assert [str(each) for each in port.external_addresses] == ["192.0.2.7", "127.0.50.1"]
    assert [str(each) for each in port.balancer_addresses] == ["127.0.50.1"]
    assert (port.node_port, port.protocol) == (30080, "TCP")
    assert port.is_external_local
    assert port.is_internal_local


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({"sessionAffinity": "None"}, 0),
        ({"sessionAffinity": "ClientIP"}, 10800),
        (
            {
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": SessionAffinityConfig(
                    clientIP=ClientIPConfig(timeoutSeconds=30)
                ),
            },
            30,
        ),
    ],
)
def test_session_affinity_has_a_timeout(spec: dict[str, Any], seconds: int) -> None:
    (port,) = carried_ports(service(**spec), [], HERE)
    assert port.affinity_seconds == seconds


def test_addresses_of_nodes_and_pods_are_not_taken() -> None:
    made = service(externalIPs=["10.244.0.1", "192.0.2.7"])
    place = NodePlace("node-1", pods=IPv4Network("10.244.0.0/16"))
    (port,) = carried_ports(made, [], place)
    assert port.external_addresses == (IPv4Address("192.0.2.7"),)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], None),
        ([" 192.0.2.0/24", "fd00::/8"], (IPv4Network("192.0.2.0/24"),)),
        (["fd00::/8"], ()),
    ],
)
def test_source_ranges_of_other_families_permit_nothing(
    given: list[str], expected: tuple[IPv4Network, ...] | None
) -> None:
    (port,) = carried_ports(service(loadBalancerSourceRanges=given), [], HERE)
    assert port.source_ranges == expected


def candidate(number: int, **more: Any) -> CandidateEndpoint:
    target = EndpointTarget(IPv4Address(f"10.244.0.{number}"), 80)
    state = {"is_ready": True, "is_draining": False, "is_local": False, **more}
    return CandidateEndpoint(target, **state)


def numbers(targets: tuple[EndpointTarget, ...]) -> list[int]:
    return [each.address.packed[3] for each in targets]


DRAINING = {"is_ready": False, "is_draining": True}


@pytest.mark.parametrize(
    ("candidates", "cluster", "local"),
    [
        ([candidate(1), candidate(2, is_ready=False)], [1], []),
        ([candidate(1), candidate(2, **DRAINING)], [1], []),
        ([candidate(1, is_ready=False), candidate(2, **DRAINING)], [2], []),
        ([candidate(1), candidate(2, **DRAINING, is_local=True)], [1], [2]),
        ([candidate(1, is_local=True), candidate(2)], [1, 2], [1]),
        # Hints of nodes, then of zones; only if all ready endpoints have some.
        ([candidate(1, nodes=("node-1",)), candidate(2, nodes=("node-2",))], [1], []),
        ([candidate(1, nodes=("node-1",)), candidate(2)], [1, 2], []),
        ([candidate(1, nodes=("node-2",)), candidate(2, nodes=("node-3",))], [1, 2], []),
        ([candidate(1, zones=("zone-a",)), candidate(2, zones=("zone-b",))], [1], []),
        ([candidate(1, zones=("zone-a",)), candidate(2)], [1, 2], []),
        ([candidate(1, zones=("zone-b",)), candidate(2, zones=("zone-b",))], [1, 2], []),
        (
            [
                candidate(1, zones=("zone-a",)),
                candidate(2, zones=("zone-b",)),
                candidate(3, zones=("zone-a",), **DRAINING),
            ],
            [1],
            [],
        ),
        ([], [], []),
    ],
)
def test_endpoints_are_chosen_as_kube_proxy_does(
    candidates: list[CandidateEndpoint], cluster: list[int], local: list[int]
) -> None:
    found = choose(candidates, HERE)
    assert (numbers(found.cluster), numbers(found.local)) == (cluster, local)


def test_without_a_zone_hints_of_zones_do_not_count() -> None:
    hinted = [candidate(1, zones=("",)), candidate(2, zones=("zone-b",))]
    assert numbers(choose(hinted, NodePlace("node-1")).cluster) == [1, 2]


def test_conditions_and_hints_are_read_from_slices() -> None:
    drained = EndpointConditions(ready=False, serving=True, terminating=True)
    hints = EndpointHints(forNodes=[ForNode(name="node-1")], forZones=[ForZone(name="zone-a")])
    far = EndpointHints(forNodes=[ForNode(name="node-2")])
    (port,) = carried_ports(service(), [slice_of(at("10.244.0.9", conditions=drained))], HERE)
    assert chosen(port) == ["10.244.0.9:8080"]
    slices = [slice_of(at("10.244.0.1", hints=hints), at("10.244.0.2", hints=far))]
    (port,) = carried_ports(service(), slices, HERE)
    assert chosen(port) == ["10.244.0.1:8080"]


def test_the_number_of_endpoints_is_bounded() -> None:
    many = [
        CandidateEndpoint(EndpointTarget(IPv4Address(number), 80), True, False, False)
        for number in range(MOST_ENDPOINTS + 5)
    ]
    assert len(choose(many, HERE).cluster) == MOST_ENDPOINTS


def test_ports_and_endpoints_are_not_multiplied_without_end() -> None:
    count = 4_000
    ports = [ServicePort(name=f"p{i}", port=i + 1) for i in range(count)]
    offered = [EndpointPort(name=f"p{i}", port=i + 1, protocol="TCP") for i in range(count)]
    targets = [Endpoint(addresses=[f"10.244.{i >> 8}.{i & 255}"]) for i in range(1_000)]
    made = service(ports=ports)
    slices = [EndpointSlice(addressType="IPv4", ports=offered, endpoints=targets)]
    begun = time.process_time()
    found = carried_ports(made, slices, HERE)
    assert len(found) == count
    assert {len(each.choice.cluster) for each in found} == {MOST_TARGETS // count}
    assert time.process_time() - begun < 5
    assert is_large(made, slices)
