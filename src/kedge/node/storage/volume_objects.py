"""The parts of API objects that decide how a volume is mounted."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api.core_v1.pod.affinity import NodeSelector
from kedge.api.model import Document
from kedge.api.resource import Resource
from kedge.client.view import sketches
from kedge.machinery.quantity import Quantity

STORAGE_GROUP: Final = "storage.k8s.io"
VOLUMES: Final = Resource(
    type=Document,
    group="",
    plural="persistentvolumes",
    kind="PersistentVolume",
    namespaced=False,
)
DRIVERS: Final = Resource(
    type=Document, group=STORAGE_GROUP, plural="csidrivers", kind="CSIDriver", namespaced=False
)
CLASSES: Final = Resource(
    type=Document,
    group=STORAGE_GROUP,
    plural="storageclasses",
    kind="StorageClass",
    namespaced=False,
)
NODES: Final = Resource(
    type=Document, group=STORAGE_GROUP, plural="csinodes", kind="CSINode", namespaced=False
)
CAPACITIES: Final = Resource(
    type=Document,
    group=STORAGE_GROUP,
    plural="csistoragecapacities",
    kind="CSIStorageCapacity",
)
ATTACHMENTS: Final = Resource(
    type=Document,
    group=STORAGE_GROUP,
    plural="volumeattachments",
    kind="VolumeAttachment",
    namespaced=False,
)


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    pass


class VolumeMeta(_Part, frozen=True):
    """Which object it is, and whether it is being deleted."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    finalizers: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}


class SecretPlace(_Part, frozen=True):
    """A secret of any namespace."""

    name: str = ""
    namespace: str = ""


class CsiPart(_Part, frozen=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""
    read_only: bool = False
    fs_type: str = ""
    volume_attributes: Mapping[str, str] = {}
    node_stage_secret_ref: SecretPlace | None = None
    node_publish_secret_ref: SecretPlace | None = None
    node_expand_secret_ref: SecretPlace | None = None


class HostPathPart(_Part, frozen=True):
    """A path of the machine."""

    path: str = ""
    type: str | None = None


class LocalPart(_Part, frozen=True):
    """A directory or device of one machine."""

    path: str = ""
    fs_type: str | None = None


class NfsPart(_Part, frozen=True):
    """A directory of an NFS server."""

    server: str = ""
    path: str = ""
    read_only: bool = False


class ClaimPlace(_Part, frozen=True):
    """The claim that a volume is bound to."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeAffinity(_Part, frozen=True):
    """The nodes that can use the volume."""

    required: NodeSelector | None = None


class PersistentVolumePart(_Part, frozen=True):
    """The spec of a PersistentVolume."""

    capacity: Mapping[str, Any] = {}
    access_modes: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    storage_class_name: str = ""
    persistent_volume_reclaim_policy: str = "Retain"
    claim_ref: ClaimPlace | None = None
    node_affinity: VolumeAffinity | None = None
    csi: CsiPart | None = None
    host_path: HostPathPart | None = None
    local: LocalPart | None = None
    nfs: NfsPart | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return Quantity.parse(str(self.capacity.get("storage", 0))).value()


class MountableVolume(_Part, frozen=True):
    """A PersistentVolume."""

    metadata: VolumeMeta = VolumeMeta()
    spec: PersistentVolumePart = PersistentVolumePart()


class TokenRequestPart(_Part, frozen=True):
    """A token that a driver asks for."""

    audience: str = ""
    expiration_seconds: int | None = None


class CsiDriverPart(_Part, frozen=True):
    """The spec of a CSIDriver, with upstream's defaults."""

    attach_required: bool = True
    pod_info_on_mount: bool = False
    volume_lifecycle_modes: Sequence[str] = ("Persistent",)
    fs_group_policy: str = "ReadWriteOnceWithFSType"
    token_requests: Sequence[TokenRequestPart] = ()
    service_account_token_in_secrets: bool = False
    requires_republish: bool = False
    node_allocatable_update_period_seconds: int = 0


class CsiDriverObject(_Part, frozen=True):
    """A CSIDriver."""

    metadata: VolumeMeta = VolumeMeta()
    spec: CsiDriverPart = CsiDriverPart()


class AttachError(_Part, frozen=True):
    """Why a volume is not attached."""

    message: str = ""


class AttachmentStatus(_Part, frozen=True):
    """The status of a VolumeAttachment."""

    attached: bool = False
    attachment_metadata: Mapping[str, str] = {}
    attach_error: AttachError | None = None


class AttachmentObject(_Part, frozen=True):
    """A VolumeAttachment."""

    metadata: VolumeMeta = VolumeMeta()
    status: AttachmentStatus = AttachmentStatus()


class ClassObject(_Part, frozen=True):
    """A StorageClass."""

    metadata: VolumeMeta = VolumeMeta()
    provisioner: str = ""
    parameters: Mapping[str, str] = {}


VOLUME_VIEW: Final = sketches(VOLUMES, MountableVolume)
DRIVER_VIEW: Final = sketches(DRIVERS, CsiDriverObject)
ATTACHMENT_VIEW: Final = sketches(ATTACHMENTS, AttachmentObject)
CLASS_VIEW: Final = sketches(CLASSES, ClassObject)
