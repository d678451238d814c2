"""The objects that every cluster has from the start: namespaces, the API's Service, priorities."""

import logging
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from typing import Any, Final

import msgspec

from kedge.api.builtin.service_networks import (
    DEFAULT_SERVICE_CIDR,
    DNS_SERVICE_ADDRESS,
    READY,
    READY_MESSAGE,
)
from kedge.apiserver.api import Api
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.own_writes import unless_refused
from kedge.apiserver.request import Request
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.machinery.errors import StatusError
from kedge.machinery.interfaces import is_reachable
from kedge.storage.store import StoreError
from kedge.web.message import HttpRequest

log = logging.getLogger(__name__)

USER_AGENT: Final = "kedge-bootstrap"
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
KEEP_SECONDS: Final = 10.0
"""How often the server looks for system objects that are missing."""
PRIORITIES = {
    "system-cluster-critical": (2_000_000_000, "For what must run for the cluster to be usable."),
    "system-node-critical": (2_000_001_000, "For what must run for a node to be usable."),
}


async def keep(api: Api) -> None:
    """Create deleted system namespaces and the API's Service again; for ever.

    Without the namespace of leases, nodes could not report that they are ready.
    """
    while True:
        await api.clock.sleep(KEEP_SECONDS)
        try:
            for document in lasting_objects(api.allocator.network):
                await unless_refused(ensure_object(api, document))
        except (OSError, StoreError) as error:
            log.error("system objects not written, retrying error=%s", error)


async def ensure(api: Api, host: str, port: int, *, dns: bool = False) -> None:
    """Create the missing objects; existing ones stay as they are. `host` is published as the
    endpoint of the Service `kubernetes`, unless it is empty. `dns` says whether nodes answer DNS
    queries."""
    for document in (*lasting_objects(api.allocator.network), *priorities()):
        await unless_refused(ensure_object(api, document))
    if dns:
        await unless_refused(_ensure_dns_service(api))
    if host and is_reachable(host):
        await unless_refused(publish(api, [host], port))


def priorities() -> Iterator[dict[str, Any]]:
    """Yield the priority classes of the system."""
    for name, (value, description) in PRIORITIES.items():
        rest = {"value": value, "description": description}
        yield _object("scheduling.k8s.io/v1", "PriorityClass", name) | rest


def lasting_objects(network: IPv4Network) -> Iterator[dict[str, Any]]:
    """Yield the objects that come back when they are deleted; the network has the cluster IPs."""
    for name in NAMESPACES:
        yield _object("v1", "Namespace", name)
    yield _object("v1", "Service", "kubernetes", "default", _API_LABELS) | {
        "spec": {
            "type": "ClusterIP",
            "clusterIP": str(network[1]),
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        }
    }


async def _ensure_dns_service(api: Api) -> None:
    """Make the Service of the cluster's DNS. Another Service of an older cluster may have its usual
    address; then it gets a free one."""
    document = _object("v1", "Service", "kube-dns", "kube-system", _DNS_LABELS)
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
    ]
    spec: dict[str, Any] = {"type": "ClusterIP", "ports": ports}
    try:
        usual = {"spec": spec | {"clusterIP": DNS_SERVICE_ADDRESS}}
        await ensure_object(api, document | usual)
    except StatusError as error:
        log.warning("the DNS service gets another address: %s", error)
        await ensure_object(api, document | {"spec": spec})


_DNS_LABELS = {
    "k8s-app": "kube-dns",
    "kubernetes.io/cluster-service": "true",
    "kubernetes.io/name": "CoreDNS",
}
_API_LABELS = {"component": "apiserver", "provider": "kubernetes"}


def _object(
    version: str, kind: str, name: str, namespace: str = "", labels: dict[str, str] | None = None
) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name}
    if namespace:
        meta["namespace"] = namespace
    if labels:
        meta["labels"] = labels
    return {"apiVersion": version, "kind": kind, "metadata": meta}


async def ensure_range(api: Api) -> None:
    """Publish the range of service addresses.

    It runs apart from the rest because nothing waits for it. It is the first to need the table of
    published types, which takes longer to read than all other objects take to create.
    """
    document = _object("networking.k8s.io/v1", "ServiceCIDR", DEFAULT_SERVICE_CIDR)
    request = request_for(api, document, "update")
    item = api.find(request)
    if item is not None and item.document().get("status"):
        return
    await ensure_object(api, document | {"spec": {"cidrs": [str(api.allocator.network)]}})
    ready = {
        "type": READY,
        "status": "True",
        "reason": "",
        "message": READY_MESSAGE,
        "lastTransitionTime": api.timestamp(),
    }

    def opened(live: dict[str, Any]) -> DesiredDocument:
        return DesiredDocument(
            live if live.get("status") else live | {"status": {"conditions": [ready]}}
        )

    await write.modify(api, request, opened, write.STATUS, "UpdateOptions")


async def publish(api: Api, hosts: Sequence[str], port: int) -> None:
    """Write the endpoints of the Service `kubernetes` in both forms: addresses of one family at
    which this server listens."""
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    labels = {"kubernetes.io/service-name": "kubernetes"}
    slice_ = _object("discovery.k8s.io/v1", "EndpointSlice", "kubernetes", "default", labels)
    await _republish(
        api,
        slice_,
        {
            "addressType": "IPv6" if ":" in hosts[0] else "IPv4",
            "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in hosts],
            "ports": ports,
        },
    )
    told = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    older = _object("v1", "Endpoints", "kubernetes", "default", told)
    addresses = [{"ip": each} for each in hosts]
    await _republish(api, older, {"subsets": [{"addresses": addresses, "ports": ports}]})


async def _republish(api: Api, document: dict[str, Any], content: dict[str, Any]) -> None:
    request = request_for(api, document, "update")
    if api.find(request) is None:
        await ensure_object(api, document | content)
        return
    await write.modify(
        api, request, lambda live: DesiredDocument(live | content), write.MAIN, "UpdateOptions"
    )


async def ensure_object(api: Api, document: dict[str, Any]) -> None:
    """Make the object unless there is one of its name."""
    request = request_for(api, document, "create")
    if api.find(request) is None:
        await write.create_object(
            api, request, DesiredDocument(msgspec.json.decode(msgspec.json.encode(document)))
        )


def request_for(api: Api, document: dict[str, Any], verb: str) -> Request:
    """Return the request with which the server itself writes the object."""
    resource = api.catalog.of_kind(document["apiVersion"], document["kind"])
    assert resource is not None
    meta = document["metadata"]
    http = HttpRequest("POST", "/", headers={"user-agent": USER_AGENT})
    return Request(http, ADMIN, resource, verb, meta.get("namespace", ""), meta["name"])
