"""Storage: the claims, volumes and storage classes that pods depend on, reduced to used fields."""

import msgspec

from kedge.api.core_v1.persistent_volume_claim import STORAGE_CLASS
from kedge.api.core_v1.pod.affinity import NodeSelector
from kedge.api.model import OwnerReference
from kedge.client.informer import Cache


class StorageMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of metadata that volume binding reads."""

    name: str = ""
    namespace: str = ""
    deletion_timestamp: str = ""
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    volume_name: str = ""
    storage_class_name: str | None = None


class ClaimStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class PartialClaim(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: StorageMeta = StorageMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def bound(self) -> bool:
        return bool(self.spec.volume_name) and self.status.phase == "Bound"

    @property
    def storage_class(self) -> str:
        annotated = self.metadata.annotations.get(STORAGE_CLASS)
        return annotated if annotated is not None else self.spec.storage_class_name or ""


class VolumeNodeAffinity(msgspec.Struct, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(msgspec.Struct, frozen=True):
    """A PersistentVolume."""

    metadata: StorageMeta = StorageMeta()
    spec: VolumeSpec = VolumeSpec()


class StorageClass(msgspec.Struct, frozen=True, rename="camel"):
    """A StorageClass."""

    metadata: StorageMeta = StorageMeta()
    volume_binding_mode: str = ""


class Storage:
    """The cached claims, volumes and storage classes."""

    def __init__(self) -> None:
        self.claims: Cache[PartialClaim] = Cache()
        self.volumes: Cache[PersistentVolume] = Cache()
        self.classes: Cache[StorageClass] = Cache()

    def waits(self, claim: PartialClaim) -> bool:
        """Whether an unbound claim is bound only once its pod has been placed."""
        known = self.classes.get(claim.storage_class)
        return known is not None and known.volume_binding_mode == "WaitForFirstConsumer"
