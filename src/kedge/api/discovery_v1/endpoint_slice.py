"""EndpointSlice: some of the addresses behind a service."""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.core_v1.endpoints import unreachable
from kedge.api.core_v1.references import ObjectReference
from kedge.api.metadata import validate_labels
from kedge.api.model import SET, Int32, Model, Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
MOST_ENDPOINTS = 1000
MOST_ADDRESSES = 100
MOST_PORTS = 20000
MOST_TOPOLOGY = 16
MOST_HINTS = 8
_SHOWN = 3


class EndpointConditions(Model):
    """How an endpoint is doing; unknown counts as ready."""

    ready: bool | None = None
    """Whether it takes new traffic."""
    serving: bool | None = None
    """Whether it can serve, be it on its way out or not."""
    terminating: bool | None = None
    """Whether it is on its way out."""


class ForZone(Model):
    """A zone that an endpoint should serve."""

    __required__ = ("name",)

    name: str = ""
    """Name of the zone."""


class ForNode(Model):
    """A node that an endpoint should serve."""

    __required__ = ("name",)

    name: str = ""
    """Name of the node."""


class EndpointHints(Model):
    """Topology hints: the zones and nodes that an endpoint should serve."""

    forNodes: Sequence[ForNode] = ()
    """Nodes."""
    forZones: Sequence[ForZone] = ()
    """Zones."""


class Endpoint(Model):
    """One backend of the service, with addresses that lead to the same place."""

    __required__ = ("addresses",)

    addresses: Annotated[Sequence[str], SET] = ()
    """Where it is; consumers use the first."""
    conditions: EndpointConditions = field(default_factory=EndpointConditions)
    """How it is doing."""
    deprecatedTopology: Mapping[str, str] = {}
    """No longer set."""
    hints: EndpointHints | None = None
    """Topology hints of the endpoint."""
    hostname: str | None = None
    """The name under which DNS shall know it."""
    nodeName: str | None = None
    """The node on which it is."""
    targetRef: ObjectReference | None = None
    """The object behind it, mostly a pod."""
    zone: str | None = None
    """The zone in which it is."""


class EndpointPort(Model):
    """A port that all endpoints of the slice have."""

    __atomic__ = True

    appProtocol: str | None = None
    """The application protocol of the port, for instance kubernetes.io/h2c."""
    name: str | None = None
    """The service's name for the port. Default empty."""
    port: Int32 | None = None
    """Number of the port; none means whatever the consumer makes of that."""
    protocol: str | None = None
    """TCP, UDP or SCTP. Default TCP."""


class EndpointSlice(Object):
    """Some of the addresses behind a service."""

    __required__ = ("addressType",)

    addressType: str = field(default_factory=str)
    """IPv4, IPv6 or FQDN. Cannot be changed."""
    # Written even when empty: consumers in Go meet a null otherwise.
    endpoints: Sequence[Endpoint] = field(default_factory=lambda: [])
    """The endpoints, at most a thousand."""
    ports: Sequence[EndpointPort] = ()
    """Ports that each endpoint has."""


def default(obj: EndpointSlice) -> EndpointSlice:
    if not obj.ports:
        return obj
    ports = [
        replace(
            port,
            name=port.name or "",
            protocol="TCP" if port.protocol is None else port.protocol,
        )
        for port in obj.ports
    ]
    return replace(obj, ports=ports)


def validate(obj: EndpointSlice) -> Iterator[FieldError]:
    yield from rules.one_of("addressType", obj.addressType, ADDRESS_TYPES)
    if len(obj.ports) > MOST_PORTS:
        yield FieldError.too_many("ports", len(obj.ports), MOST_PORTS)
    else:
        yield from _ports(obj.ports)
    if len(obj.endpoints) > MOST_ENDPOINTS:
        yield FieldError.too_many("endpoints", len(obj.endpoints), MOST_ENDPOINTS)
        return
    for i, endpoint in enumerate(obj.endpoints):
        yield from _endpoint(endpoint, obj.addressType, f"endpoints[{i}]")


def _ports(ports: Sequence[EndpointPort]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, port in enumerate(ports):
        path = f"ports[{i}]"
        name = port.name or ""
        if name:
            yield from rules.problems(f"{path}.name", name, names.dns_label(name))
        if name in seen:
            yield FieldError.duplicate(f"{path}.name", name)
        seen.add(name)
        if port.protocol not in rules.PROTOCOLS:
            yield FieldError.not_supported(f"{path}.protocol", port.protocol, rules.PROTOCOLS)
        if port.appProtocol is not None:
            found = names.qualified_name(port.appProtocol)
            yield from rules.problems(f"{path}.appProtocol", port.appProtocol, found)


def _endpoint(endpoint: Endpoint, type_: str, path: str) -> Iterator[FieldError]:
    count = len(endpoint.addresses)
    if not count:
        yield FieldError.required(f"{path}.addresses", "must contain at least 1 address")
    elif count > MOST_ADDRESSES:
        yield FieldError.too_many(f"{path}.addresses", count, MOST_ADDRESSES)
    for i, address in enumerate(endpoint.addresses):
        yield from _address(address, type_, f"{path}.addresses", i)
    if endpoint.nodeName is not None:
        found = names.dns_subdomain(endpoint.nodeName)
        yield from rules.problems(f"{path}.nodeName", endpoint.nodeName, found)
    if len(endpoint.deprecatedTopology) > MOST_TOPOLOGY:
        at = f"{path}.deprecatedTopology"
        yield FieldError.too_many(at, len(endpoint.deprecatedTopology), MOST_TOPOLOGY)
    yield from validate_labels(endpoint.deprecatedTopology, f"{path}.deprecatedTopology")
    if endpoint.hostname is not None:
        found = names.dns_label(endpoint.hostname)
        yield from rules.problems(f"{path}.hostname", endpoint.hostname, found)
    if endpoint.hints is not None:
        yield from _hints(endpoint.hints, f"{path}.hints")


def _address(address: str, type_: str, path: str, i: int) -> Iterator[FieldError]:
    at = f"{path}[{i}]"
    if type_ == "FQDN":
        if not address:
            yield FieldError.required(at)
        else:
            yield from rules.problems(at, address, names.fully_qualified_domain(address))
    if type_ not in ("IPv4", "IPv6"):
        return
    check = names.ip_address if type_ == "IPv4" else names.canonical_ip_address
    if found := check(address):
        yield from rules.problems(at, address, found)
        return
    if f"IPv{ipaddress.ip_address(address).version}" != type_:
        yield FieldError.invalid(path, address, f"must be an {type_} address")
    yield from rules.problems(at, address, unreachable(address))


def _hints(hints: EndpointHints, path: str) -> Iterator[FieldError]:
    zones = [zone.name for zone in hints.forZones]
    yield from _hinted(zones, f"{path}.forZones", names.label_value)
    nodes = [node.name for node in hints.forNodes]
    yield from _hinted(nodes, f"{path}.forNodes", names.dns_subdomain)


def _hinted(hinted: Sequence[str], path: str, check: names.Rule) -> Iterator[FieldError]:
    if len(hinted) > MOST_HINTS:
        yield FieldError.too_many(path, len(hinted), MOST_HINTS)
        return
    for i, name in enumerate(hinted):
        if name in hinted[:i]:
            yield FieldError.duplicate(f"{path}[{i}].name", name)
        yield from rules.problems(f"{path}[{i}].name", name, check(name))


def validate_update(new: EndpointSlice, old: EndpointSlice) -> Iterator[FieldError]:
    return rules.unchanged("addressType", new.addressType, old.addressType)


def warn(obj: EndpointSlice) -> Iterable[str]:
    if obj.addressType == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"


def _port_cell(port: EndpointPort) -> str:
    if port.port is not None:
        return str(port.port)
    return "*" if port.name is None else port.name


def _first_few(values: Sequence[str]) -> str:
    shown = ",".join(values[:_SHOWN])
    if len(values) > _SHOWN:
        return f"{shown} + {len(values) - _SHOWN} more..."
    return shown or "<unset>"


def without_topology(obj: EndpointSlice) -> EndpointSlice:
    """Drop a field of the older version, which this one only shows."""
    if not any(endpoint.deprecatedTopology for endpoint in obj.endpoints):
        return obj
    endpoints = [replace(endpoint, deprecatedTopology={}) for endpoint in obj.endpoints]
    return replace(obj, endpoints=endpoints)


def desired_state(document: dict[str, Any]) -> object:
    """Return what raises the generation: the labels, too, as consumers select slices by them."""
    content = {key: value for key, value in document.items() if key != "metadata"}
    return content, document["metadata"].get("labels")


RESOURCE: Resource[EndpointSlice] = Resource(
    type=EndpointSlice,
    group="discovery.k8s.io",
    plural="endpointslices",
    strategy=Strategy(
        default=default,
        desired_state=desired_state,
        prepare_for_create=without_topology,
        prepare_for_update=lambda new, old: without_topology(new),
        validate=validate,
        validate_update=validate_update,
        warnings=warn,
    ),
    presentation=Presentation(
        columns=[
            name_column(),
            Column(
                name="AddressType",
                cell=lambda obj: obj.addressType,
                description="What sort of addresses it holds.",
            ),
            Column(
                name="Ports",
                cell=lambda obj: _first_few([_port_cell(port) for port in obj.ports]),
                description="Ports that each endpoint has.",
            ),
            Column(
                name="Endpoints",
                cell=lambda obj: _first_few([a for e in obj.endpoints for a in e.addresses]),
                description="The addresses, or the first of them.",
            ),
            age_column(),
        ]
    ),
)
