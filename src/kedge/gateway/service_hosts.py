"""Host names of Services: NAME.NAMESPACE.localhost, and which port they mean."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kedge.gateway.objects import BackendPort, ServicePortInfo

DOMAIN: Final = "localhost"
"""Browsers and curl resolve every name below it to loopback, without DNS."""
_TLS_PROTOCOLS: Final = ("https", "kubernetes.io/wss")
_HTTP_NAMES: Final = ("http", "web", "www")
_HTTP_NUMBERS: Final = (80, 8080, 8000, 3000, 5000)
MOST_PORTS: Final = 1000
"""Ports of a Service that are looked at, for each request."""


class ServiceHost(NamedTuple):
    """A Service, and the name or number of its port; empty for the one that speaks HTTP."""

    namespace: str
    name: str
    port: str = ""


def host_name(host: str) -> str:
    """Return the name of a Host header: without port, without a dot at its end, in lower case."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].rstrip(".").lower()


def service_host(name: str) -> ServiceHost | None:
    """Return the Service of a host name; None for other names."""
    match name.split("."):
        case [service, namespace, last] if last == DOMAIN:
            return ServiceHost(namespace, service)
        case [port, service, namespace, last] if last == DOMAIN:
            return ServiceHost(namespace, service, port)
    return None


def port_of(ports: Sequence[ServicePortInfo], asked: str) -> ServicePortInfo | None:
    """Return the port with this name or number, or the one that most likely speaks HTTP."""
    offered = [port for port in ports[:MOST_PORTS] if port.protocol == "TCP"]
    if asked:
        named = (port for port in offered if asked in (port.name, str(port.port)))
        return next(named, None)
    return min(offered, key=_distance_from_http, default=None)


def _distance_from_http(port: ServicePortInfo) -> int:
    """Order the ports of a Service: those that speak HTTP first, those with TLS next."""
    if port.app_protocol.lower() in ("http", "kubernetes.io/ws") or port.name in _HTTP_NAMES:
        return 0
    if port.name.startswith("http-") or port.port in _HTTP_NUMBERS:
        return 1
    return 2 if speaks_tls(port) else 3


def backend_port(ports: Sequence[ServicePortInfo], wanted: BackendPort) -> ServicePortInfo | None:
    """Return the port that the backend of an Ingress names."""
    for port in ports[:MOST_PORTS]:
        if port.protocol == "TCP" and (
            port.name == wanted.name if wanted.name else port.port == wanted.number
        ):
            return port
    return None


def speaks_tls(port: ServicePortInfo) -> bool:
    """Whether a port expects TLS, by its protocol, its name or its number."""
    if port.app_protocol:
        return port.app_protocol.lower() in _TLS_PROTOCOLS
    return port.name == "https" or port.name.startswith("https-") or port.port == 443
