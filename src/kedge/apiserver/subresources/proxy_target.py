"""Where a proxied request goes: the name in the path, the port, and the endpoint of a Service."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from kedge.api.builtin.service_networks import SIMULATED_NETWORK, is_loopback_pod
from kedge.api.core_v1.endpoints import EndpointAddress, EndpointSubset
from kedge.api.core_v1.service_types import ServicePort
from kedge.machinery.errors import StatusError, bad_request

SCHEMES = ("", "http", "https")


class ProxyName(NamedTuple):
    """The name in the path of a proxied request: `name`, `name:port` or `scheme:name:port`."""

    text: str
    scheme: str
    name: str
    port: str

    @property
    def number(self) -> int | None:
        """The port as a number; None if it is empty or a name."""
        return int(self.port) if self.port.isascii() and self.port.isdecimal() else None


def split(text: str, what: str) -> ProxyName:
    """Return the parts of the name; raises 400."""
    match text.split(":"):
        case [name] if name:
            return ProxyName(text, "", name, "")
        case [name, port] if name:
            return ProxyName(text, "", name, port)
        case [scheme, name, port] if name and scheme in SCHEMES:
            return ProxyName(text, scheme, name, port)
    raise bad_request(f'invalid {what} request "{text}"')


def split_numeric(text: str, what: str) -> ProxyName:
    """Return the parts of a name whose port must be a number; raises 400."""
    asked = split(text, what)
    numeric = asked.port.isascii() and asked.port.isdecimal() and 0 < int(asked.port[:6]) < 1 << 16
    if asked.port and not numeric:
        raise bad_request(f'invalid {what} request "{text}"')
    return asked


def check_address(text: str) -> str:
    """Return the address; 400 unless it is a global unicast address. Anything else would be on
    the server's own machine or link."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise bad_request("address not allowed") from None
    if is_loopback_pod(text):
        return text
    if address in SIMULATED_NETWORK:
        raise bad_request(f"nothing listens at {text}: the pod is simulated")
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        raise bad_request("address not allowed")
    if address.is_link_local or text == "255.255.255.255":
        raise bad_request("address not allowed")
    return text


def first_port(pod: Mapping[str, Any]) -> int | None:
    """Return the first port that a pod declares."""
    for container in pod.get("spec", {}).get("containers") or ():
        for port in container.get("ports") or ():
            return int(port["containerPort"])
    return None


def port_name(asked: ProxyName, ports: Sequence[ServicePort]) -> str:
    """Return the name of a Service's port, which is that of the endpoints too; 503 if the Service
    has no port of this number."""
    if asked.number is None:
        return asked.port
    for port in ports:
        if port.port == asked.number:
            return port.name
    raise unavailable(f'no service port {asked.port} found for service "{asked.name}"')


def endpoint(
    asked: ProxyName,
    subsets: Sequence[EndpointSubset],
    name: str,
    is_pod: Callable[[EndpointAddress], bool],
    random: Random,
) -> tuple[str, int]:
    """Return a random ready endpoint that has the port of this name; 503 if there is none.

    `is_pod` says whether a pod of the Service's namespace has the address. Others are not used:
    who may write Endpoints could otherwise reach any address that the server reaches.
    """
    if not subsets:
        raise unavailable(f'no endpoints available for service "{asked.name}"')
    for subset in _rotated(subsets, random):
        for port in subset.ports:
            if (port.name or "") == name:
                for address in _rotated(subset.addresses, random):
                    if is_pod(address):
                        return address.ip, port.port
    raise unavailable(f'no endpoints available for service "{asked.text}"')


def _rotated(items: Sequence[Any], random: Random) -> Iterator[Any]:
    """Return all items, from a random one on."""
    start = random.randrange(len(items)) if items else 0
    for at in range(len(items)):
        yield items[(start + at) % len(items)]


def unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)
