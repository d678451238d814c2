"""PersistentVolumeClaimResize: a claim grows only if its class says that volumes can."""

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1 import storage_class
from kedge.api.storage_v1.binding import class_of, size_of
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.watchcache import ResourceCache


class PersistentVolumeClaimResize(ValidatingPlugin):
    """Lets the request of a bound PersistentVolumeClaim grow if its StorageClass has
    `allowVolumeExpansion`."""

    name = "PersistentVolumeClaimResize"

    def __init__(self, classes: ResourceCache) -> None:
        self._classes = classes

    async def validate(self, attempt: Attempt) -> None:
        new, old = attempt.object, attempt.old
        if attempt.operation != "UPDATE" or attempt.request.subresource:
            return
        if not isinstance(new, PersistentVolumeClaim) or not isinstance(old, PersistentVolumeClaim):
            return
        if size_of(new) <= size_of(old):
            return
        if old.status.phase != "Bound":
            raise refused(attempt, "Only bound persistent volume claims can be expanded")
        if not self._may_grow(class_of(old)):
            why = (
                "only dynamically provisioned pvc can be resized and the storageclass that "
                "provisions the pvc must support resize"
            )
            raise refused(attempt, why)

    def _may_grow(self, name: str) -> bool:
        item = self._classes.get(self._classes.resource.key("", name)) if name else None
        return item is not None and bool(storage_class.decode(item.body).allowVolumeExpansion)
