"""Builders of the objects that have names in DNS."""

from typing import Any

import msgspec

from kedge.api.core_v1 import service
from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1 import endpoint_slice
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.dns.cluster_index import SERVICE_NAME
from kedge.dns.server import DnsSockets

_TRIES = 50


def new_service(
    name: str, address: str = "None", namespace: str = "default", **spec: Any
) -> Service:
    """Return a Service with a cluster IP, or a headless one, with the port http."""
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    body = {"clusterIP": address, "clusterIPs": [address], "ports": ports, **spec}
    meta = {"name": name, "namespace": namespace}
    return service.RESOURCE.decode(msgspec.json.encode({"metadata": meta, "spec": body}))


def new_slice(
    of: str,
    *endpoints: str | dict[str, Any],
    name: str = "",
    namespace: str = "default",
    **rest: Any,
) -> EndpointSlice:
    """Return an EndpointSlice of a Service. An endpoint is an address or a document."""
    listed = [{"addresses": [each]} if isinstance(each, str) else each for each in endpoints]
    body = {
        "metadata": {
            "name": name or f"{of}-1",
            "namespace": namespace,
            "labels": {SERVICE_NAME: of},
        },
        "addressType": "IPv4",
        "endpoints": listed,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        **rest,
    }
    return endpoint_slice.RESOURCE.decode(msgspec.json.encode(body))


def loopback_sockets() -> DnsSockets:
    """Return sockets at a port of loopback that is free for UDP and for TCP."""
    for _ in range(_TRIES):
        try:
            return DnsSockets("127.0.0.1", 0)
        except OSError:
            continue
    raise AssertionError("no port is free")
