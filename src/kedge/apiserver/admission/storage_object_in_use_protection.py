"""StorageObjectInUseProtection: claims and volumes that are in use cannot be removed."""

from typing import Final

from msgspec.structs import replace

from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt, MutatingPlugin

FINALIZERS: Final = {
    ("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    ("", "persistentvolumes"): "kubernetes.io/pv-protection",
    ("storage.k8s.io", "volumeattributesclasses"): "kubernetes.io/vac-protection",
}


class StorageObjectInUseProtection(MutatingPlugin):
    """Adds the finalizers that keep claims, volumes and VolumeAttributesClasses while they are in
    use."""

    name = "StorageObjectInUseProtection"

    async def mutate(self, attempt: Attempt) -> Object | None:
        obj, resource = attempt.object, attempt.request.resource
        finalizer = FINALIZERS.get((resource.group, resource.plural))
        if obj is None or finalizer is None or attempt.operation != "CREATE":
            return obj
        if attempt.request.subresource or finalizer in obj.metadata.finalizers:
            return obj
        finalizers = [*obj.metadata.finalizers, finalizer]
        return replace(obj, metadata=replace(obj.metadata, finalizers=finalizers))
