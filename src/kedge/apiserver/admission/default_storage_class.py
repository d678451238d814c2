"""DefaultStorageClass: a claim that names no class gets the default one."""

from msgspec.structs import replace

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.model import Object
from kedge.api.storage_v1 import storage_class
from kedge.api.storage_v1.binding import has_no_class
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.watchcache import ResourceCache


class DefaultStorageClass:
    """Sets the class of a PersistentVolumeClaim that names none to the default StorageClass."""

    name = "DefaultStorageClass"

    def __init__(self, classes: ResourceCache) -> None:
        self._classes = classes

    async def mutate(self, attempt: Attempt) -> Object | None:
        claim = attempt.object
        is_new = attempt.operation == "CREATE" and not attempt.request.subresource
        if not isinstance(claim, PersistentVolumeClaim) or not is_new or not has_no_class(claim):
            return claim
        known = (storage_class.decode(item.body) for item in self._classes.values())
        found = storage_class.default_class(known)
        if found is None:
            return claim
        return replace(claim, spec=replace(claim.spec, storageClassName=found.metadata.name))

    async def validate(self, attempt: Attempt) -> None:
        return None
