"""PersistentVolume: a piece of storage, with the fields that binding, scheduling and nodes read.

The API stores whole documents. Writers use patches, which leave the other fields alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api.builtin.resources import built_in
from kedge.api.core_v1.node_selection import Match, compiled
from kedge.api.core_v1.persistent_volume_claim import STORAGE_CLASS
from kedge.api.core_v1.pod.affinity import NodeSelector
from kedge.api.model import Model, Object
from kedge.api.resource import dec_hook
from kedge.machinery.quantity import Quantity

VOLUMES: Final = built_in("", "persistentvolumes")
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
PV_PROTECTION: Final = "kubernetes.io/pv-protection"
_ZERO: Final = Quantity.from_value(0)


class VolumeClaimReference(Model):
    """The claim that a volume is for; without a uid, any claim of that name."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiVolume(Model):
    """A volume of a CSI driver."""

    driver: str = ""
    volumeHandle: str = ""
    readOnly: bool = False
    fsType: str = ""
    volumeAttributes: Mapping[str, str] = {}


class VolumeNodeAffinity(Model):
    """The nodes from which a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Model):
    """The properties of the storage, and the claim that it is for."""

    capacity: Mapping[str, Quantity] = {}
    accessModes: Sequence[str] = ()
    claimRef: VolumeClaimReference | None = None
    persistentVolumeReclaimPolicy: str = ""
    storageClassName: str = ""
    volumeMode: str | None = None
    volumeAttributesClassName: str | None = None
    nodeAffinity: VolumeNodeAffinity | None = None
    mountOptions: Sequence[str] = ()
    csi: CsiVolume | None = None
    hostPath: dict[str, Any] | None = None
    local: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None


class PersistentVolumeStatus(Model):
    """The phase of a volume."""

    phase: str = ""
    message: str = ""
    reason: str = ""


class PersistentVolume(Object):
    """A piece of storage."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def size(self) -> Quantity:
        return self.spec.capacity.get("storage", _ZERO)

    @property
    def storage_class(self) -> str:
        annotated = self.metadata.annotations.get(STORAGE_CLASS)
        return annotated if annotated is not None else self.spec.storageClassName

    @property
    def driver(self) -> str:
        """The CSI driver of the volume; empty for other kinds."""
        return self.spec.csi.driver if self.spec.csi is not None else ""


decode: Final = msgspec.json.Decoder(PersistentVolume, dec_hook=dec_hook).decode


def reachable_from(volume: PersistentVolume) -> Match:
    """Return whether a node, by name and labels, can reach a volume."""
    affinity = volume.spec.nodeAffinity
    if affinity is None or affinity.required is None:
        return lambda name, labels: True
    terms = [compiled(term) for term in affinity.required.nodeSelectorTerms]
    return lambda name, labels: any(term is not None and term(name, labels) for term in terms)
