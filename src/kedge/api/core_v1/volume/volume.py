"""Volume: a directory or device that the containers of a pod can mount."""

from collections.abc import Mapping

from kedge.api.core_v1.claim import PersistentVolumeClaimTemplate
from kedge.api.core_v1.references import LocalObjectReference
from kedge.api.core_v1.volume.projection import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeSource,
    ProjectedVolumeSource,
    SecretVolumeSource,
)
from kedge.api.core_v1.volume.storage import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CephFSVolumeSource,
    CinderVolumeSource,
    FCVolumeSource,
    FlexVolumeSource,
    FlockerVolumeSource,
    GCEPersistentDiskVolumeSource,
    GlusterfsVolumeSource,
    ISCSIVolumeSource,
    NFSVolumeSource,
    PhotonPersistentDiskVolumeSource,
    PortworxVolumeSource,
    QuobyteVolumeSource,
    RBDVolumeSource,
    ScaleIOVolumeSource,
    StorageOSVolumeSource,
    VsphereVirtualDiskVolumeSource,
)
from kedge.api.model import Model
from kedge.machinery.quantity import Quantity


class HostPathVolumeSource(Model):
    """A file or directory of the node."""

    __required__ = ("path",)

    path: str = ""
    """Where it is on the node."""
    type: str | None = None
    """The type of the path: DirectoryOrCreate, Directory, FileOrCreate, File, Socket,
    CharDevice, BlockDevice."""


class EmptyDirVolumeSource(Model):
    """An empty directory that lives as long as the pod."""

    medium: str = ""
    """The medium: empty for the node's disk, Memory, or huge pages."""
    sizeLimit: Quantity | None = None
    """How much it may hold."""


class GitRepoVolumeSource(Model):
    """A clone of a git repository. Gone; use an init container."""

    __required__ = ("repository",)

    repository: str = ""
    """Address of the repository."""
    revision: str = ""
    """Commit to check out."""
    directory: str = ""
    """Where to put it; may not climb out of the volume."""


class PersistentVolumeClaimVolumeSource(Model):
    """A volume that a claim in the same namespace is bound to."""

    __required__ = ("claimName",)

    claimName: str = ""
    """Name of the claim."""
    readOnly: bool = False
    """Whether all mounts are read-only."""


class CSIVolumeSource(Model):
    """A short-lived volume made by a CSI driver."""

    __required__ = ("driver",)

    driver: str = ""
    """Name of the driver."""
    readOnly: bool | None = None
    """Whether mounts are read-only. Default false."""
    fsType: str | None = None
    """File system to mount; its default is the driver's."""
    volumeAttributes: Mapping[str, str] = {}
    """Properties for the driver."""
    nodePublishSecretRef: LocalObjectReference | None = None
    """Secret handed to the driver."""


class EphemeralVolumeSource(Model):
    """A volume of a claim that lives as long as the pod."""

    volumeClaimTemplate: PersistentVolumeClaimTemplate | None = None
    """The claim to make; it is named after the pod and the volume."""


class ImageVolumeSource(Model):
    """The files of an image or other OCI artifact."""

    reference: str = ""
    """The image."""
    pullPolicy: str = ""
    """When it is pulled: Always, Never or IfNotPresent."""


class Volume(Model):
    """A named volume of a pod; exactly one source is set."""

    __required__ = ("name",)

    name: str = ""
    """Name of the volume, unique in the pod."""
    hostPath: HostPathVolumeSource | None = None
    """A file or directory of the node."""
    emptyDir: EmptyDirVolumeSource | None = None
    """An empty directory. The default for a volume without a source."""
    gcePersistentDisk: GCEPersistentDiskVolumeSource | None = None
    """A disk of Google's cloud."""
    awsElasticBlockStore: AWSElasticBlockStoreVolumeSource | None = None
    """A disk of AWS."""
    gitRepo: GitRepoVolumeSource | None = None
    """A clone of a git repository."""
    secret: SecretVolumeSource | None = None
    """Files made from a secret."""
    nfs: NFSVolumeSource | None = None
    """A directory of an NFS server."""
    iscsi: ISCSIVolumeSource | None = None
    """An iSCSI disk."""
    glusterfs: GlusterfsVolumeSource | None = None
    """A GlusterFS volume."""
    persistentVolumeClaim: PersistentVolumeClaimVolumeSource | None = None
    """A volume that a claim is bound to."""
    rbd: RBDVolumeSource | None = None
    """A Rados block device."""
    flexVolume: FlexVolumeSource | None = None
    """A volume of an exec-based driver."""
    cinder: CinderVolumeSource | None = None
    """A volume of OpenStack."""
    cephfs: CephFSVolumeSource | None = None
    """A directory of a Ceph file system."""
    flocker: FlockerVolumeSource | None = None
    """A Flocker dataset."""
    downwardAPI: DownwardAPIVolumeSource | None = None
    """Files made from fields of the pod."""
    fc: FCVolumeSource | None = None
    """A Fibre Channel volume."""
    azureFile: AzureFileVolumeSource | None = None
    """A file share of Azure."""
    configMap: ConfigMapVolumeSource | None = None
    """Files made from a config map."""
    vsphereVolume: VsphereVirtualDiskVolumeSource | None = None
    """A disk of vSphere."""
    quobyte: QuobyteVolumeSource | None = None
    """A Quobyte volume."""
    azureDisk: AzureDiskVolumeSource | None = None
    """A disk of Azure."""
    photonPersistentDisk: PhotonPersistentDiskVolumeSource | None = None
    """A disk of Photon Controller."""
    projected: ProjectedVolumeSource | None = None
    """Several sources in one directory."""
    portworxVolume: PortworxVolumeSource | None = None
    """A Portworx volume."""
    scaleIO: ScaleIOVolumeSource | None = None
    """A ScaleIO volume."""
    storageos: StorageOSVolumeSource | None = None
    """A StorageOS volume."""
    csi: CSIVolumeSource | None = None
    """A short-lived volume of a CSI driver."""
    ephemeral: EphemeralVolumeSource | None = None
    """A claim that lives as long as the pod."""
    image: ImageVolumeSource | None = None
    """The files of an image."""
