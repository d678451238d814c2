"""Claims and volumes that find each other, and volumes that are made and reclaimed."""

from typing import Any

import pytest

from kedge.client.client import Client
from kedge.controllers.volumes.persistent_volume_binder import PersistentVolumeBinder
from kedge.controllers.volumes.volume_writes import VolumeWrites
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
NODE = {"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}}


async def claim(place: ControllerHarness, name: str = "data", **spec: Any) -> Json:
    whole = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
        **spec,
    }
    return await place.create(CLAIMS, {"metadata": {"name": name}, "spec": whole})


async def volume(
    place: ControllerHarness, name: str = "pv", size: str = "2Gi", **spec: Any
) -> Json:
    whole = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "hostPath": {"path": "/data"},
        **spec,
    }
    return await place.create(VOLUMES, {"metadata": {"name": name}, "spec": whole})


async def local_class(place: ControllerHarness, name: str = "standard", **fields: Any) -> None:
    document = {"metadata": {"name": name}, "provisioner": "kedge.dev/local", **fields}
    await place.create(CLASSES, document)
    await place.create("/api/v1/nodes", NODE)


async def the_claim(place: ControllerHarness, name: str = "data") -> Json:
    found: Json = await place.server.get(f"{CLAIMS}/{name}")
    return found


async def the_volume(place: ControllerHarness, name: str = "pv") -> Json:
    found: Json = await place.server.get(f"{VOLUMES}/{name}")
    return found


async def test_a_claim_gets_the_smallest_volume_and_its_capacity() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        for size in ("5Gi", "2Gi", "512Mi"):
            await volume(place, f"pv-{size.lower()}", size)
        made = await claim(place)
        found, bound = await the_claim(place), await the_volume(place, "pv-2gi")
        assert found["spec"]["volumeName"] == "pv-2gi"
        assert found["status"] == {
            "phase": "Bound",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "2Gi"},
        }
        marks = {"pv.kubernetes.io/bind-completed": "yes"}
        by = {"pv.kubernetes.io/bound-by-controller": "yes"}
        assert found["metadata"]["annotations"] == marks | by
        assert bound["metadata"]["annotations"] == by
        assert bound["spec"]["claimRef"]["uid"] == made["metadata"]["uid"]
        assert bound["status"]["phase"] == "Bound"
        assert "lastPhaseTransitionTime" in bound["status"]
        assert (await the_volume(place, "pv-5gi"))["status"]["phase"] == "Available"


async def test_a_claim_waits_for_a_volume_and_says_so() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await claim(place)
        why = "no persistent volumes available for this claim and no storage class is set"
        assert await place.events() == [("FailedBinding", why)]
        await volume(place)
        assert (await the_claim(place))["status"]["phase"] == "Bound"


async def test_a_claim_that_names_its_volume_is_not_marked_as_bound_by_the_controller() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await claim(place, volumeName="pv")
        await volume(place)
        found = await the_claim(place)
        assert found["status"]["phase"] == "Bound"
        assert found["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes"}


async def test_a_named_volume_that_is_too_small_is_reported() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await volume(place, size="1Mi")
        await claim(place, volumeName="pv")
        message = 'Cannot bind to requested volume "pv": requested PV is too small'
        assert await place.events() == [("VolumeMismatch", message)]
        assert (await the_claim(place))["status"]["phase"] == "Pending"


async def test_a_volume_that_names_a_claim_waits_for_it() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await volume(place, claimRef={"namespace": "default", "name": "data"})
        assert (await the_volume(place))["status"]["phase"] == "Available"
        await claim(place, "other")
        assert (await the_claim(place, "other"))["status"]["phase"] == "Pending"
        await claim(place)
        assert (await the_claim(place))["status"]["phase"] == "Bound"
        assert "annotations" not in (await the_volume(place))["metadata"]


async def test_two_claims_do_not_share_a_volume() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await volume(place, "a")
        await volume(place, "b")
        for i in range(3):
            document = {
                "metadata": {"name": f"c{i}"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1"}},
                    "storageClassName": "",
                },
            }
            await place.server.post(CLAIMS, document)
        await place.settle()
        phases = sorted(each["status"]["phase"] for each in await place.below(CLAIMS))
        assert phases == ["Bound", "Bound", "Pending"]
        names = {each["spec"].get("volumeName") for each in await place.below(CLAIMS)}
        assert names == {"a", "b", None}


async def test_a_retained_volume_is_released_and_a_lost_claim_is_reported() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await volume(place)
        await claim(place)
        await place.remove(f"{CLAIMS}/data")
        assert (await the_volume(place))["status"]["phase"] == "Released"
        await claim(place)
        assert (await the_claim(place))["status"]["phase"] == "Pending"
        await volume(place, "second")
        assert (await the_claim(place))["spec"]["volumeName"] == "second"
        await place.remove(f"{VOLUMES}/second")
        assert (await the_claim(place))["status"] == {"phase": "Lost"}
        message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        assert ("ClaimLost", message) in await place.events()


async def test_a_volume_whose_claim_goes_while_they_are_bound_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with workshop(PersistentVolumeBinder) as place:
        patch_claim = VolumeWrites.patch_claim

        async def late(self: VolumeWrites, claim: Any, patch: Json, subresource: str = "") -> Any:
            if "spec" in patch:
                await place.server.delete(f"{CLAIMS}/data")
                await place.server.settle()
            return await patch_claim(self, claim, patch, subresource)

        monkeypatch.setattr(VolumeWrites, "patch_claim", late)
        await volume(place)
        await claim(place)
        found = await the_volume(place)
        assert found["spec"]["claimRef"]["name"] == "data"
        assert found["status"]["phase"] == "Released"


async def test_a_policy_that_has_just_changed_to_retain_keeps_the_volume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await local_class(place)
        made = await claim(place, storageClassName="standard")
        path = f"{VOLUMES}/pvc-{made['metadata']['uid']}"
        delete = Client.delete

        async def late(self: Client, resource: Any, name: str, **options: Any) -> Any:
            if resource.plural == "persistentvolumes":
                retain = {"persistentVolumeReclaimPolicy": "Retain"}
                await place.server.merge(path, {"spec": retain})
            return await delete(self, resource, name, **options)

        monkeypatch.setattr(Client, "delete", late)
        await place.remove(f"{CLAIMS}/data")
        await place.pass_time(1)
        found = await place.server.get(path)
        assert found["status"]["phase"] == "Released"
        assert "deletionTimestamp" not in found["metadata"]


async def test_a_volume_that_no_driver_deletes_fails() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await volume(place, persistentVolumeReclaimPolicy="Delete")
        await claim(place)
        await place.remove(f"{CLAIMS}/data")
        status = (await the_volume(place))["status"]
        assert status["phase"] == "Failed"
        why = "host_path deleter only supports /tmp/.+ but received provided /data"
        assert status["message"] == why


async def test_a_local_volume_is_made_and_deleted_with_its_claim() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await local_class(place, parameters={"enforce": "true"})
        made = await claim(place, storageClassName="standard")
        name = f"pvc-{made['metadata']['uid']}"
        found = await the_claim(place)
        assert found["spec"]["volumeName"] == name
        assert found["status"]["phase"] == "Bound"
        bound = await the_volume(place, name)
        assert bound["spec"]["csi"] == {
            "driver": "local.kedge.dev",
            "volumeHandle": name,
            "volumeAttributes": {"enforce": "true"},
        }
        assert bound["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        said = f"Successfully provisioned volume {name} using kedge.dev/local"
        assert ("ProvisioningSucceeded", said) in await place.events()
        await place.remove(f"{CLAIMS}/data")
        gone = await the_volume(place, name)
        assert gone["status"]["phase"] == "Released"
        assert gone["metadata"]["deletionTimestamp"]
        assert "kedge.dev/local-volume" in gone["metadata"]["finalizers"]
        await place.remove("/api/v1/nodes/n1")
        left = await the_volume(place, name)
        assert left["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]


async def test_a_class_that_waits_needs_a_pod_and_its_node() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await local_class(place, volumeBindingMode="WaitForFirstConsumer")
        await claim(place, storageClassName="standard")
        waiting = "waiting for first consumer to be created before binding"
        assert await place.events() == [("WaitForFirstConsumer", waiting)]
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        spec = {"containers": [{"name": "main", "image": "host"}], "volumes": volumes}
        pod = {"metadata": {"name": "p"}, "spec": spec}
        await place.create("/api/v1/namespaces/default/pods", pod)
        await claim(place, "later", storageClassName="standard")
        await place.change(f"{CLAIMS}/data", {"metadata": {"labels": {"a": "b"}}})
        assert ("WaitForPodScheduled", "waiting for pod p to be scheduled") in await place.events()
        mark = {"volume.kubernetes.io/selected-node": "n1"}
        await place.change(f"{CLAIMS}/data", {"metadata": {"annotations": mark}})
        assert (await the_claim(place))["status"]["phase"] == "Bound"


async def test_a_node_without_space_is_taken_back() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await local_class(place, volumeBindingMode="WaitForFirstConsumer")
        capacity = {
            "metadata": {"name": "kedge-local-n1-standard"},
            "storageClassName": "standard",
            "capacity": "1Mi",
            "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "n1"}},
        }
        path = "/apis/storage.k8s.io/v1/namespaces/kube-system/csistoragecapacities"
        await place.create(path, capacity)
        await claim(place, storageClassName="standard")
        mark = {"volume.kubernetes.io/selected-node": "n1"}
        await place.change(f"{CLAIMS}/data", {"metadata": {"annotations": mark}})
        assert "annotations" not in (await the_claim(place))["metadata"]
        message = 'Failed to provision volume with StorageClass "standard": node "n1" has'
        assert ("ProvisioningFailed", f"{message} not enough free storage") in await place.events()


async def test_a_claim_that_does_not_wait_is_tried_again_when_a_node_appears() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        document = {"metadata": {"name": "standard"}, "provisioner": "kedge.dev/local"}
        await place.create(CLASSES, document)
        await claim(place, storageClassName="standard")
        message = 'Failed to provision volume with StorageClass "standard": no node has'
        assert ("ProvisioningFailed", f"{message} enough free storage") in await place.events()
        await place.create("/api/v1/nodes", NODE)
        await place.pass_time(15)
        assert (await the_claim(place))["status"]["phase"] == "Bound"


async def test_another_program_is_asked_for_a_volume_of_its_class() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await place.create(CLASSES, {"metadata": {"name": "far"}, "provisioner": "csi.example"})
        await claim(place, storageClassName="far")
        assert (await the_claim(place))["metadata"]["annotations"] == {
            "volume.kubernetes.io/storage-provisioner": "csi.example",
            "volume.beta.kubernetes.io/storage-provisioner": "csi.example",
        }
        [(reason, message)] = await place.events()
        assert reason == "ExternalProvisioning"
        assert "external provisioner 'csi.example'" in message


async def test_a_claim_without_a_class_gets_the_default_one_later() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await place.create("/api/v1/nodes", NODE)
        await claim(place, storageClassName=None)
        mark = {"storageclass.kubernetes.io/is-default-class": "true"}
        meta = {"name": "standard", "annotations": mark}
        await place.create(CLASSES, {"metadata": meta, "provisioner": "kedge.dev/local"})
        found = await the_claim(place)
        assert found["spec"]["storageClassName"] == "standard"
        assert found["status"]["phase"] == "Bound"


COPY = {"dataSource": {"kind": "PersistentVolumeClaim", "name": "data"}}


async def made_source(place: ControllerHarness, **metadata: Any) -> None:
    """A bound claim `data` whose volume is on n1."""
    await local_class(place, volumeBindingMode="WaitForFirstConsumer")
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    source = {"driver": "local.kedge.dev", "volumeHandle": "h"}
    reference = {"namespace": "default", "name": "data"}
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}, "csi": source}
    whole = {**spec, "claimRef": reference, "nodeAffinity": affinity}
    await place.create(VOLUMES, {"metadata": {"name": "pv", **metadata}, "spec": whole})
    await claim(place, volumeName="pv")


async def test_a_copy_is_made_at_once_on_the_node_of_its_source() -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await made_source(place, annotations={"kedge.dev/local-data": "n1"})
        wanted = {"resources": {"requests": {"storage": "2Gi"}}, "storageClassName": "standard"}
        copied = await claim(place, "copy", **wanted, **COPY)
        assert (await the_claim(place, "copy"))["status"]["phase"] == "Bound"
        made = await the_volume(place, f"pvc-{copied['metadata']['uid']}")
        assert made["spec"]["csi"]["volumeAttributes"] == {"kedge.dev/copy-of": "h"}
        (term,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == ["n1"]


@pytest.mark.parametrize(
    ("annotations", "size", "why"),
    [
        ({}, "2Gi", "has no data: no pod has used it"),
        ({"kedge.dev/local-data": "n1"}, "1Gi", "smaller than claim data, which has 2Gi"),
    ],
)
async def test_a_copy_that_cannot_be_made_is_explained(
    annotations: dict[str, str], size: str, why: str
) -> None:
    async with workshop(PersistentVolumeBinder) as place:
        await made_source(place, annotations=annotations)
        wanted = {"resources": {"requests": {"storage": size}}, "storageClassName": "standard"}
        await claim(place, "copy", **wanted, **COPY)
        assert any(why in message for _, message in await place.events())
        assert (await the_claim(place, "copy"))["status"]["phase"] == "Pending"
