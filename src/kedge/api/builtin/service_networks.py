"""The networks of Services, and how ServiceCIDR and IPAddress objects describe them."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kedge.api.builtin.content import listed, reach, text
from kedge.machinery.service_range import SERVICE_RANGE as SERVICE_RANGE

POD_NETWORK: Final = ipaddress.IPv4Network("10.244.0.0/16")
"""The network that the pod networks of nodes are part of."""
LOOPBACK_PODS: Final = ipaddress.IPv4Network("127.244.0.0/16")
"""The same for nodes whose pods share the network of their machine."""
LOOPBACK_SERVICES: Final = tuple(
    ipaddress.IPv4Network(f"127.{number}.0.0/16") for number in range(96, 112)
)
"""The networks in which such nodes show cluster IPs to their pods: one for each of a machine."""
SIMULATED_NETWORK: Final = ipaddress.IPv4Network("198.18.0.0/15")
"""The addresses of simulated nodes and pods. RFC 2544 reserves this network for benchmarks: no
machine of the Internet has an address in it, and no network of a cluster overlaps with it."""
NODE_PREFIX: Final = 24
"""The length of the prefix of each node's pod network."""
API_SERVICE_ADDRESS: Final = "10.96.0.1"
"""The cluster IP of the Service `kubernetes`."""
DNS_SERVICE_ADDRESS: Final = "10.96.0.10"
"""The cluster IP of the Service `kube-dns`."""

DEFAULT_SERVICE_CIDR: Final = "kubernetes"
FINALIZER: Final = "networking.k8s.io/service-cidr-finalizer"
READY: Final = "Ready"
READY_MESSAGE: Final = "Kubernetes Service CIDR is ready"
TERMINATING: Final = "Terminating"
TERMINATING_MESSAGE: Final = (
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new"
    " ServiceCIDR"
)

FAMILY_LABEL: Final = "ipaddress.kubernetes.io/ip-family"
MANAGED_BY_LABEL: Final = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR: Final = "ipallocator.k8s.io"
"""The value of the label of IPAddresses that belong to cluster IPs."""

Content = Mapping[str, Any]
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class ServiceName(NamedTuple):
    """The Service that an IPAddress belongs to."""

    namespace: str
    name: str


def on_loopback(address: str, network: ipaddress.IPv4Network) -> str:
    """Return the address at which pods find a cluster IP in one of these networks: that with the
    same last bytes. Empty if there is none."""
    try:
        offset = int(ipaddress.IPv4Address(address)) - int(SERVICE_RANGE.network_address)
    except ValueError:
        return ""
    return str(network[offset]) if 0 <= offset < SERVICE_RANGE.num_addresses else ""


def is_loopback_pod(address: str) -> bool:
    """Return whether a pod that shares the network of its machine can have this address."""
    try:
        return ipaddress.IPv4Address(address) in LOOPBACK_PODS
    except ValueError:
        return False


def family_of(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def is_allocatable(network: IpNetwork, address: str) -> bool:
    """Return whether a Service can have this address of the network: neither the network's own
    address nor, in IPv4, the broadcast address."""
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        return False
    if given.version != network.version or given not in network:
        return False
    is_broadcast = given.version == 4 and given == network.broadcast_address
    return given != network.network_address and not is_broadcast


def networks(service_cidr: Content) -> Iterator[IpNetwork]:
    """Return the networks of a ServiceCIDR."""
    for cidr in listed(service_cidr, "spec.cidrs"):
        yield ipaddress.ip_network(cidr)


def is_ready(service_cidr: Content) -> bool:
    """Return whether addresses may be allocated from a ServiceCIDR.

    One without the condition counts as ready, as upstream: its controller may not run.
    """
    for condition in listed(service_cidr, "status.conditions"):
        if condition.get("type") == READY:
            return bool(condition.get("status") == "True")
    return True


def labels(address: str) -> dict[str, str]:
    """Return the labels of the IPAddress of a cluster IP."""
    return {FAMILY_LABEL: family_of(address), MANAGED_BY_LABEL: ALLOCATOR}


def parent_reference(service: ServiceName) -> dict[str, str]:
    """Return the parentRef of the IPAddress of a Service."""
    return {"resource": "services", "namespace": service.namespace, "name": service.name}


def parent_service(ip_address: Content) -> ServiceName | None:
    """Return the Service that an IPAddress belongs to; None if it belongs to something else."""
    parent = reach(ip_address, "spec.parentRef") or {}
    if parent.get("group") or parent.get("resource") != "services":
        return None
    return ServiceName(text(parent, "namespace"), text(parent, "name"))


def is_cluster_server(address: str) -> bool:
    """Return whether a name server is that of a node which shows cluster IPs on loopback."""
    try:
        found = ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return any(found in network for network in LOOPBACK_SERVICES)
