"""Which address a load balancer gets."""

from ipaddress import IPv4Network
from typing import Any

import pytest

from kedge.api.core_v1.service_types import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServiceSpec,
    ServiceStatus,
)
from kedge.api.model import ObjectMeta
from kedge.controllers.services.load_balancer_pool import (
    PoolError,
    address_of,
    choose_address,
    is_balanced,
)

POOL = IPv4Network("10.97.0.0/29")


def service(name: str, ip: str = "", *, created: str = "1", **spec: Any) -> Service:
    ingress = [LoadBalancerIngress(ip=ip, ipMode="VIP")] if ip else []
    return Service(
        metadata=ObjectMeta(name=name, namespace="default", creationTimestamp=created),
        spec=ServiceSpec(**{"type": "LoadBalancer", **spec}),
        status=ServiceStatus(loadBalancer=LoadBalancerStatus(ingress=ingress)),
    )


def chosen(new: Service, *others: Service, pool: IPv4Network = POOL) -> str:
    def holders(address: str) -> list[Service]:
        return [each for each in (new, *others) if address_of(each) == address]

    return choose_address(pool, new, holders)


def test_only_load_balancers_without_a_foreign_class_are_balanced() -> None:
    assert is_balanced(service("a"))
    assert is_balanced(service("a", loadBalancerClass="kedge.dev/load-balancer"))
    assert not is_balanced(service("a", loadBalancerClass="example.com/other"))
    assert not is_balanced(service("a", type="NodePort"))


def test_the_lowest_free_address_is_given() -> None:
    assert chosen(service("a")) == "10.97.0.1"
    assert chosen(service("c"), service("a", "10.97.0.1"), service("b", "10.97.0.3")) == "10.97.0.2"


def test_a_service_keeps_its_address() -> None:
    assert chosen(service("a", "10.97.0.4")) == "10.97.0.4"
    assert chosen(service("a", "192.0.2.1")) == "10.97.0.1", "not of the pool"


def test_the_older_of_two_keeps_the_address_of_both() -> None:
    old, new = service("z", "10.97.0.1", created="1"), service("a", "10.97.0.1", created="2")
    assert chosen(old, new) == "10.97.0.1"
    assert chosen(new, old) == "10.97.0.2"


def test_an_address_can_be_asked_for() -> None:
    assert chosen(service("a", loadBalancerIP="10.97.0.5")) == "10.97.0.5"
    moved = service("a", "10.97.0.1", loadBalancerIP="10.97.0.5")
    assert chosen(moved) == "10.97.0.5"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("192.0.2.1", "is not in 10.97.0.0/29"),
        ("10.97.0.0", "is not in 10.97.0.0/29"),
        ("nonsense", "is not in 10.97.0.0/29"),
        ("10.97.0.2", "belongs to default/b"),
    ],
)
def test_addresses_that_cannot_be_had(asked: str, why: str) -> None:
    with pytest.raises(PoolError, match=why):
        chosen(service("a", loadBalancerIP=asked), service("b", "10.97.0.2"))


def test_a_pool_can_be_empty() -> None:
    holding = [service(f"s{number}", f"10.97.0.{number}") for number in range(1, 7)]
    with pytest.raises(PoolError, match=r"all addresses of 10.97.0.0/29 are in use"):
        chosen(service("a"), *holding)
    assert chosen(service("a"), pool=IPv4Network("192.0.2.7/32")) == "192.0.2.7"
