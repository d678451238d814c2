"""IPAddresses are repaired in both directions."""

from functools import partial
from typing import Any

from kedge.controllers.services.allocation_repair import AllocationRepairController
from kedge.testing.controllers import ControllerHarness, workshop

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
MANAGED = {
    "ipaddress.kubernetes.io/ip-family": "IPv4",
    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
}
Controller = partial(AllocationRepairController, ports=range(30000, 32768))


def service(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}


def address(ip: str, name: str, labels: dict[str, str]) -> dict[str, Any]:
    parent = {"resource": "services", "namespace": "default", "name": name}
    return {"metadata": {"name": ip, "labels": labels}, "spec": {"parentRef": parent}}


async def names(shop: ControllerHarness) -> set[str]:
    return {each["metadata"]["name"] for each in await shop.below(ADDRESSES)}


async def test_a_missing_ip_address_is_created_again() -> None:
    async with workshop(Controller) as shop:
        made = await shop.create(SERVICES, service("a"))
        ip = made["spec"]["clusterIP"]
        await shop.remove(f"{ADDRESSES}/{ip}")
        assert ip in await names(shop)
        expected = f"Cluster IP [IPv4]: {ip} is not allocated; repairing"
        assert ("ClusterIPNotAllocated", expected) in await shop.events()


async def test_a_leaked_ip_address_goes_after_a_minute() -> None:
    async with workshop(Controller) as shop:
        await shop.create(ADDRESSES, address("10.96.7.7", "lost", MANAGED))
        await shop.pass_time(30)
        assert "10.96.7.7" in await names(shop)
        await shop.pass_time(40)
        assert "10.96.7.7" not in await names(shop)
        [(reason, message)] = await shop.events()
        assert reason == "IPAddressNotAllocated"
        assert message.endswith("default/lost appears to have leaked: cleaning up")


async def test_ip_addresses_of_others_are_left_alone() -> None:
    async with workshop(Controller) as shop:
        await shop.create(ADDRESSES, address("10.96.7.7", "lost", {}))
        await shop.pass_time(600)
        assert "10.96.7.7" in await names(shop)
        assert await shop.events() == []


async def test_nothing_happens_to_what_is_right() -> None:
    async with workshop(Controller) as shop:
        made = await shop.create(SERVICES, service("a"))
        await shop.pass_time(600)
        assert made["spec"]["clusterIP"] in await names(shop)
        await shop.remove(f"{SERVICES}/a")
        await shop.pass_time(600)
        assert await names(shop) == {"10.96.0.1"}
        assert await shop.events() == []
