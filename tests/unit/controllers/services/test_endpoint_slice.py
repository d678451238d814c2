"""Services, their EndpointSlices and their Endpoints, on a server."""

from typing import Any

from kedge.controllers.services.endpoint_slice import EndpointSliceController
from kedge.controllers.services.endpoints import EndpointsController
from kedge.testing.controllers import ControllerHarness, workshop

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"
WEB = {
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


async def pod(shop: ControllerHarness, i: int, **labels: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}
    meta = {"name": f"p{i}", "labels": labels or {"app": "web"}}
    made = await shop.create(PODS, {"metadata": meta, "spec": spec})
    address = {"podIP": f"10.1.0.{i}", "podIPs": [{"ip": f"10.1.0.{i}"}]}
    await shop.change(f"{PODS}/p{i}/status", {"status": address})
    await shop.run_pod(made)


async def slices(shop: ControllerHarness, name: str = "web") -> list[dict[str, Any]]:
    found = await shop.below(f"{SLICES}?labelSelector=kubernetes.io/service-name={name}")
    return found


async def reached(shop: ControllerHarness) -> dict[str, bool]:
    return {
        each["targetRef"]["name"]: each["conditions"]["ready"]
        for slice_ in await slices(shop)
        for each in slice_["endpoints"]
    }


async def test_endpoints_follow_the_pods() -> None:
    async with workshop(EndpointSliceController) as shop:
        await shop.create("/api/v1/nodes", {"metadata": {"name": "n"}})
        await shop.create(SERVICES, WEB)
        [empty] = await slices(shop)
        assert (empty["endpoints"], empty["addressType"]) == ([], "IPv4")
        await pod(shop, 1)
        await pod(shop, 2)
        await pod(shop, 3, app="other")
        assert await reached(shop) == {"p1": True, "p2": True}
        [slice_] = await slices(shop)
        assert slice_["metadata"]["name"] == empty["metadata"]["name"]
        assert slice_["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
        await shop.change(f"{PODS}/p1", {"metadata": {"labels": {"app": "no"}}})
        assert await reached(shop) == {"p2": True}
        await shop.remove(f"{PODS}/p2")
        assert await reached(shop) == {"p2": False}
        await shop.remove(f"{PODS}/p2", {"gracePeriodSeconds": 0})
        assert await reached(shop) == {}
        assert len(await slices(shop)) == 1


async def test_a_slice_that_somebody_spoils_is_mended() -> None:
    async with workshop(EndpointSliceController) as shop:
        await shop.create("/api/v1/nodes", {"metadata": {"name": "n"}})
        await shop.create(SERVICES, WEB)
        await pod(shop, 1)
        [slice_] = await slices(shop)
        await shop.change(f"{SLICES}/{slice_['metadata']['name']}", {"endpoints": []})
        assert await reached(shop) == {"p1": True}
        await shop.remove(f"{SLICES}/{slice_['metadata']['name']}")
        assert await reached(shop) == {"p1": True}


async def test_services_without_selector_are_left_to_others() -> None:
    async with workshop(EndpointSliceController, EndpointsController) as shop:
        spec = {"ports": [{"port": 80}]}
        await shop.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec})
        outside = {"type": "ExternalName", "externalName": "example.com", "selector": {"a": "b"}}
        await shop.create(SERVICES, {"metadata": {"name": "far"}, "spec": outside})
        assert await slices(shop) == await slices(shop, "far") == []
        assert [each["metadata"]["name"] for each in await shop.below(ENDPOINTS)] == []


async def test_the_older_form_says_the_same() -> None:
    async with workshop(EndpointsController) as shop:
        await shop.create(SERVICES, WEB)
        await pod(shop, 1)
        await pod(shop, 2)
        found = await shop.server.get(f"{ENDPOINTS}/web")
        [subset] = found["subsets"]
        assert [each["ip"] for each in subset["addresses"]] == ["10.1.0.1", "10.1.0.2"]
        assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
        labels = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
        assert found["metadata"]["labels"] == labels
        version = found["metadata"]["resourceVersion"]
        await shop.change(f"{PODS}/p1", {"metadata": {"annotations": {"x": "y"}}})
        found = await shop.server.get(f"{ENDPOINTS}/web")
        assert found["metadata"]["resourceVersion"] == version
        await shop.remove(f"{SERVICES}/web")
        assert (await shop.server.call("GET", f"{ENDPOINTS}/web")).status == 404


async def test_endpoints_without_a_service_are_left_alone() -> None:
    async with workshop(EndpointsController) as shop:
        await shop.create(ENDPOINTS, {"metadata": {"name": "mine"}})
        assert (await shop.server.call("GET", f"{ENDPOINTS}/mine")).status == 200
