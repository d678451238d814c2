"""Volume sources that reach storage over the network or through a cloud."""

from collections.abc import Mapping, Sequence

from msgspec import field

from kedge.api.core_v1.references import LocalObjectReference
from kedge.api.model import Int32, Model


class AWSElasticBlockStoreVolumeSource(Model):
    """A disk of AWS."""

    __required__ = ("volumeID",)

    volumeID: str = ""
    """Id of the disk."""
    fsType: str = ""
    """File system to mount."""
    partition: Int32 = 0
    """Partition to mount; 0 mounts the whole."""
    readOnly: bool = False
    """Whether mounts are read-only."""


class AzureDiskVolumeSource(Model):
    """A disk of Azure."""

    __required__ = ("diskName", "diskURI")

    diskName: str = ""
    """Name of the disk."""
    diskURI: str = ""
    """Address of the disk."""
    cachingMode: str | None = None
    """How the host caches: None, ReadOnly or ReadWrite."""
    fsType: str | None = None
    """File system to mount. Default ext4."""
    readOnly: bool | None = None
    """Whether mounts are read-only. Default false."""
    kind: str | None = None
    """Shared, Dedicated or Managed. Default Shared."""


class AzureFileVolumeSource(Model):
    """A file share of Azure."""

    __required__ = ("secretName", "shareName")

    secretName: str = ""
    """Secret with the storage account's name and key."""
    shareName: str = ""
    """Name of the share."""
    readOnly: bool = False
    """Whether mounts are read-only."""


class CephFSVolumeSource(Model):
    """A directory of a Ceph file system."""

    __required__ = ("monitors",)

    monitors: Sequence[str] = ()
    """Addresses of the monitors."""
    path: str = ""
    """Directory to mount. Default /."""
    user: str = ""
    """User to connect as. Default admin."""
    secretFile: str = ""
    """File on the node with the user's keyring."""
    secretRef: LocalObjectReference | None = None
    """Secret with the user's keyring; wins over secretFile."""
    readOnly: bool = False
    """Whether mounts are read-only."""


class CinderVolumeSource(Model):
    """A volume of OpenStack."""

    __required__ = ("volumeID",)

    volumeID: str = ""
    """Id of the volume."""
    fsType: str = ""
    """File system to mount."""
    readOnly: bool = False
    """Whether mounts are read-only."""
    secretRef: LocalObjectReference | None = None
    """Secret with the connection's parameters."""


class FCVolumeSource(Model):
    """A Fibre Channel volume."""

    targetWWNs: Sequence[str] = ()
    """World wide names of the target."""
    lun: Int32 | None = None
    """Number of the unit at the target."""
    fsType: str = ""
    """File system to mount."""
    readOnly: bool = False
    """Whether mounts are read-only."""
    wwids: Sequence[str] = ()
    """World wide ids of the volume, in place of targetWWNs and lun."""


class FlexVolumeSource(Model):
    """A volume of an exec-based driver on the node."""

    __required__ = ("driver",)

    driver: str = ""
    """Name of the driver."""
    fsType: str = ""
    """File system to mount; its default is the driver's."""
    secretRef: LocalObjectReference | None = None
    """Secret handed to the driver."""
    readOnly: bool = False
    """Whether mounts are read-only."""
    options: Mapping[str, str] = {}
    """Further options for the driver."""


class FlockerVolumeSource(Model):
    """A Flocker dataset."""

    datasetName: str = ""
    """Name of the dataset; prefer the uuid."""
    datasetUUID: str = ""
    """Uuid of the dataset."""


class GCEPersistentDiskVolumeSource(Model):
    """A disk of Google's cloud."""

    __required__ = ("pdName",)

    pdName: str = ""
    """Name of the disk."""
    fsType: str = ""
    """File system to mount."""
    partition: Int32 = 0
    """Partition to mount; 0 mounts the whole."""
    readOnly: bool = False
    """Whether mounts are read-only."""


class GlusterfsVolumeSource(Model):
    """A GlusterFS volume."""

    __required__ = ("endpoints", "path")

    endpoints: str = ""
    """Endpoints object that lists the servers."""
    path: str = ""
    """Name of the volume."""
    readOnly: bool = False
    """Whether mounts are read-only."""


class ISCSIVolumeSource(Model):
    """An iSCSI disk."""

    __required__ = ("targetPortal", "iqn", "lun")

    targetPortal: str = ""
    """Address of the target, with its port unless that is 860 or 3260."""
    iqn: str = ""
    """Qualified name of the target."""
    lun: Int32 = field(default_factory=int)
    """Number of the unit at the target."""
    iscsiInterface: str = ""
    """Interface to use. Default default."""
    fsType: str = ""
    """File system to mount."""
    readOnly: bool = False
    """Whether mounts are read-only."""
    portals: Sequence[str] = ()
    """Further addresses of the target."""
    chapAuthDiscovery: bool = False
    """Whether discovery authenticates with CHAP."""
    chapAuthSession: bool = False
    """Whether sessions authenticate with CHAP."""
    secretRef: LocalObjectReference | None = None
    """Secret with the CHAP credentials."""
    initiatorName: str | None = None
    """Qualified name of this side."""


class NFSVolumeSource(Model):
    """A directory of an NFS server."""

    __required__ = ("server", "path")

    server: str = ""
    """Name or address of the server."""
    path: str = ""
    """Directory that the server exports."""
    readOnly: bool = False
    """Whether mounts are read-only."""


class PhotonPersistentDiskVolumeSource(Model):
    """A disk of Photon Controller."""

    __required__ = ("pdID",)

    pdID: str = ""
    """Id of the disk."""
    fsType: str = ""
    """File system to mount."""


class PortworxVolumeSource(Model):
    """A Portworx volume."""

    __required__ = ("volumeID",)

    volumeID: str = ""
    """Id of the volume."""
    fsType: str = ""
    """File system to mount."""
    readOnly: bool = False
    """Whether mounts are read-only."""


class QuobyteVolumeSource(Model):
    """A Quobyte volume."""

    __required__ = ("registry", "volume")

    registry: str = ""
    """Addresses of the registries, separated by commas."""
    volume: str = ""
    """Name of the volume."""
    readOnly: bool = False
    """Whether mounts are read-only."""
    user: str = ""
    """User to map access to."""
    group: str = ""
    """Group to map access to."""
    tenant: str = ""
    """Tenant who owns the volume."""


class RBDVolumeSource(Model):
    """A Rados block device."""

    __required__ = ("monitors", "image")

    monitors: Sequence[str] = ()
    """Addresses of the Ceph monitors."""
    image: str = ""
    """Name of the image."""
    fsType: str = ""
    """File system to mount."""
    pool: str = ""
    """Pool of the image. Default rbd."""
    user: str = ""
    """User to connect as. Default admin."""
    keyring: str = ""
    """File on the node with the user's keyring. Default /etc/ceph/keyring."""
    secretRef: LocalObjectReference | None = None
    """Secret with the user's keyring; wins over keyring."""
    readOnly: bool = False
    """Whether mounts are read-only."""


class ScaleIOVolumeSource(Model):
    """A ScaleIO volume."""

    __required__ = ("gateway", "system", "secretRef")

    gateway: str = ""
    """Address of the gateway."""
    system: str = ""
    """Name of the storage system."""
    secretRef: LocalObjectReference | None = None
    """Secret with the user's credentials."""
    sslEnabled: bool = False
    """Whether to talk to the gateway over TLS."""
    protectionDomain: str = ""
    """Protection domain of the storage."""
    storagePool: str = ""
    """Pool of the volume."""
    storageMode: str = ""
    """ThickProvisioned or ThinProvisioned. Default ThinProvisioned."""
    volumeName: str = ""
    """Name of a volume that exists already."""
    fsType: str = ""
    """File system to mount. Default xfs."""
    readOnly: bool = False
    """Whether mounts are read-only."""


class StorageOSVolumeSource(Model):
    """A StorageOS volume."""

    volumeName: str = ""
    """Name of the volume."""
    volumeNamespace: str = ""
    """StorageOS namespace of the volume, if not the pod's."""
    fsType: str = ""
    """File system to mount."""
    readOnly: bool = False
    """Whether mounts are read-only."""
    secretRef: LocalObjectReference | None = None
    """Secret with the API's credentials."""


class VsphereVirtualDiskVolumeSource(Model):
    """A disk of vSphere."""

    __required__ = ("volumePath",)

    volumePath: str = ""
    """Path of the disk."""
    fsType: str = ""
    """File system to mount."""
    storagePolicyName: str = ""
    """Name of the storage policy."""
    storagePolicyID: str = ""
    """Id of the storage policy."""
