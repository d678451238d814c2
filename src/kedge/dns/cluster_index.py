"""The Services, EndpointSlices and namespaces of a cluster, by the names and addresses that DNS
asks for. A change of one object costs as much as that object holds."""

import ipaddress
from collections.abc import Iterator
from typing import Final, NamedTuple

from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.dns import names
from kedge.dns.message import DnsAnswer

SERVICE_NAME: Final = "kubernetes.io/service-name"
"""The label of an EndpointSlice that names its Service."""

ObjectName = tuple[str, str]
"""Namespace and name."""


class NamedPort(NamedTuple):
    """A port of a Service or of endpoints, with its name and protocol as in DNS."""

    name: bytes
    protocol: bytes
    number: int


class EndpointRecord(NamedTuple):
    """An address behind a Service."""

    name: bytes
    """Its label below the name of the Service."""
    address: bytes
    is_ready: bool


class SliceEntry(NamedTuple):
    """The content of an EndpointSlice."""

    service: ObjectName
    endpoints: tuple[EndpointRecord, ...]
    ports: tuple[NamedPort, ...]


class ServiceSpecEntry(NamedTuple):
    """The part of a Service that DNS publishes."""

    addresses: tuple[bytes, ...] = ()
    """The cluster IPs."""
    ports: tuple[NamedPort, ...] = ()
    is_headless: bool = False
    publishes_not_ready: bool = False
    target: bytes | None = None
    """The name of type ExternalName."""


class PublishedEndpoints(NamedTuple):
    """The names and addresses of a Service that DNS publishes."""

    addresses: dict[bytes, None]
    """Those of endpoints, without repetitions."""
    by_name: dict[bytes, dict[bytes, None]]
    """The same by the label of the endpoint."""
    ports: frozenset[tuple[bytes, bytes]]
    """Names and protocols. The ports of a headless Service are those of its endpoints."""


class ServiceEntry:
    """A Service with its EndpointSlices. Either may arrive first."""

    def __init__(self, namespace: str, name: str) -> None:
        self.path: Final = (name.encode(), namespace.encode())
        self.spec: ServiceSpecEntry | None = None
        """None if the Service does not exist."""
        self.slices: dict[ObjectName, SliceEntry] = {}
        self.answers: dict[tuple[names.Labels, int], DnsAnswer] = {}
        """Answers made since the last change, by labels below the Service and type."""
        self._published: PublishedEndpoints | None = None

    def is_published(self, endpoint: EndpointRecord) -> bool:
        spec = self.spec
        return spec is not None and (endpoint.is_ready or spec.publishes_not_ready)

    @property
    def published(self) -> PublishedEndpoints:
        """The names and addresses, computed when they are first needed after a change."""
        if self._published is None:
            self._published = _published(self)
        return self._published

    def forget(self) -> None:
        """Drop everything that was computed."""
        self.answers.clear()
        self._published = None


def _published(entry: ServiceEntry) -> PublishedEndpoints:
    addresses: dict[bytes, None] = {}
    by_name: dict[bytes, dict[bytes, None]] = {}
    ports: list[NamedPort] = []
    for each in entry.slices.values():
        endpoints = [endpoint for endpoint in each.endpoints if entry.is_published(endpoint)]
        for endpoint in endpoints:
            addresses[endpoint.address] = None
            by_name.setdefault(endpoint.name, {})[endpoint.address] = None
        ports += each.ports if endpoints else ()
    if entry.spec is not None and not entry.spec.is_headless:
        ports = [*entry.spec.ports]
    known = frozenset((port.name, port.protocol) for port in ports)
    return PublishedEndpoints(addresses, by_name, known)


class ClusterIndex:
    """Finds Services by name and by address."""

    def __init__(self) -> None:
        self.changes = 0
        """The number of changes so far."""
        self._namespaces: set[bytes] = set()
        self._services: dict[names.Labels, ServiceEntry] = {}
        self._slices: dict[ObjectName, SliceEntry] = {}
        self._cluster_ips: dict[bytes, ServiceEntry] = {}
        self._endpoints: dict[bytes, dict[ObjectName, EndpointRecord]] = {}
        """By address, then by slice."""

    def has_namespace(self, name: bytes) -> bool:
        return name in self._namespaces

    def service(self, path: names.Labels) -> ServiceEntry | None:
        """Return a Service by the labels of its name and its namespace; None without one."""
        found = self._services.get(path)
        return found if found is not None and found.spec is not None else None

    def service_at(self, address: bytes) -> ServiceEntry | None:
        """Return the Service with this cluster IP."""
        return self._cluster_ips.get(address)

    def endpoints_at(self, address: bytes) -> Iterator[tuple[ServiceEntry, EndpointRecord]]:
        """Yield the published endpoints of headless Services with this address."""
        for key, endpoint in self._endpoints.get(address, {}).items():
            entry = self._entry(self._slices[key].service)
            if entry.spec is not None and entry.spec.is_headless and entry.is_published(endpoint):
                yield entry, endpoint

    def put_namespace(self, name: str) -> None:
        self._namespaces.add(name.encode())
        self.changes += 1

    def remove_namespace(self, name: str) -> None:
        self._namespaces.discard(name.encode())
        self.changes += 1

    def put_service(self, service: Service) -> None:
        meta = service.metadata
        self.remove_service(meta.namespace, meta.name)
        entry = self._entry((meta.namespace, meta.name))
        entry.spec = service_entry(service)
        entry.forget()
        for address in entry.spec.addresses:
            self._cluster_ips[address] = entry

    def remove_service(self, namespace: str, name: str) -> None:
        entry = self._entry((namespace, name))
        for address in entry.spec.addresses if entry.spec else ():
            # A cluster IP may have gone to another Service that was seen first.
            if self._cluster_ips.get(address) is entry:
                del self._cluster_ips[address]
        entry.spec = None
        self._changed(entry)

    def put_slice(self, found: EndpointSlice) -> None:
        key = found.metadata.namespace, found.metadata.name
        self._drop_slice(key)
        service = found.metadata.labels.get(SERVICE_NAME, "")
        if not service or found.addressType not in ("IPv4", "IPv6"):
            return
        made = slice_entry(found, service)
        self._slices[key] = made
        for endpoint in made.endpoints:
            self._endpoints.setdefault(endpoint.address, {})[key] = endpoint
        entry = self._entry(made.service)
        entry.slices[key] = made
        self._changed(entry)

    def remove_slice(self, namespace: str, name: str) -> None:
        self._drop_slice((namespace, name))

    def _drop_slice(self, key: ObjectName) -> None:
        old = self._slices.pop(key, None)
        if old is None:
            return
        for endpoint in old.endpoints:
            holders = self._endpoints.get(endpoint.address, {})
            holders.pop(key, None)
            if not holders:
                self._endpoints.pop(endpoint.address, None)
        entry = self._entry(old.service)
        del entry.slices[key]
        self._changed(entry)

    def _entry(self, key: ObjectName) -> ServiceEntry:
        path = key[1].encode(), key[0].encode()
        found = self._services.get(path)
        if found is None:
            found = self._services[path] = ServiceEntry(*key)
        return found

    def _changed(self, entry: ServiceEntry) -> None:
        self.changes += 1
        entry.forget()
        if entry.spec is None and not entry.slices:
            self._services.pop(entry.path, None)


def service_entry(service: Service) -> ServiceSpecEntry:
    """Return the part of a Service that DNS publishes."""
    spec = service.spec
    if spec.type == "ExternalName":
        return ServiceSpecEntry(target=names.from_text(spec.externalName))
    texts = spec.clusterIPs or (spec.clusterIP,)
    return ServiceSpecEntry(
        addresses=tuple(packed for each in texts if (packed := _packed(each))),
        ports=tuple(_port(each.name, each.protocol, each.port) for each in spec.ports),
        is_headless=spec.clusterIP == "None",
        publishes_not_ready=spec.publishNotReadyAddresses,
    )


def slice_entry(found: EndpointSlice, service: str) -> SliceEntry:
    """Return the content of an EndpointSlice. An endpoint without conditions is ready."""
    endpoints = tuple(
        EndpointRecord(
            (each.hostname or "").encode() or names.dashed(text),
            packed,
            each.conditions.ready is not False,
        )
        for each in found.endpoints
        for text in each.addresses
        if (packed := _packed(text))
    )
    ports = tuple(
        _port(each.name or "", each.protocol or "TCP", each.port or 0) for each in found.ports
    )
    return SliceEntry((found.metadata.namespace, service), endpoints, ports)


def _port(name: str, protocol: str, number: int) -> NamedPort:
    return NamedPort(name.lower().encode(), (protocol or "TCP").lower().encode(), number)


def _packed(text: str) -> bytes:
    try:
        return ipaddress.ip_address(text).packed
    except ValueError:
        return b""
