"""Claims and volumes that are in use stay until they are free."""

from typing import Any

import pytest

from kedge.api.core_v1.persistent_volume_claim import RESOURCE
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.controllers.volumes.claim_protection import (
    ClaimProtectionController,
    is_used,
    pods_naming,
)
from kedge.controllers.volumes.persistent_volume_binder import PersistentVolumeBinder
from kedge.controllers.volumes.volume_protection import VolumeProtectionController
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]
CORE = "/api/v1/namespaces/default"
CLAIMS = f"{CORE}/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"


async def claim(place: ControllerHarness) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    await place.create(
        CLAIMS, {"metadata": {"name": "data"}, "spec": {**spec, "storageClassName": ""}}
    )


async def pod(place: ControllerHarness, node: str) -> Json:
    spec = {
        "nodeName": node,
        "containers": [{"name": "main", "image": "host"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    return await place.create(f"{CORE}/pods", {"metadata": {"name": "p"}, "spec": spec})


async def test_a_claim_that_a_pod_uses_stays_until_the_pod_is_gone() -> None:
    async with workshop(ClaimProtectionController) as place:
        await claim(place)
        user = await pod(place, "n1")
        await place.remove(f"{CLAIMS}/data")
        (found,) = await place.below(CLAIMS)
        assert found["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        await place.end_pod(user)
        assert len(await place.below(CLAIMS)) == 1
        await place.bury(user)
        assert await place.below(CLAIMS) == []


async def test_a_pod_without_a_node_does_not_hold_a_claim() -> None:
    async with workshop(ClaimProtectionController) as place:
        await claim(place)
        await pod(place, "")
        await place.remove(f"{CLAIMS}/data")
        assert await place.below(CLAIMS) == []


@pytest.mark.parametrize(("grace", "is_held"), [(None, True), (30, True), (0, False)])
def test_the_claim_of_an_ephemeral_volume_does_not_wait_for_a_pod_that_waits_for_it(
    grace: int | None, is_held: bool
) -> None:
    deletion = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    meta = {"name": "p", "namespace": "default", "uid": "u"} | (
        deletion if grace is not None else {}
    )
    template: Json = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "main", "image": "host"}],
        "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}],
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    made = {"name": "p-v", "namespace": "default", "ownerReferences": [owner]}
    claimed = RESOURCE.from_document({"metadata": made})
    assert is_used(claimed, [PODS.from_document({"metadata": meta, "spec": spec})]) is is_held


async def test_a_finalizer_that_a_person_removed_comes_back() -> None:
    async with workshop(ClaimProtectionController) as place:
        await claim(place)
        await place.change(f"{CLAIMS}/data", {"metadata": {"finalizers": None}})
        (found,) = await place.below(CLAIMS)
        assert found["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


async def test_a_bound_volume_stays_until_its_claim_is_gone() -> None:
    makers = ClaimProtectionController, VolumeProtectionController, PersistentVolumeBinder
    async with workshop(*makers) as place:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1"},
            "hostPath": {"path": "/data"},
        }
        await place.create(VOLUMES, {"metadata": {"name": "pv"}, "spec": spec})
        await claim(place)
        await place.remove(f"{VOLUMES}/pv")
        (found,) = await place.below(VOLUMES)
        assert found["metadata"]["deletionTimestamp"]
        assert (await place.below(CLAIMS))[0]["status"]["phase"] == "Bound"
        await place.remove(f"{CLAIMS}/data")
        assert await place.below(VOLUMES) == []


def test_only_pods_that_may_use_a_claim_are_decoded() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "u"}
    claim = RESOURCE.from_document({"metadata": {"name": "data", "ownerReferences": [owner]}})
    encoded = [
        b'{"metadata": {"name": "a"}, "spec": {"volumes": [{"name": "data"}]}}',
        b'{"metadata": {"name": "owner"}}',
        b"not a pod at all",
    ]
    assert [each.metadata.name for each in pods_naming(claim, encoded)] == ["a", "owner"]
