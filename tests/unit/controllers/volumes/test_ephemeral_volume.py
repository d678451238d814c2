"""Claims that are made for the volumes of a pod."""

from typing import Any

from kedge.controllers.volumes.ephemeral_volume import EphemeralVolumeController
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]
CORE = "/api/v1/namespaces/default"
CLAIMS = f"{CORE}/persistentvolumeclaims"
SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


async def pod(place: ControllerHarness) -> Json:
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": SPEC}
    spec = {
        "containers": [{"name": "main", "image": "host"}],
        "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}],
    }
    return await place.create(f"{CORE}/pods", {"metadata": {"name": "p"}, "spec": spec})


async def test_a_claim_is_made_for_each_ephemeral_volume_and_made_again() -> None:
    async with workshop(EphemeralVolumeController) as place:
        made = await pod(place)
        (found,) = await place.below(CLAIMS)
        meta = found["metadata"]
        assert (meta["name"], meta["labels"], meta["annotations"]) == (
            "p-v",
            {"a": "b"},
            {"c": "d"},
        )
        assert meta["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p",
                "uid": made["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        await place.remove(f"{CLAIMS}/p-v")
        (again,) = await place.below(CLAIMS)
        assert again["metadata"]["uid"] != meta["uid"]


async def test_a_claim_of_the_same_name_that_is_not_the_pods_is_reported() -> None:
    async with workshop(EphemeralVolumeController) as place:
        await place.create(CLAIMS, {"metadata": {"name": "p-v"}, "spec": SPEC})
        await pod(place)
        why = "PVC default/p-v was not created for pod default/p (pod is not owner)"
        assert ("FailedBinding", f"ephemeral volume v: {why}") in await place.events()
