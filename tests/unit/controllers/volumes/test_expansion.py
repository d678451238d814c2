"""Claims that ask for more than their volume has."""

from typing import Any

from kedge.controllers.volumes.expansion import VolumeExpander
from kedge.controllers.volumes.persistent_volume_binder import PersistentVolumeBinder
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
MORE = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}


async def bound(place: ControllerHarness, **source: Any) -> Json:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
    }
    volume = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        **source,
    }
    await place.create("/api/v1/persistentvolumes", {"metadata": {"name": "pv"}, "spec": volume})
    return await place.create(CLAIMS, {"metadata": {"name": "c"}, "spec": spec})


async def test_the_volume_grows_and_the_rest_is_left_to_the_node() -> None:
    async with workshop(PersistentVolumeBinder, VolumeExpander) as place:
        await bound(place, csi={"driver": "local.kedge.dev", "volumeHandle": "pv"})
        await place.change(f"{CLAIMS}/c", MORE)
        volume = await place.server.get("/api/v1/persistentvolumes/pv")
        assert volume["spec"]["capacity"] == {"storage": "2Gi"}
        status = (await place.server.get(f"{CLAIMS}/c"))["status"]
        assert status["capacity"] == {"storage": "1Gi"}
        assert status["allocatedResources"] == {"storage": "2Gi"}
        assert status["allocatedResourceStatuses"] == {"storage": "NodeResizePending"}
        (condition,) = status["conditions"]
        assert (condition["type"], condition["status"]) == ("FileSystemResizePending", "True")


async def test_volumes_of_other_drivers_are_left_to_their_resizer() -> None:
    async with workshop(PersistentVolumeBinder, VolumeExpander) as place:
        await bound(place, hostPath={"path": "/data"})
        await place.change(f"{CLAIMS}/c", MORE)
        message = "waiting for an external controller to expand this PVC"
        assert ("ExternalExpanding", message) in await place.events()
        volume = await place.server.get("/api/v1/persistentvolumes/pv")
        assert volume["spec"]["capacity"] == {"storage": "1Gi"}


def request(size: str) -> Json:
    return {"spec": {"resources": {"requests": {"storage": size}}}}


async def refuse(place: ControllerHarness) -> None:
    """As the node does it that cannot grow the volume."""
    state = {"allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}}
    await place.change(f"{CLAIMS}/c/status", {"status": state})


async def sizes(place: ControllerHarness) -> tuple[str, str, str]:
    """The capacity of the volume, the allocated size, and how far its growth is."""
    volume = await place.server.get("/api/v1/persistentvolumes/pv")
    status = (await place.server.get(f"{CLAIMS}/c"))["status"]
    return (
        volume["spec"]["capacity"]["storage"],
        status["allocatedResources"]["storage"],
        status["allocatedResourceStatuses"]["storage"],
    )


async def test_a_growth_that_the_node_refuses_is_taken_back_by_a_lower_request() -> None:
    async with workshop(PersistentVolumeBinder, VolumeExpander) as place:
        await bound(place, csi={"driver": "local.kedge.dev", "volumeHandle": "pv"})
        await place.change(f"{CLAIMS}/c", request("100Gi"))
        await refuse(place)
        assert await sizes(place) == ("100Gi", "100Gi", "NodeResizeInfeasible")
        await place.change(f"{CLAIMS}/c", request("1100Mi"))
        assert await sizes(place) == ("1100Mi", "1100Mi", "NodeResizePending")


async def test_a_growth_is_not_taken_back_while_the_node_is_at_work() -> None:
    async with workshop(PersistentVolumeBinder, VolumeExpander) as place:
        await bound(place, csi={"driver": "local.kedge.dev", "volumeHandle": "pv"})
        await place.change(f"{CLAIMS}/c", request("100Gi"))
        await place.change(f"{CLAIMS}/c", request("1100Mi"))
        assert await sizes(place) == ("100Gi", "100Gi", "NodeResizePending")
        await refuse(place)
        assert await sizes(place) == ("1100Mi", "1100Mi", "NodeResizePending")


async def test_a_lowering_that_was_interrupted_is_completed() -> None:
    async with workshop(PersistentVolumeBinder, VolumeExpander) as place:
        await bound(place, csi={"driver": "local.kedge.dev", "volumeHandle": "pv"})
        await place.change(f"{CLAIMS}/c", request("100Gi"))
        await place.change(f"{CLAIMS}/c", request("1100Mi"))
        state = {
            "allocatedResources": {"storage": "1100Mi"},
            "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"},
        }
        await place.change(f"{CLAIMS}/c/status", {"status": state})
        assert await sizes(place) == ("1100Mi", "1100Mi", "NodeResizePending")
