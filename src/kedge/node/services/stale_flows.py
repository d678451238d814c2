"""Which UDP flows still lead to an endpoint that their Service no longer has.

The kernel decides the destination of a flow with its first packet. A UDP client that keeps its
port would stay with a removed endpoint for as long as it sends.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address
from typing import NamedTuple

from kedge.node.network.conntrack import TrackedFlow
from kedge.node.network.ruleset import ANY_ADDRESS, TableScope
from kedge.node.services.service_ports import CarriedPort, EndpointTarget

UdpTargets = dict["UdpAddress", frozenset[EndpointTarget]]
"""The endpoints of each UDP service port."""


class UdpAddress(NamedTuple):
    """Where clients of a UDP service port send to; node ports have the address 0.0.0.0."""

    address: IPv4Address
    port: int


def udp_targets(ports: Iterable[CarriedPort]) -> UdpTargets:
    """Return all endpoints of each UDP address, whatever the traffic policy."""
    found: UdpTargets = {}
    for port in ports:
        if port.protocol != "UDP":
            continue
        targets = frozenset((*port.choice.cluster, *port.choice.local))
        for address in (*port.cluster_addresses, *port.external_addresses):
            found[UdpAddress(address, port.port)] = targets
        if port.node_port:
            found[UdpAddress(ANY_ADDRESS, port.node_port)] = targets
    return found


def to_check(old: UdpTargets, new: UdpTargets) -> UdpTargets:
    """Return the addresses whose flows may be stale, with their present endpoints: an endpoint
    went, or the first one came."""
    return {
        address: new.get(address, frozenset())
        for address in old.keys() | new.keys()
        if old.get(address, frozenset()) - new.get(address, frozenset())
        or (new.get(address) and not old.get(address))
    }


def stale_flows(
    flows: Iterable[TrackedFlow],
    checked: Mapping[UdpAddress, frozenset[EndpointTarget]],
    scope: TableScope,
) -> Iterator[TrackedFlow]:
    """Yield the flows that do not lead to a present endpoint. Flows of pods of other nodes and
    clusters of the machine belong to their agents."""
    for flow in flows:
        if not _is_ours(flow.source, scope):
            continue
        answered = EndpointTarget(flow.answered_by, flow.answered_port)
        is_translated = answered != (flow.destination, flow.port)
        targets = checked.get(UdpAddress(flow.destination, flow.port))
        if targets is None and is_translated:
            targets = checked.get(UdpAddress(ANY_ADDRESS, flow.port))
        if targets is not None and answered not in targets:
            yield flow


def _is_ours(source: IPv4Address, scope: TableScope) -> bool:
    return source in scope.network or (scope.owns_machine and source not in scope.pods)
