"""Endpoints: the addresses behind a service, in their older form."""

import ipaddress
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kedge.api import rules
from kedge.api.builtin.service_networks import is_loopback_pod
from kedge.api.core_v1.references import ObjectReference
from kedge.api.model import Int32, Model, Object
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError

_SHOWN = 3


class EndpointAddress(Model):
    """One address at which a service is to be had."""

    __required__ = ("ip",)
    __atomic__ = True

    hostname: str = ""
    """The name under which DNS shall know the address."""
    ip: str = ""
    """The address; neither loopback nor link-local."""
    nodeName: str | None = None
    """The node on which it is."""
    targetRef: ObjectReference | None = None
    """The object that has the address, mostly a pod."""


class EndpointPort(Model):
    """One port that all addresses of a subset share."""

    __required__ = ("port",)
    __atomic__ = True

    appProtocol: str | None = None
    """The application protocol of the port, for instance kubernetes.io/h2c."""
    name: str = ""
    """The service's name for the port; may be left out if there is but one."""
    port: Int32 = 0
    """Number of the port."""
    protocol: str = ""
    """TCP, UDP or SCTP. Default TCP."""


class EndpointSubset(Model):
    """Addresses that have their ports in common."""

    addresses: Sequence[EndpointAddress] = ()
    """The addresses that are ready for traffic."""
    notReadyAddresses: Sequence[EndpointAddress] = ()
    """The addresses of pods that start, end or fail their probes."""
    ports: Sequence[EndpointPort] = ()
    """The ports of all of them."""


class Endpoints(Object):
    """The addresses behind the service of the same name."""

    subsets: Sequence[EndpointSubset] = ()
    """Addresses grouped by the ports they offer."""


def default(obj: Endpoints) -> Endpoints:
    if all(port.protocol for subset in obj.subsets for port in subset.ports):
        return obj
    subsets = [
        replace(subset, ports=[replace(p, protocol=p.protocol or "TCP") for p in subset.ports])
        for subset in obj.subsets
    ]
    return replace(obj, subsets=subsets)


def validate(obj: Endpoints) -> Iterator[FieldError]:
    for i, subset in enumerate(obj.subsets):
        yield from _subset(subset, f"subsets[{i}]")


def _subset(subset: EndpointSubset, path: str) -> Iterator[FieldError]:
    if not subset.addresses and not subset.notReadyAddresses:
        yield FieldError.required(path, "must specify `addresses` or `notReadyAddresses`")
    for i, address in enumerate(subset.addresses):
        yield from _address(address, f"{path}.addresses[{i}]")
    for i, address in enumerate(subset.notReadyAddresses):
        yield from _address(address, f"{path}.notReadyAddresses[{i}]")
    for i, port in enumerate(subset.ports):
        at = f"{path}.ports[{i}]"
        if len(subset.ports) > 1 and not port.name:
            yield FieldError.required(f"{at}.name")
        yield from _port(port, at)


def _address(address: EndpointAddress, path: str) -> Iterator[FieldError]:
    yield from rules.problems(f"{path}.ip", address.ip, names.ip_address(address.ip))
    if address.hostname:
        found = names.dns_label(address.hostname)
        yield from rules.problems(f"{path}.hostname", address.hostname, found)
    if address.nodeName is not None:
        found = names.dns_subdomain(address.nodeName)
        yield from rules.problems(f"{path}.nodeName", address.nodeName, found)
    yield from rules.problems(f"{path}.ip", address.ip, unreachable(address.ip))


def unreachable(ip: str) -> list[str]:
    """Return why no traffic can be sent to the address; empty if it can."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return ["must be a valid IP address"]
    problems = []
    if address.is_unspecified:
        problems.append(f"may not be unspecified ({ip})")
    if address.is_loopback and not is_loopback_pod(ip):
        problems.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        problems.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(address in network for network in _LINK_LOCAL_MULTICAST):
        problems.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return problems


_LINK_LOCAL_MULTICAST = (
    ipaddress.ip_network("224.0.0.0/24"),
    ipaddress.ip_network("ff02::/16"),
)


def _port(port: EndpointPort, path: str) -> Iterator[FieldError]:
    if port.name:
        yield from rules.problems(f"{path}.name", port.name, names.dns_label(port.name))
    yield from rules.problems(f"{path}.port", port.port, names.port_number(port.port))
    yield from rules.one_of(f"{path}.protocol", port.protocol, rules.PROTOCOLS)
    if port.appProtocol is not None:
        found = names.qualified_name(port.appProtocol)
        yield from rules.problems(f"{path}.appProtocol", port.appProtocol, found)


def summary(obj: Endpoints) -> str:
    """The first few addresses, and how many there are beyond them."""
    if not obj.subsets:
        return "<none>"
    places = [place for subset in obj.subsets for place in _places(subset)]
    shown = ",".join(places[:_SHOWN])
    return shown if len(places) <= _SHOWN else f"{shown} + {len(places) - _SHOWN} more..."


def _places(subset: EndpointSubset) -> Iterator[str]:
    if not subset.ports:
        yield from (address.ip for address in subset.addresses)
    for port in subset.ports:
        for address in subset.addresses:
            host = f"[{address.ip}]" if ":" in address.ip else address.ip
            yield f"{host}:{port.port}"


RESOURCE: Resource[Endpoints] = Resource(
    type=Endpoints,
    plural="endpoints",
    registry="services/endpoints",
    singular="endpoints",
    strategy=Strategy(
        counts_generation=False,
        allows_create_on_update=True,
        default=default,
        validate=validate,
    ),
    presentation=Presentation(
        deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        short_names=["ep"],
        columns=[
            name_column(),
            Column(
                name="Endpoints",
                cell=summary,
                description="The addresses, or the first of them.",
            ),
            age_column(),
        ],
    ),
)
