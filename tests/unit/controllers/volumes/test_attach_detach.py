"""Volumes whose driver attaches them to the node of their pod."""

from hashlib import sha256
from typing import Any

from kedge.controllers.volumes.attach_detach import AttachDetachController
from kedge.controllers.volumes.persistent_volume_binder import PersistentVolumeBinder
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]
CORE = "/api/v1/namespaces/default"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
MANAGED = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
UNIQUE = "kubernetes.io/csi/disk.example^h1"


async def used_volume(place: ControllerHarness, driver: str = "disk.example") -> Json:
    """A pod on a node, with a claim that is bound to a CSI volume."""
    await place.create("/api/v1/nodes", {"metadata": {"name": "n1", "annotations": MANAGED}})
    modes, size = ["ReadWriteOnce"], {"storage": "1Gi"}
    csi = {"driver": driver, "volumeHandle": "h1"}
    volume = {"accessModes": modes, "capacity": size, "csi": csi}
    await place.create("/api/v1/persistentvolumes", {"metadata": {"name": "pv"}, "spec": volume})
    claim = {"accessModes": modes, "resources": {"requests": size}, "storageClassName": ""}
    await place.create(f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": claim})
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "main", "image": "host"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    }
    return await place.create(f"{CORE}/pods", {"metadata": {"name": "p"}, "spec": spec})


async def test_a_volume_is_attached_reported_and_detached_after_it_is_unmounted() -> None:
    async with workshop(PersistentVolumeBinder, AttachDetachController) as place:
        pod = await used_volume(place)
        (made,) = await place.below(ATTACHMENTS)
        name = f"csi-{sha256(b'h1disk.examplen1').hexdigest()}"
        assert made["metadata"]["name"] == name
        assert made["spec"] == {
            "attacher": "disk.example",
            "nodeName": "n1",
            "source": {"persistentVolumeName": "pv"},
        }
        await place.change(f"{ATTACHMENTS}/{name}/status", {"status": {"attached": True}})
        message = 'AttachVolume.Attach succeeded for volume "pv" '
        assert ("SuccessfulAttachVolume", message) in await place.events()
        status = (await place.server.get("/api/v1/nodes/n1"))["status"]
        assert [each["name"] for each in status["volumesAttached"]] == [UNIQUE]
        await place.change("/api/v1/nodes/n1/status", {"status": {"volumesInUse": [UNIQUE]}})
        await place.bury(pod)
        assert len(await place.below(ATTACHMENTS)) == 1
        await place.change("/api/v1/nodes/n1/status", {"status": {"volumesInUse": None}})
        assert await place.below(ATTACHMENTS) == []


async def test_pods_are_told_if_no_attacher_attaches_their_volume() -> None:
    message = (
        'AttachVolume.Attach failed for volume "pv" : timed out waiting for external-attacher of'
        " disk.example CSI driver to attach volume h1"
    )
    async with workshop(PersistentVolumeBinder, AttachDetachController) as place:
        await used_volume(place)
        await place.pass_time(110)
        assert ("FailedAttachVolume", message) not in await place.events()
        await place.pass_time(20)
        assert ("FailedAttachVolume", message) in await place.events()


async def test_a_node_that_reports_is_never_forced() -> None:
    async with workshop(PersistentVolumeBinder, AttachDetachController) as place:
        pod = await used_volume(place)
        ready = {"type": "Ready", "status": "True"}
        status = {"volumesInUse": [UNIQUE], "conditions": [ready]}
        await place.change("/api/v1/nodes/n1/status", {"status": status})
        await place.bury(pod)
        await place.pass_time(400)
        assert len(await place.below(ATTACHMENTS)) == 1
        lost = {"conditions": [{**ready, "status": "Unknown"}]}
        await place.change("/api/v1/nodes/n1/status", {"status": lost})
        assert await place.below(ATTACHMENTS) == []


async def test_a_node_that_never_unmounts_is_waited_for_six_minutes() -> None:
    async with workshop(PersistentVolumeBinder, AttachDetachController) as place:
        pod = await used_volume(place)
        await place.change("/api/v1/nodes/n1/status", {"status": {"volumesInUse": [UNIQUE]}})
        await place.bury(pod)
        await place.pass_time(350)
        assert len(await place.below(ATTACHMENTS)) == 1
        await place.pass_time(20)
        assert await place.below(ATTACHMENTS) == []


async def test_drivers_that_need_no_attachment_and_attachments_of_others_are_left_alone() -> None:
    async with workshop(PersistentVolumeBinder, AttachDetachController) as place:
        driver = {"metadata": {"name": "disk.example"}, "spec": {"attachRequired": False}}
        await place.create("/apis/storage.k8s.io/v1/csidrivers", driver)
        source = {"persistentVolumeName": "other"}
        spec = {"attacher": "a.example", "nodeName": "n1", "source": source}
        await place.create(ATTACHMENTS, {"metadata": {"name": "theirs"}, "spec": spec})
        await used_volume(place)
        (left,) = await place.below(ATTACHMENTS)
        assert left["metadata"]["name"] == "theirs"


async def test_a_driver_that_no_longer_attaches_has_no_attachments() -> None:
    drivers = "/apis/storage.k8s.io/v1/csidrivers"
    async with workshop(PersistentVolumeBinder, AttachDetachController) as place:
        await used_volume(place)
        assert len(await place.below(ATTACHMENTS)) == 1
        spec = {"attachRequired": False}
        await place.create(drivers, {"metadata": {"name": "disk.example"}, "spec": spec})
        assert await place.below(ATTACHMENTS) == []
        await place.remove(f"{drivers}/disk.example")
        assert len(await place.below(ATTACHMENTS)) == 1


async def move(place: ControllerHarness) -> None:
    """Create a second pod with the same claim on another node."""
    await place.create("/api/v1/nodes", {"metadata": {"name": "n2", "annotations": MANAGED}})
    spec = {
        "nodeName": "n2",
        "containers": [{"name": "main", "image": "host"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    }
    await place.create(f"{CORE}/pods", {"metadata": {"name": "q"}, "spec": spec})


async def nodes_with_volume(place: ControllerHarness) -> list[str]:
    return [each["spec"]["nodeName"] for each in await place.below(ATTACHMENTS)]


async def test_a_volume_for_one_node_is_not_attached_to_a_second() -> None:
    async with workshop(PersistentVolumeBinder, AttachDetachController) as place:
        pod = await used_volume(place)
        await place.change("/api/v1/nodes/n1/status", {"status": {"volumesInUse": [UNIQUE]}})
        await move(place)
        message = 'Waiting for detach for volume "pv" Volume is already used by pod(s) p'
        assert ("FailedAttachVolume", message) in await place.events()
        await place.bury(pod)
        assert await nodes_with_volume(place) == ["n1"]
        await place.change("/api/v1/nodes/n1/status", {"status": {"volumesInUse": None}})
        assert await nodes_with_volume(place) == ["n2"]


async def test_the_volume_of_a_removed_node_is_detached_when_its_pod_is_gone() -> None:
    async with workshop(PersistentVolumeBinder, AttachDetachController) as place:
        pod = await used_volume(place)
        await place.change("/api/v1/nodes/n1/status", {"status": {"volumesInUse": [UNIQUE]}})
        await move(place)
        await place.remove("/api/v1/nodes/n1")
        assert await nodes_with_volume(place) == ["n1"]
        await place.bury(pod)
        assert await nodes_with_volume(place) == ["n2"]
