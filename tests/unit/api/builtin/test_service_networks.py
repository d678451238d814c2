"""Reading ServiceCIDRs and IPAddresses."""

import ipaddress
from typing import Any

import pytest

from kedge.api.builtin.service_networks import (
    LOOPBACK_SERVICES,
    ServiceName,
    is_allocatable,
    is_loopback_pod,
    is_ready,
    labels,
    on_loopback,
    parent_reference,
    parent_service,
)


@pytest.mark.parametrize(
    ("network", "address", "expected"),
    [
        ("10.96.0.0/16", "10.96.0.1", True),
        ("10.96.0.0/16", "10.96.0.0", False),
        ("10.96.0.0/16", "10.96.255.255", False),
        ("10.96.0.0/16", "10.97.0.1", False),
        ("10.96.0.0/16", "fd00::1", False),
        ("10.96.0.0/16", "nonsense", False),
        ("fd00::/120", "fd00::ff", True),
        ("fd00::/120", "fd00::", False),
    ],
)
def test_addresses_that_services_can_have(network: str, address: str, expected: bool) -> None:
    assert is_allocatable(ipaddress.ip_network(network), address) is expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], True),
        ([{"type": "Other", "status": "False"}], True),
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
    ],
)
def test_readiness(conditions: list[Any], expected: bool) -> None:
    assert is_ready({"status": {"conditions": conditions}}) is expected


def test_the_parent_of_an_address() -> None:
    name = ServiceName("default", "web")
    assert parent_service({"spec": {"parentRef": parent_reference(name)}}) == name
    other = parent_reference(name) | {"group": "example.com"}
    assert parent_service({"spec": {"parentRef": other}}) is None
    assert parent_service({}) is None


def test_labels_name_the_family() -> None:
    assert labels("fd00::1")["ipaddress.kubernetes.io/ip-family"] == "IPv6"


def test_cluster_ips_have_a_place_on_loopback() -> None:
    network = LOOPBACK_SERVICES[1]
    assert on_loopback("10.96.0.10", network) == "127.97.0.10"
    assert on_loopback("10.96.255.255", network) == "127.97.255.255"
    for other in ("", "None", "10.95.255.255", "10.97.0.0", "fd00::1"):
        assert on_loopback(other, network) == ""


def test_only_one_network_of_loopback_has_pods() -> None:
    assert is_loopback_pod("127.244.1.2")
    for other in ("127.0.0.1", "127.96.0.1", "10.244.1.2", "::1", ""):
        assert not is_loopback_pod(other)
