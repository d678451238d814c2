"""Services of type LoadBalancer get an address."""

from functools import partial
from ipaddress import IPv4Network
from typing import Any

from kedge.controllers.services.load_balancer import LoadBalancerController
from kedge.testing.controllers import ControllerHarness, workshop

SERVICES = "/api/v1/namespaces/default/services"
Controller = partial(LoadBalancerController, pool=IPv4Network("10.97.0.0/30"))


def service(name: str, **spec: Any) -> dict[str, Any]:
    body = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
    return {"metadata": {"name": name}, "spec": body}


async def ingress(shop: ControllerHarness, name: str) -> list[dict[str, Any]]:
    found = await shop.server.get(f"{SERVICES}/{name}")
    places: list[dict[str, Any]] = found["status"]["loadBalancer"].get("ingress", [])
    return places


async def reasons(shop: ControllerHarness) -> set[str]:
    return {reason for reason, _ in await shop.events()}


async def test_the_status_names_the_address() -> None:
    async with workshop(Controller) as shop:
        await shop.create(SERVICES, service("a"))
        assert await ingress(shop, "a") == [{"ip": "10.97.0.1", "ipMode": "VIP"}]
        assert await reasons(shop) == {"EnsuringLoadBalancer", "EnsuredLoadBalancer"}


async def test_services_of_another_class_or_type_are_left_alone() -> None:
    async with workshop(Controller) as shop:
        await shop.create(SERVICES, service("a", loadBalancerClass="example.com/other"))
        await shop.create(SERVICES, service("b", type="NodePort"))
        assert await ingress(shop, "a") == await ingress(shop, "b") == []


async def test_a_full_pool_is_reported_and_served_when_an_address_is_free() -> None:
    async with workshop(Controller) as shop:
        for name in "abc":
            await shop.create(SERVICES, service(name))
        assert await ingress(shop, "c") == []
        found = dict(await shop.events())
        assert found["SyncLoadBalancerFailed"] == (
            "Error syncing load balancer: failed to ensure load balancer:"
            " all addresses of 10.97.0.0/30 are in use"
        )
        await shop.remove(f"{SERVICES}/a")
        assert await ingress(shop, "c") == [{"ip": "10.97.0.1", "ipMode": "VIP"}]
        assert "DeletedLoadBalancer" in await reasons(shop)


async def test_another_type_gives_the_address_back() -> None:
    async with workshop(Controller) as shop:
        await shop.create(SERVICES, service("a"))
        changed = {"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": None}}
        await shop.change(f"{SERVICES}/a", changed)
        assert await ingress(shop, "a") == []
        await shop.create(SERVICES, service("b"))
        assert await ingress(shop, "b") == [{"ip": "10.97.0.1", "ipMode": "VIP"}]


async def test_an_address_that_is_taken_is_waited_for() -> None:
    async with workshop(Controller) as shop:
        await shop.create(SERVICES, service("a"))
        await shop.create(SERVICES, service("b", loadBalancerIP="10.97.0.1"))
        assert await ingress(shop, "b") == []
        await shop.remove(f"{SERVICES}/a")
        assert await ingress(shop, "b") == [{"ip": "10.97.0.1", "ipMode": "VIP"}]
