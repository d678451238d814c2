"""Endpoints that people write, seen as slices."""

from typing import Any

from kedge.controllers.services.endpoint_slice_mirroring import EndpointSliceMirroringController
from kedge.testing.controllers import ControllerHarness, workshop

SERVICES = "/api/v1/namespaces/default/services"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def endpoints(*addresses: str, **labels: str) -> dict[str, Any]:
    subset = {"addresses": [{"ip": each} for each in addresses], "ports": [{"port": 80}]}
    return {"metadata": {"name": "db", "labels": labels}, "subsets": [subset]}


async def service(shop: ControllerHarness, **spec: Any) -> None:
    body = {"metadata": {"name": "db"}, "spec": {"ports": [{"port": 80}], **spec}}
    await shop.create(SERVICES, body)


async def reached(shop: ControllerHarness) -> list[tuple[str, list[str]]]:
    found = await shop.below(f"{SLICES}?labelSelector=kubernetes.io/service-name=db")
    return sorted(
        (each["addressType"], sorted(a for e in each["endpoints"] for a in e["addresses"]))
        for each in found
    )


async def test_a_mirror_follows_what_is_written_and_goes_with_it() -> None:
    async with workshop(EndpointSliceMirroringController) as shop:
        await service(shop)
        await shop.create(ENDPOINTS, endpoints("10.1.2.3"))
        assert await reached(shop) == [("IPv4", ["10.1.2.3"])]
        [slice_] = await shop.below(f"{SLICES}?labelSelector=kubernetes.io/service-name=db")
        labels = slice_["metadata"]["labels"]
        manager = "endpointslicemirroring-controller.k8s.io"
        assert labels["endpointslice.kubernetes.io/managed-by"] == manager
        assert slice_["metadata"]["ownerReferences"][0]["kind"] == "Endpoints"
        await shop.change(f"{ENDPOINTS}/db", endpoints("10.2.3.4", "fd00::1"))
        assert await reached(shop) == [("IPv4", ["10.2.3.4"]), ("IPv6", ["fd00::1"])]
        await shop.remove(f"{ENDPOINTS}/db")
        assert await reached(shop) == []


async def test_only_services_without_selector_are_mirrored() -> None:
    async with workshop(EndpointSliceMirroringController) as shop:
        await shop.create(ENDPOINTS, endpoints("10.1.2.3"))
        assert await reached(shop) == []
        await service(shop)
        assert await reached(shop) == [("IPv4", ["10.1.2.3"])]
        await shop.change(f"{SERVICES}/db", {"spec": {"selector": {"app": "db"}}})
        assert await reached(shop) == []


async def test_who_does_not_want_a_mirror_gets_none() -> None:
    async with workshop(EndpointSliceMirroringController) as shop:
        await service(shop)
        skipped = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        await shop.create(ENDPOINTS, endpoints("10.1.2.3", **skipped))
        assert await reached(shop) == []
