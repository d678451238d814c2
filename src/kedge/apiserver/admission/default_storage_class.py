"""DefaultStorageClass: a claim that names no class gets the default one."""

from msgspec.structs import replace

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.model import Object
from kedge.api.storage_v1 import storage_class
from kedge.api.storage_v1.binding import class_of, has_no_class
from kedge.api.storage_v1.local_sources import source_refusal
from kedge.api.storage_v1.local_volumes import LOCAL_PROVISIONER
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.watchcache import ResourceCache


class DefaultStorageClass:
    """Sets the class of a PersistentVolumeClaim that names none to the default StorageClass. Warns
    about a `dataSource` that a class of kedge cannot copy."""

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
        claim = attempt.object
        if attempt.operation != "CREATE" or not isinstance(claim, PersistentVolumeClaim):
            return
        why = source_refusal(claim)
        if why and self._provisioner(class_of(claim)) == LOCAL_PROVISIONER:
            attempt.request.warnings.append(f"spec.dataSource: {why}; the claim stays Pending")

    def _provisioner(self, name: str) -> str:
        item = self._classes.get(self._classes.resource.key("", name)) if name else None
        return storage_class.decode(item.body).provisioner if item is not None else ""
