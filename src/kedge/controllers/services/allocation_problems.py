"""Contradictions between Services, IPAddresses and ServiceCIDRs: pure decisions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kedge.api.builtin.service_networks import (
    ALLOCATOR,
    FAMILY_LABEL,
    MANAGED_BY_LABEL,
    IpNetwork,
    ServiceName,
    family_of,
    is_allocatable,
    parent_service,
)
from kedge.api.core_v1.service_types import Service
from kedge.api.model import Document
from kedge.controllers.services.load_balancer_pool import rank

LEAK_SECONDS: Final = 60.0
"""For so long an IPAddress may be without its Service, which is about to be stored."""


class AllocationProblem(NamedTuple):
    """One event about an object, and whether the IPAddress must be written anew."""

    reason: str
    message: str
    rewrites: bool = False


def is_managed(address: Document) -> bool:
    """Return whether the allocator of Services keeps this IPAddress."""
    return address.metadata.labels.get(MANAGED_BY_LABEL) == ALLOCATOR


def name_of(service: Service) -> ServiceName:
    return ServiceName(service.metadata.namespace, service.metadata.name)


def cluster_ips(service: Service) -> list[str]:
    """Return the addresses that a Service has."""
    return [address for address in service.spec.clusterIPs if address != "None"]


def service_problem(
    service: Service,
    ip: str,
    *,
    address: Document | None,
    parent: Service | None,
    ranges: Sequence[IpNetwork],
) -> AllocationProblem | None:
    """Return what is wrong with one address of a Service; `address` is its IPAddress and `parent`
    the Service that the IPAddress names, where they exist."""
    family = family_of(ip)
    shown = f"{service.metadata.namespace}/{service.metadata.name}"
    wrong = f"the ClusterIP [{family}]: {ip} for Service {shown} has a wrong reference; repairing"
    if not any(is_allocatable(network, ip) for network in ranges):
        message = f"Cluster IP [{family}]: {ip} is not within any configured Service CIDR"
        return AllocationProblem("ClusterIPOutOfRange", f"{message}; please recreate service")
    if address is None:
        message = f"Cluster IP [{family}]: {ip} is not allocated; repairing"
        return AllocationProblem("ClusterIPNotAllocated", message, rewrites=True)
    named = parent_service(address.content)
    if named != name_of(service):
        if named is None or parent is None or ip not in cluster_ips(parent):
            return AllocationProblem("ClusterIPNotAllocated", wrong, rewrites=True)
        message = f"Cluster IP [{family}]:{ip} was assigned to multiple services"
        return AllocationProblem("ClusterIPAlreadyAllocated", f"{message}; please recreate service")
    if not is_managed(address) or address.metadata.labels.get(FAMILY_LABEL) != family:
        return AllocationProblem("", "", rewrites=True)
    return None


def address_problem(address: Document, service: Service | None) -> AllocationProblem | None:
    """Return what is wrong with an IPAddress of the allocator, which must then be deleted;
    `service` is the Service that it names, if that exists."""
    name = address.metadata.name
    named = parent_service(address.content)
    if named is None:
        message = f"IPAddress {name} appears to have been modified, not referencing a Service"
        return AllocationProblem("IPAddressNotAllocated", f"{message}: cleaning up")
    about = f"IPAddress: {name} for Service {named.namespace}/{named.name}"
    if service is None:
        message = f"{about} appears to have leaked: cleaning up"
        return AllocationProblem("IPAddressNotAllocated", message)
    if name not in cluster_ips(service):
        message = f"{about} has a wrong reference; cleaning up"
        return AllocationProblem("IPAddressWrongReference", message)
    return None


def port_problems(
    services: Iterable[Service], ports: range
) -> Iterator[tuple[Service, AllocationProblem]]:
    """Return the Services whose node ports others have too, or that are out of the range. The
    oldest Service counts as the owner of a port."""
    owners: dict[int, Service] = {}
    for service in sorted(services, key=rank):
        for number in sorted(_node_ports(service)):
            if number not in ports:
                where = f"{ports.start}-{ports.stop - 1}"
                message = f"Port {number} is not within the port range {where}"
                problem = AllocationProblem("PortOutOfRange", f"{message}; please recreate service")
                yield service, problem
            elif owners.setdefault(number, service) is not service:
                message = f"Port {number} was assigned to multiple services"
                yield (
                    service,
                    AllocationProblem(
                        "PortAlreadyAllocated", f"{message}; please recreate service"
                    ),
                )


def _node_ports(service: Service) -> set[int]:
    numbers = {port.nodePort for port in service.spec.ports}
    return {*numbers, service.spec.healthCheckNodePort} - {0}
