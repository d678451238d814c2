"""Pods whose devices have a NoExecute taint."""

from typing import Any

from kedge.controllers.devices.device_taint_eviction import DeviceTaintEvictionController
from kedge.testing.controllers import ControllerHarness, workshop

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
TAINT = {"key": "broken", "effect": "NoExecute"}


async def used(
    place: ControllerHarness, *tolerations: dict[str, Any], is_bound: bool = True
) -> dict[str, Any]:
    """A pod with a device."""
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example", "pool": pool, "allNodes": True, "devices": [{"name": "gpu"}]}
    await place.create(f"{GROUP}/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    entries = [{"name": "device", "resourceClaimName": "c"}]
    body = {"containers": [{"name": "main", "image": "host"}], "resourceClaims": entries}
    pod = await place.create(PODS, {"metadata": {"name": "p"}, "spec": body})
    if is_bound:
        await place.run_pod(pod, node="n")
    request = {"name": "r", "exactly": {"deviceClassName": "x"}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    await place.create(CLAIMS, claim)
    result = {"request": "r", "driver": "d.example", "pool": "p", "device": "gpu"}
    results = [{**result, "tolerations": list(tolerations)}]
    users = [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    await place.change(f"{CLAIMS}/c/status", {"status": status})
    return pod


async def taint(place: ControllerHarness, *taints: dict[str, str]) -> None:
    devices = [{"name": "gpu", "taints": list(taints)}]
    await place.change(f"{GROUP}/resourceslices/s", {"spec": {"devices": devices}})


async def is_going(place: ControllerHarness) -> bool:
    await place.settle()
    return any("deletionTimestamp" in each["metadata"] for each in await place.pods())


async def test_a_pod_with_a_tainted_device_goes() -> None:
    async with workshop(DeviceTaintEvictionController) as place:
        await used(place)
        assert not await is_going(place)
        await taint(place, TAINT)
        assert await is_going(place)
        [pod] = await place.pods()
        [condition] = [
            each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"
        ]
        assert condition["reason"] == "DeletionByDeviceTaintManager"
        assert condition["message"] == "Device Taint manager: deleting due to NoExecute taint"
        assert ("DeviceTaintManagerEviction", "Marking for deletion") in await place.events()


async def test_a_pod_that_gets_its_node_after_the_taint_goes() -> None:
    async with workshop(DeviceTaintEvictionController) as place:
        pod = await used(place, is_bound=False)
        await taint(place, TAINT)
        assert not await is_going(place)
        await place.run_pod(pod, node="n")
        assert await is_going(place)


async def test_other_effects_do_not_evict() -> None:
    async with workshop(DeviceTaintEvictionController) as place:
        await used(place)
        await taint(place, {"key": "broken", "effect": "NoSchedule"})
        assert not await is_going(place)


async def test_a_pod_stays_as_long_as_its_claim_tolerates_the_taint() -> None:
    async with workshop(DeviceTaintEvictionController) as place:
        patience = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        await used(place, patience)
        await taint(place, TAINT)
        await place.pass_time(50)
        assert not await is_going(place)
        await place.pass_time(15)
        assert await is_going(place)


async def test_a_taint_that_is_removed_in_time_spares_the_pod() -> None:
    async with workshop(DeviceTaintEvictionController) as place:
        patience = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        await used(place, patience)
        await taint(place, TAINT)
        await taint(place)
        await place.pass_time(100)
        assert not await is_going(place)
        assert ("DeviceTaintManagerEviction", "Cancelling deletion") in await place.events()


async def test_a_claim_that_tolerates_the_taint_forever_keeps_its_pod() -> None:
    async with workshop(DeviceTaintEvictionController) as place:
        await used(place, {"operator": "Exists", "effect": "NoExecute"})
        await taint(place, TAINT)
        await place.pass_time(1000)
        assert not await is_going(place)
