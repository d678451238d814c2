"""What is wrong between Services, IPAddresses and node ports."""

from ipaddress import ip_network
from typing import Any

import pytest

from kedge.api.builtin.service_networks import ServiceName, labels, parent_reference
from kedge.api.core_v1.service_types import Service, ServicePort, ServiceSpec
from kedge.api.model import Document, ObjectMeta
from kedge.controllers.services.allocation_problems import (
    address_problem,
    port_problems,
    service_problem,
)

RANGES = [ip_network("10.96.0.0/16")]
IP = "10.96.1.1"


def service(name: str = "web", ip: str = IP, created: str = "1", **spec: Any) -> Service:
    return Service(
        metadata=ObjectMeta(name=name, namespace="default", creationTimestamp=created),
        spec=ServiceSpec(clusterIP=ip, clusterIPs=[ip], **spec),
    )


def address(
    parent: dict[str, str] | None = None, marks: dict[str, str] | None = None, ip: str = IP
) -> Document:
    reference = parent if parent is not None else parent_reference(ServiceName("default", "web"))
    return Document(
        metadata=ObjectMeta(name=ip, labels=labels(ip) if marks is None else marks),
        content={"spec": {"parentRef": reference}},
    )


OTHER = parent_reference(ServiceName("default", "other"))
GATEWAY = {"group": "example.com", "resource": "gateways", "name": "g"}


@pytest.mark.parametrize(
    ("ip", "found", "parent", "reason", "rewrites"),
    [
        (IP, address(), service(), None, False),
        ("10.1.1.1", None, None, "ClusterIPOutOfRange", False),
        (IP, None, None, "ClusterIPNotAllocated", True),
        (IP, address(GATEWAY), None, "ClusterIPNotAllocated", True),
        (IP, address(OTHER), None, "ClusterIPNotAllocated", True),
        (IP, address(OTHER), service("other", "10.96.9.9"), "ClusterIPNotAllocated", True),
        (IP, address(OTHER), service("other"), "ClusterIPAlreadyAllocated", False),
        (IP, address(marks={}), service(), "", True),
    ],
)
def test_problems_of_services(
    ip: str, found: Document | None, parent: Service | None, reason: str | None, rewrites: bool
) -> None:
    problem = service_problem(service(ip=ip), ip, address=found, parent=parent, ranges=RANGES)
    assert (problem.reason if problem else None) == reason
    assert (problem is not None and problem.rewrites) is rewrites


def test_the_words_of_a_repair() -> None:
    problem = service_problem(service(), IP, address=None, parent=None, ranges=RANGES)
    assert problem is not None
    assert problem.message == "Cluster IP [IPv4]: 10.96.1.1 is not allocated; repairing"


@pytest.mark.parametrize(
    ("found", "parent", "reason"),
    [
        (address(), service(), None),
        (address(), None, "IPAddressNotAllocated"),
        (address(), service(ip="10.96.9.9"), "IPAddressWrongReference"),
        (address(GATEWAY), None, "IPAddressNotAllocated"),
    ],
)
def test_problems_of_addresses(found: Document, parent: Service | None, reason: str | None) -> None:
    problem = address_problem(found, parent)
    assert (problem.reason if problem else None) == reason


def test_problems_of_ports() -> None:
    def ports(*numbers: int) -> list[ServicePort]:
        return [ServicePort(port=80, nodePort=number) for number in numbers]

    first = service("z", created="1", type="NodePort", ports=ports(30001, 30001))
    second = service("a", created="2", type="NodePort", ports=ports(30001, 80))
    found = [
        (each.metadata.name, p.reason, p.message)
        for each, p in port_problems([second, first], range(30000, 32768))
    ]
    assert found == [
        (
            "a",
            "PortOutOfRange",
            "Port 80 is not within the port range 30000-32767; please recreate service",
        ),
        (
            "a",
            "PortAlreadyAllocated",
            "Port 30001 was assigned to multiple services; please recreate service",
        ),
    ]
