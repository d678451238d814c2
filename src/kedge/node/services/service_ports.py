"""The service ports that a node carries, and the endpoints of each, from API objects."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from typing import Final, NamedTuple

from kedge.api.core_v1.service_types import Service, ServicePort
from kedge.api.discovery_v1.endpoint_slice import Endpoint, EndpointPort, EndpointSlice

SERVICE_NAME: Final = "kubernetes.io/service-name"
"""The label of an EndpointSlice that names its Service."""
_OTHER_PROXY: Final = ("service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless")
"""Services with one of these labels belong to another proxy."""
_LOCAL: Final = "Local"
_DEFAULT_AFFINITY_SECONDS: Final = 10800
_FEW_TARGETS: Final = 1000
PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
MOST_ENDPOINTS: Final = 5000
"""Endpoints of one service port; further ones get no traffic."""
MOST_TARGETS: Final = 50_000
"""Endpoints of all ports of a Service together: two objects with ten thousand ports and a thousand
endpoints would otherwise become ten million elements in the kernel of each node."""


class NodePlace(NamedTuple):
    """The node for which endpoints are chosen."""

    name: str
    zone: str = ""
    pods: IPv4Network | None = None
    """The network of nodes and pods. A Service cannot take their addresses as its external ones:
    connections of the API server to agents would go to its pods."""


class EndpointTarget(NamedTuple):
    """Where connections to an endpoint go."""

    address: IPv4Address
    port: int


class CandidateEndpoint(NamedTuple):
    """An endpoint of one service port, before the choice."""

    target: EndpointTarget
    is_ready: bool
    is_draining: bool
    """It terminates, and still serves."""
    is_local: bool
    nodes: tuple[str, ...] = ()
    """Nodes that its hints name."""
    zones: tuple[str, ...] = ()


class EndpointChoice(NamedTuple):
    """The endpoints of a service port, as seen from one node."""

    cluster: tuple[EndpointTarget, ...]
    """Endpoints for traffic that may go to any node."""
    local: tuple[EndpointTarget, ...]
    """Endpoints of this node."""


class CarriedPort(NamedTuple):
    """A port of a Service as the datapath carries it."""

    name: str
    protocol: str
    cluster_addresses: tuple[IPv4Address, ...]
    external_addresses: tuple[IPv4Address, ...]
    """External IPs, and addresses of the load balancer."""
    balancer_addresses: tuple[IPv4Address, ...]
    port: int
    node_port: int
    choice: EndpointChoice
    is_internal_local: bool
    is_external_local: bool
    affinity_seconds: int = 0
    """How long a client stays with its endpoint; 0 without affinity."""
    source_ranges: tuple[IPv4Network, ...] | None = None
    """Networks of clients that may use the addresses of the load balancer; None for all."""


def carried_ports(
    service: Service, slices: Iterable[EndpointSlice], place: NodePlace
) -> list[CarriedPort]:
    """Return the ports of a Service that have an address; none for headless ones."""
    spec = service.spec
    addresses = tuple(_addresses(spec.clusterIPs or [spec.clusterIP]))
    if not addresses or not service.metadata.labels.keys().isdisjoint(_OTHER_PROXY):
        return []
    offers = _offers(slices)
    most = max(1, min(MOST_ENDPOINTS, MOST_TARGETS // max(1, len(spec.ports))))
    balancer = tuple(_addresses(_balancer_addresses(service)))
    external = tuple(
        each
        for each in dict.fromkeys((*_addresses(spec.externalIPs), *balancer))
        if place.pods is None or each not in place.pods
    )
    return [
        CarriedPort(
            name=port.name,
            protocol=port.protocol or "TCP",
            cluster_addresses=addresses,
            external_addresses=external,
            balancer_addresses=balancer,
            port=port.port,
            node_port=port.nodePort if spec.type in ("NodePort", "LoadBalancer") else 0,
            choice=choose(_candidates(offers.get(_port_key(port), ()), place, most), place),
            is_internal_local=spec.internalTrafficPolicy == _LOCAL,
            is_external_local=spec.externalTrafficPolicy == _LOCAL,
            affinity_seconds=_affinity_seconds(service),
            source_ranges=_source_ranges(service),
        )
        for port in spec.ports
        if (port.protocol or "TCP") in PROTOCOLS and 0 < port.port < 65536
    ]


def choose(candidates: Sequence[CandidateEndpoint], place: NodePlace) -> EndpointChoice:
    """Choose endpoints as kube-proxy does: ready ones, else those that drain."""
    ready = [each for each in candidates if each.is_ready]
    near = _near(ready, place)
    draining = [each for each in candidates if each.is_draining]
    local = [each for each in ready if each.is_local]
    local = local or [each for each in draining if each.is_local]
    return EndpointChoice(_targets(near or draining), _targets(local))


def _near(ready: list[CandidateEndpoint], place: NodePlace) -> list[CandidateEndpoint]:
    """Heed hints only if each ready endpoint has some, and one is for this node or zone."""
    for_node = [each for each in ready if place.name in each.nodes]
    if for_node and all(each.nodes for each in ready):
        return for_node
    for_zone = [each for each in ready if place.zone and place.zone in each.zones]
    if for_zone and all(each.zones for each in ready):
        return for_zone
    return ready


def _targets(chosen: Iterable[CandidateEndpoint]) -> tuple[EndpointTarget, ...]:
    return tuple(sorted({each.target for each in chosen})[:MOST_ENDPOINTS])


def is_large(service: Service, slices: Iterable[EndpointSlice]) -> bool:
    """Whether the ports of a Service take long to compute."""
    return len(service.spec.ports) * sum(len(each.endpoints) for each in slices) > _FEW_TARGETS


PortKey = tuple[str, str]
"""Name and protocol of a port. The number of a port may differ between slices."""
Offer = tuple[int, EndpointSlice]
"""The number of a port, and the slice that has it."""


def _offers(slices: Iterable[EndpointSlice]) -> dict[PortKey, list[Offer]]:
    """Return the slices by their ports. A Service may have thousands of ports, and its slices as
    many: to compare each with each would take minutes."""
    found: dict[PortKey, list[Offer]] = {}
    for each in slices:
        if each.addressType != "IPv4":
            continue
        for offered in each.ports:
            if offered.port:
                found.setdefault(_port_key(offered), []).append((offered.port, each))
    return found


def _port_key(port: ServicePort | EndpointPort) -> PortKey:
    return port.name or "", port.protocol or "TCP"


def _candidates(offers: Iterable[Offer], place: NodePlace, most: int) -> list[CandidateEndpoint]:
    every = (
        candidate
        for number, each in offers
        for endpoint in each.endpoints
        for candidate in _candidate(endpoint, number, place)
    )
    return list(islice(every, most))


def _candidate(endpoint: Endpoint, port: int, place: NodePlace) -> Iterator[CandidateEndpoint]:
    conditions, hints = endpoint.conditions, endpoint.hints
    is_ready = conditions.ready is not False
    is_serving = is_ready if conditions.serving is None else conditions.serving
    for address in _addresses(endpoint.addresses[:1]):
        yield CandidateEndpoint(
            EndpointTarget(address, port),
            is_ready,
            is_serving and bool(conditions.terminating),
            endpoint.nodeName == place.name,
            tuple(each.name for each in hints.forNodes) if hints else (),
            tuple(each.name for each in hints.forZones) if hints else (),
        )


def _balancer_addresses(service: Service) -> Iterator[str]:
    if service.spec.type != "LoadBalancer":
        return
    for each in service.status.loadBalancer.ingress:
        if each.ip and each.ipMode != "Proxy":
            yield each.ip


def _source_ranges(service: Service) -> tuple[IPv4Network, ...] | None:
    """Return the networks of permitted clients. If all of them are IPv6, no IPv4 client is."""
    if not service.spec.loadBalancerSourceRanges:
        return None
    found = set()
    for each in service.spec.loadBalancerSourceRanges:
        with contextlib.suppress(ValueError):
            found.add(IPv4Network(each.strip(), strict=False))
    return tuple(sorted(found))


def _affinity_seconds(service: Service) -> int:
    spec = service.spec
    if spec.sessionAffinity != "ClientIP":
        return 0
    config = spec.sessionAffinityConfig
    given = config.clientIP.timeoutSeconds if config and config.clientIP else None
    return given or _DEFAULT_AFFINITY_SECONDS


def _addresses(texts: Iterable[str]) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses among these; headless Services have `None` instead of one."""
    for each in texts:
        try:
            yield IPv4Address(each)
        except ValueError:
            continue
