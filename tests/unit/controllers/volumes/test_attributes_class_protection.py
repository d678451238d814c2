"""VolumeAttributesClasses that are in use stay."""

from kedge.controllers.volumes.attributes_class_protection import (
    AttributesClassProtectionController,
)
from kedge.testing.controllers import workshop

PATH = "/apis/storage.k8s.io/v1/volumeattributesclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


async def test_a_class_stays_while_a_claim_names_it() -> None:
    async with workshop(AttributesClassProtectionController) as place:
        for name in ("fast", "slow"):
            body = {"metadata": {"name": name}, "driverName": "d", "parameters": {"a": "b"}}
            await place.create(PATH, body)
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1"}},
            "volumeAttributesClassName": "fast",
        }
        await place.create(CLAIMS, {"metadata": {"name": "c"}, "spec": spec})
        await place.remove(f"{PATH}/slow")
        await place.remove(f"{PATH}/fast")
        (found,) = await place.below(PATH)
        assert found["metadata"]["finalizers"] == ["kubernetes.io/vac-protection"]
        await place.remove(f"{CLAIMS}/c")
        assert await place.below(PATH) == []
