"""ServiceCIDRs are ready, and stay as long as Services need them."""

from typing import Any

import pytest

from kedge.api.model import Document, ObjectMeta
from kedge.controllers.services.service_cidr import ServiceCidrController, is_needed
from kedge.testing.controllers import ControllerHarness, workshop

CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
SERVICES = "/api/v1/namespaces/default/services"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"
MANAGED = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}


def cidr(name: str, *networks: str) -> Document:
    return Document(metadata=ObjectMeta(name=name), content={"spec": {"cidrs": list(networks)}})


def address(name: str, labels: dict[str, str] = MANAGED) -> Document:
    return Document(metadata=ObjectMeta(name=name, labels=labels))


A = cidr("a", "10.1.0.0/24")


@pytest.mark.parametrize(
    ("others", "addresses", "expected"),
    [
        ([], [], False),
        ([], [address("10.1.0.5")], True),
        ([], [address("10.1.0.5", {})], False),
        ([], [address("10.2.0.5")], False),
        ([cidr("b", "10.1.0.0/16")], [address("10.1.0.5")], False),
        ([cidr("b", "10.1.0.0/24")], [address("10.1.0.5")], False),
        ([cidr("b", "10.1.0.0/28")], [address("10.1.0.5")], False),
        ([cidr("b", "10.1.0.0/28")], [address("10.1.0.200")], True),
        ([cidr("b", "10.1.0.0/28")], [address("10.1.0.15")], True),
    ],
)
def test_which_service_cidrs_are_needed(
    others: list[Document], addresses: list[Document], expected: bool
) -> None:
    assert is_needed(A, [A, *others], addresses) is expected


async def create(shop: ControllerHarness, name: str, network: str) -> None:
    await shop.create(CIDRS, {"metadata": {"name": name}, "spec": {"cidrs": [network]}})


async def ready(shop: ControllerHarness, name: str) -> tuple[Any, ...]:
    found = await shop.server.get(f"{CIDRS}/{name}")
    [condition] = found["status"]["conditions"]
    return condition["type"], condition["status"], condition["reason"], condition["message"]


async def test_a_new_service_cidr_becomes_ready() -> None:
    async with workshop(ServiceCidrController) as shop:
        await create(shop, "more", "10.200.0.0/28")
        expected = ("Ready", "True", "", "Kubernetes Service CIDR is ready")
        assert await ready(shop, "more") == expected
        found = await shop.server.get(f"{CIDRS}/more")
        assert found["metadata"]["finalizers"] == [FINALIZER]
        again = await shop.server.get(f"{CIDRS}/more")
        await shop.settle()
        assert again == found


async def test_an_unused_one_goes_after_ten_seconds() -> None:
    async with workshop(ServiceCidrController) as shop:
        await create(shop, "more", "10.200.0.0/28")
        await shop.remove(f"{CIDRS}/more")
        assert (await shop.server.call("GET", f"{CIDRS}/more")).status == 200
        await shop.pass_time(11)
        assert (await shop.server.call("GET", f"{CIDRS}/more")).status == 404


async def test_one_with_a_service_waits_for_it() -> None:
    async with workshop(ServiceCidrController) as shop:
        await create(shop, "more", "10.200.0.0/28")
        spec = {"clusterIP": "10.200.0.3", "ports": [{"port": 80}]}
        await shop.create(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
        await shop.remove(f"{CIDRS}/more")
        await shop.pass_time(60)
        kind, status, reason, message = await ready(shop, "more")
        assert (kind, status, reason) == ("Ready", "False", "Terminating")
        assert message.startswith("There are still IPAddresses referencing the ServiceCIDR")
        await shop.remove(f"{SERVICES}/s")
        await shop.settle()
        assert (await shop.server.call("GET", f"{CIDRS}/more")).status == 404
