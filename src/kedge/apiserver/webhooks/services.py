"""Where a service can be reached from here: at one of its ready endpoints.

Cluster addresses lead nowhere from the server's own process, so endpoints are dialled directly.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kedge.api.core_v1 import endpoints, service
from kedge.api.core_v1.service_types import Service, ServicePort
from kedge.api.discovery_v1 import endpoint_slice
from kedge.apiserver.watchcache import Selection, WatchCache
from kedge.machinery.errors import StatusError, not_found
from kedge.machinery.selectors import labels_from_map, parse_fields

Address = tuple[str, int]
Resolve = Callable[[str, str, int], Address]
"""(namespace, name, port): an address to dial; raises StatusError if there is none."""

_OF_SERVICE = "kubernetes.io/service-name"


class Resolver:
    """Finds the endpoints of services in the caches."""

    def __init__(self, cache: WatchCache) -> None:
        self._services = cache.of(service.RESOURCE)
        self._slices = cache.of(endpoint_slice.RESOURCE)
        self._endpoints = cache.of(endpoints.RESOURCE)

    def __call__(self, namespace: str, name: str, port: int) -> Address:
        item = self._services.get(service.RESOURCE.key(namespace, name))
        if item is None:
            # Singular, as upstream has it here.
            raise not_found("", "service", name)
        found = service.RESOURCE.decode(item.body)
        if found.spec.type == "ExternalName":
            return found.spec.externalName, port
        wanted = _port(found, port)
        choices = [*self._from_slices(namespace, name, wanted)]
        choices = choices or [*self._from_endpoints(namespace, name, wanted)]
        if not choices:
            raise _unavailable(f'no endpoints available for service "{name}"')
        return random.choice(choices)

    def _from_slices(self, namespace: str, name: str, port: ServicePort) -> Iterator[Address]:
        labels = labels_from_map({_OF_SERVICE: name})
        chosen = Selection(endpoint_slice.RESOURCE, namespace, labels, parse_fields(""))
        for item in self._slices.select(chosen):
            found = endpoint_slice.RESOURCE.decode(item.body)
            for number in _numbers(found.ports, port.name):
                for each in found.endpoints:
                    if each.conditions.ready is not False and each.addresses:
                        yield each.addresses[0], number

    def _from_endpoints(self, namespace: str, name: str, port: ServicePort) -> Iterator[Address]:
        item = self._endpoints.get(endpoints.RESOURCE.key(namespace, name))
        if item is None:
            return
        for subset in endpoints.RESOURCE.decode(item.body).subsets:
            for number in _numbers(subset.ports, port.name):
                for address in subset.addresses:
                    yield address.ip, number


def _port(found: Service, number: int) -> ServicePort:
    for port in found.spec.ports:
        if port.port == number:
            return port
    name = found.metadata.name
    raise _unavailable(f'no service port {number} found for service "{name}"')


def _numbers(ports: Sequence[Any], name: str) -> list[int]:
    return [port.port for port in ports if (port.name or "") == name and port.port]


def _unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)
