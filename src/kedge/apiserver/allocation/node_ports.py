"""Node ports: which ones the ports and the health check of a Service get."""

from collections.abc import Callable, Collection
from random import Random
from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1.service_types import ServicePort, ServiceSpec
from kedge.api.core_v1.service_validation import needs_health_check
from kedge.apiserver.allocation.bands import draw, lower_band
from kedge.machinery.errors import FieldError, StatusError, internal, invalid

ALLOCATED: Final = "provided port is already allocated"
FULL: Final = "range is full"
_TYPES: Final = ("NodePort", "LoadBalancer")


class PortRefused(Exception):
    """The port cannot be allocated; the text says why."""


class PortInUse(Exception):
    """Another server gives the port to a Service at this moment."""


class PortAllocation:
    """The ports that one write allocates. Nothing is held before the caller holds `chosen`."""

    def __init__(
        self, service: str, ports: range, is_taken: Callable[[int], bool], random: Random
    ) -> None:
        self.chosen: set[int] = set()
        self._service = service
        self._ports = ports
        self._is_taken = is_taken
        self._random = random

    def claim(self, number: int) -> None:
        """Allocate a port that the writer asks for; raises PortRefused."""
        if number not in self._ports:
            valid = f"{self._ports.start}-{self._ports.stop - 1}"
            raise PortRefused(
                f"provided port is not in the valid range. The range of valid ports is {valid}"
            )
        if number in self.chosen or self._is_taken(number):
            raise PortRefused(ALLOCATED)
        self.chosen.add(number)

    def next(self) -> int:
        """Allocate a free port; raises PortRefused."""
        ports, chosen = self._ports, self.chosen
        index = draw(
            len(ports),
            lower_band(len(ports), part=32, most=128),
            lambda index: ports[index] in chosen or self._is_taken(ports[index]),
            self._random,
        )
        if index is None:
            raise PortRefused(FULL)
        chosen.add(ports[index])
        return ports[index]

    def claim_for(self, i: int, number: int) -> None:
        """Allocate the node port that the writer asks for at this place; raises StatusError."""
        try:
            self.claim(number)
        except PortRefused as refusal:
            error = FieldError.invalid(f"spec.ports[{i}].nodePort", number, str(refusal))
            raise invalid("", "Service", self._service, [error]) from None

    def next_node_port(self) -> int:
        """Allocate a free node port; raises StatusError."""
        try:
            return self.next()
        except PortRefused as refusal:
            raise internal(f"failed to allocate a nodePort: {refusal}") from None


def first_ports(spec: ServiceSpec, allocation: PortAllocation) -> ServiceSpec:
    """Return the spec of a new Service with its node ports; raises StatusError.

    Ports of one number and different protocols share one node port, as upstream: clients of DNS,
    for instance, find UDP and TCP at the same one.
    """
    if spec.type in _TYPES:
        shared: dict[int, int] = {}
        ports = [_first_port(spec, i, shared, allocation) for i in range(len(spec.ports))]
        spec = replace(spec, ports=ports)
    return _with_health_check(spec, allocation) if needs_health_check(spec) else spec


def _first_port(
    spec: ServiceSpec, i: int, shared: dict[int, int], allocation: PortAllocation
) -> ServicePort:
    """Return a port of a new Service; `shared` holds the node ports by port number so far."""
    port = spec.ports[i]
    if not port.nodePort and not _allocates(spec):
        return port
    known = shared.get(port.port, 0)
    if known:
        if port.nodePort and port.nodePort != known:
            allocation.claim_for(i, port.nodePort)
        return replace(port, nodePort=port.nodePort or known)
    wanted = next((p.nodePort for p in spec.ports if p.port == port.port and p.nodePort), 0)
    if wanted:
        allocation.claim_for(i, wanted)
    shared[port.port] = wanted or allocation.next_node_port()
    return replace(port, nodePort=shared[port.port])


def later_ports(spec: ServiceSpec, old: ServiceSpec, allocation: PortAllocation) -> ServiceSpec:
    """Return the spec of a changed Service with its node ports; raises StatusError."""
    if spec.type in _TYPES:
        kept = set(node_ports(old))
        seen: set[tuple[str, int]] = set()
        ports: list[ServicePort] = []
        for i, port in enumerate(spec.ports):
            ports.append(_later_port(spec, i, kept, allocation))
            number = ports[-1].nodePort
            if number and (port.protocol, number) in seen:
                # Upstream's error is a plain one too, and Go writes the pair like this.
                message = f"duplicate nodePort: {{{port.protocol} {number}}}"
                raise StatusError(500, "", message)
            seen.add((port.protocol, number))
        spec = replace(spec, ports=ports)
    if needs_health_check(spec) and not needs_health_check(old):
        return _with_health_check(spec, allocation)
    return spec


def _later_port(
    spec: ServiceSpec, i: int, kept: Collection[int], allocation: PortAllocation
) -> ServicePort:
    port = spec.ports[i]
    if port.nodePort:
        if port.nodePort not in kept and port.nodePort not in allocation.chosen:
            allocation.claim_for(i, port.nodePort)
        return port
    return replace(port, nodePort=allocation.next_node_port()) if _allocates(spec) else port


def _allocates(spec: ServiceSpec) -> bool:
    return spec.type == "NodePort" or spec.allocateLoadBalancerNodePorts is not False


def _with_health_check(spec: ServiceSpec, allocation: PortAllocation) -> ServiceSpec:
    number = spec.healthCheckNodePort
    try:
        if number:
            allocation.claim(number)
            return spec
        return replace(spec, healthCheckNodePort=allocation.next())
    except PortRefused as refusal:
        what = f"requested HealthCheck NodePort {number}" if number else "a HealthCheck NodePort 0"
        raise internal(f"failed to allocate {what}: {refusal}") from None


def node_ports(spec: ServiceSpec) -> list[int]:
    """Return the node ports of a Service, that of its health check included."""
    ports = [port.nodePort for port in spec.ports]
    return [number for number in (*ports, spec.healthCheckNodePort) if number]
