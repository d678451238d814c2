"""Routing: from the host and path of a request to the endpoints that may answer it."""

from typing import NamedTuple
from urllib.parse import unquote

from kedge.client.informer import Cache
from kedge.gateway.endpoints import Endpoint, SliceIndex
from kedge.gateway.ingress_routes import IngressRoute, IngressTable, host_patterns
from kedge.gateway.objects import ServiceInfo, ServicePortInfo
from kedge.gateway.service_hosts import (
    DOMAIN,
    ServiceHost,
    backend_port,
    port_of,
    service_host,
    speaks_tls,
)
from kedge.machinery.errors import StatusError, bad_request


class RouteTarget(NamedTuple):
    """The endpoints of a request."""

    endpoints: list[Endpoint]
    tls: bool
    """Whether they expect TLS."""
    namespace: str = ""
    """That of the Service."""


class Routing:
    """Decides from objects in memory; nothing here waits."""

    def __init__(
        self, services: Cache[ServiceInfo], slices: SliceIndex, ingresses: IngressTable
    ) -> None:
        self._services = services
        self._slices = slices
        self._ingresses = ingresses

    def target(self, host: str, path: str) -> RouteTarget:
        """Return where a request goes; 404 if no rule matches, 503 without endpoints.

        An Ingress for the very name comes first. Names of Services come before rules for many
        hosts, so that an Ingress without a host does not hide them.
        """
        exact, *wider = host_patterns(host)
        if route := self._ingresses.find(exact, path):
            return self._of_route(route)
        named = service_host(host)
        if named is not None and (found := self._of_service(named)):
            return found
        for pattern in wider:
            if route := self._ingresses.find(pattern, path):
                return self._of_route(route)
        raise StatusError(404, "NotFound", _unknown(host, named))

    def _of_service(self, asked: ServiceHost) -> RouteTarget | None:
        service = self._services.get(asked.name, asked.namespace)
        if service is None:
            return None
        port = port_of(service.spec.ports, asked.port)
        if port is None:
            what = f'port "{asked.port}"' if asked.port else "TCP port"
            message = f'service "{asked.name}" in namespace "{asked.namespace}" has no {what}'
            raise StatusError(404, "NotFound", message)
        return self._of_port(service, port)

    def _of_route(self, route: IngressRoute) -> RouteTarget:
        if route.backend is None:
            raise unavailable("the gateway serves only backends that are Services")
        service = self._services.get(route.backend.name, route.namespace)
        if service is None:
            raise unavailable(f'there is no service "{route.backend.name}"')
        port = backend_port(service.spec.ports, route.backend.port)
        if port is None:
            raise unavailable(f'service "{route.backend.name}" does not have the port of the rule')
        return self._of_port(service, port)

    def _of_port(self, service: ServiceInfo, port: ServicePortInfo) -> RouteTarget:
        meta = service.metadata
        if service.spec.type == "ExternalName":
            # The name could be that of the machine itself, or of anything behind its firewall.
            raise unavailable(f'service "{meta.name}" is of type ExternalName')
        endpoints = self._slices.usable(meta.namespace, meta.name, port.name)
        if not endpoints:
            raise unavailable(f'no endpoints available for service "{meta.name}"')
        return RouteTarget(endpoints, speaks_tls(port), meta.namespace)


def routed_path(path: str) -> str:
    """Return the path that rules are compared with: decoded; 400 if it has dot segments, which
    servers resolve in different ways, so that a rule could be evaded."""
    decoded = unquote(path) if "%" in path else path
    if not {".", ".."}.isdisjoint(decoded.split("/")):
        raise bad_request("the path has the segment . or ..")
    return decoded


def unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)


def _unknown(host: str, named: ServiceHost | None) -> str:
    """Return a message that says what to ask for instead."""
    if named is not None:
        return f'there is no service "{named.name}" in namespace "{named.namespace}"'
    return (
        f'no Ingress has a rule for host "{host}" and this path; the Service NAME of a namespace is'
        f" at NAME.NAMESPACE.{DOMAIN}"
    )
