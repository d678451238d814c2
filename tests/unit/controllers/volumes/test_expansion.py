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
