"""Volume sources whose files are made from API objects: secrets, config maps, the pod itself."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from kedge.api.core_v1.references import ObjectFieldSelector, ResourceFieldSelector
from kedge.api.model import EXTENSION, Int32, LabelSelector, Model, spelling_of


class KeyToPath(Model):
    """One key and the file it becomes."""

    __required__ = ("key", "path")

    key: str = ""
    """The key."""
    path: str = ""
    """Path of the file, relative to the volume's root."""
    mode: Int32 | None = None
    """Permissions of the file, if not the volume's default."""


class SecretVolumeSource(Model):
    """Files made from a secret."""

    secretName: str = ""
    """Name of the secret."""
    items: Sequence[KeyToPath] = ()
    """Keys to show and where; none means every key under its own name."""
    defaultMode: Int32 | None = None
    """Permissions of files. Default 0644."""
    optional: bool | None = None
    """Whether the secret or its keys may be missing."""


class ConfigMapVolumeSource(Model):
    """Files made from a config map."""

    name: str = ""
    """Name of the config map."""
    items: Sequence[KeyToPath] = ()
    """Keys to show and where; none means every key under its own name."""
    defaultMode: Int32 | None = None
    """Permissions of files. Default 0644."""
    optional: bool | None = None
    """Whether the config map or its keys may be missing."""


class DownwardAPIVolumeFile(Model):
    """A file made from a field of the pod."""

    __required__ = ("path",)

    path: str = ""
    """Path of the file, relative to the volume's root."""
    fieldRef: ObjectFieldSelector | None = None
    """The field of the pod."""
    resourceFieldRef: ResourceFieldSelector | None = None
    """The request or limit of a container."""
    mode: Int32 | None = None
    """Permissions of the file, if not the volume's default."""
    containerFieldRef: Annotated[ObjectFieldSelector | None, EXTENSION] = None
    """Kedge's own: a request or limit of the container that the path begins with."""
    containerfieldRef: Annotated[ObjectFieldSelector | None, spelling_of("containerFieldRef")] = (
        None
    )
    """Kedge's own: another spelling of containerFieldRef."""


class DownwardAPIVolumeSource(Model):
    """Files made from fields of the pod."""

    items: Sequence[DownwardAPIVolumeFile] = ()
    """The files."""
    defaultMode: Int32 | None = None
    """Permissions of files. Default 0644."""


class SecretProjection(Model):
    """A secret as part of a projected volume."""

    name: str = ""
    """Name of the secret."""
    items: Sequence[KeyToPath] = ()
    """Keys to show and where; none means every key under its own name."""
    optional: bool | None = None
    """Whether the secret or its keys may be missing."""


class ConfigMapProjection(Model):
    """A config map as part of a projected volume."""

    name: str = ""
    """Name of the config map."""
    items: Sequence[KeyToPath] = ()
    """Keys to show and where; none means every key under its own name."""
    optional: bool | None = None
    """Whether the config map or its keys may be missing."""


class DownwardAPIProjection(Model):
    """Fields of the pod as part of a projected volume."""

    items: Sequence[DownwardAPIVolumeFile] = ()
    """The files."""


class ServiceAccountTokenProjection(Model):
    """A token of the pod's service account, renewed in time."""

    __required__ = ("path",)

    audience: str = ""
    """The audience of the token; the API server by default."""
    expirationSeconds: int | None = None
    """How long the token lasts. Default 3600, at least 600."""
    path: str = ""
    """Path of the file, relative to the volume's root."""


class ClusterTrustBundleProjection(Model):
    """Trust anchors from ClusterTrustBundles."""

    __required__ = ("path",)

    name: str | None = None
    """One bundle by its name."""
    signerName: str | None = None
    """All bundles of this signer that the selector takes."""
    labelSelector: LabelSelector | None = None
    """Selects bundles of the signer."""
    optional: bool | None = None
    """Whether bundles may be missing."""
    path: str = ""
    """Path of the file, relative to the volume's root."""


class PodCertificateProjection(Model):
    """A private key and a certificate issued to the pod, renewed in time."""

    __required__ = ("signerName", "keyType")

    signerName: str = ""
    """The signer of the certificate."""
    keyType: str = ""
    """Type of the key, for example ED25519 or RSA3072."""
    maxExpirationSeconds: Int32 | None = None
    """Longest life of the certificate that is accepted."""
    credentialBundlePath: str = ""
    """File that gets the key and the certificate chain together."""
    keyPath: str = ""
    """File that gets the key alone."""
    certificateChainPath: str = ""
    """File that gets the certificate chain alone."""
    userAnnotations: Mapping[str, str] = {}
    """Further annotations for the signer."""


class VolumeProjection(Model):
    """One part of a projected volume; exactly one field is set."""

    secret: SecretProjection | None = None
    """A secret."""
    downwardAPI: DownwardAPIProjection | None = None
    """Fields of the pod."""
    configMap: ConfigMapProjection | None = None
    """A config map."""
    serviceAccountToken: ServiceAccountTokenProjection | None = None
    """A token of the service account."""
    clusterTrustBundle: ClusterTrustBundleProjection | None = None
    """Trust anchors."""
    podCertificate: PodCertificateProjection | None = None
    """A certificate of the pod."""


class ProjectedVolumeSource(Model):
    """Several sources in one directory."""

    sources: Sequence[VolumeProjection] = ()
    """The parts."""
    defaultMode: Int32 | None = None
    """Permissions of files. Default 0644."""
