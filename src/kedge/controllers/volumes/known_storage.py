"""CachedStorage: the volumes, classes and pods that decisions about claims look at."""

from collections.abc import Hashable, Iterator, Sequence

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1.binding import class_of
from kedge.api.storage_v1.persistent_volume import PersistentVolume
from kedge.api.storage_v1.storage_class import StorageClass, default_class
from kedge.controllers.shared_informers import ObjectCache, key_of
from kedge.controllers.volumes.claim_users import ClaimUsers


class CachedStorage:
    """Answers from the caches; volumes that are being bound to another claim are left out."""

    def __init__(
        self,
        volumes: ObjectCache[PersistentVolume],
        classes: ObjectCache[StorageClass],
        users: ClaimUsers,
    ) -> None:
        self._volumes = volumes
        self._classes = classes
        self._users = users
        self._claimed = volumes.by(_claim)
        self._free = volumes.by(_free_class)
        self.promised: dict[str, str] = {}
        """The uid of the claim that each volume is being bound to."""

    def volume(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def candidates(self, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
        yield from self._claimed.get(key_of(claim))
        uid = claim.metadata.uid
        for volume in self._free.get(class_of(claim)):
            if self.promised.get(volume.metadata.name, uid) == uid:
                yield volume

    def storage_class(self, name: str) -> StorageClass | None:
        return self._classes.get(name)

    def default_class(self) -> StorageClass | None:
        return default_class(self._classes)

    def unscheduled_pods(self, claim: PersistentVolumeClaim) -> Sequence[str]:
        users = self._users.of(key_of(claim))
        return [pod.metadata.name for pod in users if not pod.spec.nodeName]


def _claim(volume: PersistentVolume) -> Hashable | None:
    reference = volume.spec.claimRef
    return (reference.namespace, reference.name) if reference is not None else None


def _free_class(volume: PersistentVolume) -> Hashable | None:
    return volume.storage_class if volume.spec.claimRef is None else None
