"""CSI objects: drivers, the drivers of a node, attachments, and free space."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kedge.api.builtin.resources import built_in
from kedge.api.model import LabelSelector, Model, Object
from kedge.api.resource import dec_hook
from kedge.machinery.quantity import Quantity

DRIVERS: Final = built_in("storage.k8s.io", "csidrivers")
NODES: Final = built_in("storage.k8s.io", "csinodes")
CAPACITIES: Final = built_in("storage.k8s.io", "csistoragecapacities")
ATTACHMENTS: Final = built_in("storage.k8s.io", "volumeattachments")


class CsiDriverSpec(Model):
    """The properties of a driver that the cluster must know."""

    attachRequired: bool = True
    storageCapacity: bool = False
    preventPodSchedulingIfMissing: bool = False


class CsiDriver(Object):
    """A CSI driver."""

    spec: CsiDriverSpec = CsiDriverSpec()


class VolumeNodeResources(Model):
    """How many volumes of a driver a node can use."""

    count: int | None = None


class CsiNodeDriver(Model):
    """A driver on a node."""

    name: str = ""
    nodeID: str = ""
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(Model):
    """The drivers of a node."""

    drivers: Sequence[CsiNodeDriver] = ()


class CsiNode(Object):
    """The drivers of the node of the same name."""

    spec: CsiNodeSpec = CsiNodeSpec()

    def driver(self, name: str) -> CsiNodeDriver | None:
        return next((each for each in self.spec.drivers if each.name == name), None)


class CsiStorageCapacity(Object):
    """The free space for volumes of a class in one segment of the topology."""

    storageClassName: str = ""
    nodeTopology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximumVolumeSize: Quantity | None = None

    @property
    def largest(self) -> int:
        """Bytes of the largest volume that can be made here."""
        limit = self.maximumVolumeSize if self.maximumVolumeSize is not None else self.capacity
        return limit.value() if limit is not None else 0


class AttachmentSource(Model):
    """The volume to attach."""

    persistentVolumeName: str = ""


class VolumeAttachmentSpec(Model):
    """The volume, the node and the driver that attaches."""

    attacher: str = ""
    nodeName: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeError(Model):
    """The last failure of an attacher."""

    time: str = ""
    message: str = ""


class VolumeAttachmentStatus(Model):
    """Whether the volume is attached."""

    attached: bool = False
    attachmentMetadata: Mapping[str, str] = {}
    attachError: VolumeError | None = None
    detachError: VolumeError | None = None


class VolumeAttachment(Object):
    """The wish to attach a volume to a node, and its fulfilment."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


decode_driver: Final = msgspec.json.Decoder(CsiDriver).decode
decode_node: Final = msgspec.json.Decoder(CsiNode).decode
decode_capacity: Final = msgspec.json.Decoder(CsiStorageCapacity, dec_hook=dec_hook).decode
decode_attachment: Final = msgspec.json.Decoder(VolumeAttachment).decode
