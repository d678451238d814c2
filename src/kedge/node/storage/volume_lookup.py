"""Finds the volume behind a claim, an ephemeral volume or an inline volume of a pod."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kedge.api.core_v1 import persistent_volume_claim
from kedge.api.core_v1.node_selection import compiled
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.persistent_volume_claim import BOUND, PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.storage import NFSVolumeSource
from kedge.api.core_v1.volume.volume import Volume
from kedge.api.ineffective_fields import UNSUPPORTED_VOLUMES
from kedge.api.storage_v1.local_volumes import LOCAL_DATA
from kedge.client.client import Client
from kedge.machinery.errors import StatusError
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.storage.nfs_mount import NFS_DRIVER
from kedge.node.storage.volume_driver import DriverVolume
from kedge.node.storage.volume_objects import (
    VOLUME_VIEW,
    VOLUMES,
    CsiPart,
    HostPathPart,
    LocalPart,
    MountableVolume,
    NfsPart,
    PersistentVolumePart,
    SecretPlace,
)


class FoundVolume(NamedTuple):
    """A volume of a pod, with the source that it comes from."""

    name: str
    """The PersistentVolume; the name in the pod for an inline volume."""
    source: CsiPart | HostPathPart | LocalPart | NfsPart
    spec: PersistentVolumePart
    claim: str = ""
    is_read_only: bool = False
    is_inline: bool = False
    made_on: str = ""
    """The node that made the data of a local volume."""
    claim_uid: str = ""

    @property
    def is_block(self) -> bool:
        return self.spec.volume_mode == "Block"


class VolumeLookup:
    """Reads claims and volumes with the rights of the node."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def find(self, pod: Pod, volume: Volume, node: Node) -> FoundVolume:
        """Return the volume. Raises VolumeFailure with the kubelet's text."""
        if volume.csi is not None or volume.nfs is not None:
            return inline_volume(volume)
        source = volume.persistentVolumeClaim
        name = source.claimName if source is not None else f"{pod.metadata.name}-{volume.name}"
        place = f"{pod.metadata.namespace}/{name}"
        try:
            claim = await self._claim(pod, name)
            _check_claim(claim, pod, is_made=source is None)
        except VolumeFailure as error:
            raise _unprocessed(volume, f"error processing PVC {place}: {error}") from error
        found = await self._volume(claim, volume, place)
        await self._check_source(found, volume)
        is_read_only = bool(source is not None and source.readOnly)
        bound = bound_volume(name, found, node, is_read_only=is_read_only)
        return bound._replace(claim_uid=claim.metadata.uid)

    async def _claim(self, pod: Pod, name: str) -> PersistentVolumeClaim:
        try:
            return await self._client.get(
                persistent_volume_claim.RESOURCE, name, pod.metadata.namespace
            )
        except StatusError as error:
            text = f"failed to fetch PVC from API server: {error.message}"
            raise VolumeFailure("FailedMount", text) from error

    async def _volume(
        self, claim: PersistentVolumeClaim, volume: Volume, place: str
    ) -> MountableVolume:
        try:
            found = await self._client.get_as(VOLUME_VIEW, claim.spec.volumeName)
        except StatusError as error:
            text = f"error processing PVC {place}: failed to get PV: {error.message}"
            raise _unprocessed(volume, text) from error
        owner = found.spec.claim_ref
        if owner is None or owner.uid != claim.metadata.uid:
            raise _unprocessed(
                volume,
                f"error processing PVC {place}: PersistentVolume {claim.spec.volumeName} is bound"
                " to another claim",
            )
        return found

    async def _check_source(self, found: MountableVolume, volume: Volume) -> None:
        """Refuse a volume of a type that nodes do not mount, and name the type."""
        if mount_source(found.spec) is not None:
            return
        name = found.metadata.name
        try:
            spec = (await self._client.get(VOLUMES, name)).content.get("spec", {})
        except StatusError as error:
            raise _unprocessed(volume, f"failed to get PV {name}: {error.message}") from error
        kind = next((each for each in UNSUPPORTED_VOLUMES if each in spec), "unknown")
        raise _unprocessed(
            volume,
            f"no volume plugin matched: kedge does not mount volumes of the type {kind}, such as"
            f" {name}; a CSI driver may",
        )


def mount_source(
    spec: PersistentVolumePart,
) -> CsiPart | HostPathPart | LocalPart | NfsPart | None:
    """Return what the agent can mount."""
    return spec.csi or spec.host_path or spec.local or spec.nfs


def inline_volume(volume: Volume) -> FoundVolume:
    """Return the volume of a pod that names its driver itself."""
    if volume.nfs is not None:
        return _inline_export(volume.name, volume.nfs)
    source = volume.csi
    assert source is not None
    secret = source.nodePublishSecretRef
    part = CsiPart(
        driver=source.driver,
        read_only=bool(source.readOnly),
        fs_type=source.fsType or "",
        volume_attributes=source.volumeAttributes,
        node_publish_secret_ref=SecretPlace(name=secret.name) if secret is not None else None,
    )
    spec = PersistentVolumePart(csi=part, access_modes=("ReadWriteOnce",))
    return FoundVolume(volume.name, part, spec, is_read_only=bool(source.readOnly), is_inline=True)


def _inline_export(name: str, source: NFSVolumeSource) -> FoundVolume:
    part = NfsPart(server=source.server, path=source.path, read_only=source.readOnly)
    spec = PersistentVolumePart(nfs=part, access_modes=("ReadWriteMany",))
    return FoundVolume(name, part, spec, is_read_only=source.readOnly, is_inline=True)


def inline_handle(uid: str, volume: str) -> str:
    """Return the handle of an inline volume, as the kubelet makes it."""
    return f"csi-{hashlib.sha256(f'{uid}{volume}'.encode()).hexdigest()}"


def bound_volume(
    claim: str, found: MountableVolume, node: Node, *, is_read_only: bool
) -> FoundVolume:
    """Return the volume of a bound claim. Raises VolumeFailure."""
    spec, name = found.spec, found.metadata.name
    affinity = spec.node_affinity.required if spec.node_affinity is not None else None
    if affinity is not None:
        terms = [compiled(term) for term in affinity.nodeSelectorTerms]
        labels, here = node.metadata.labels, node.metadata.name
        if not any(term is not None and term(here, labels) for term in terms):
            raise VolumeFailure(
                "FailedMount",
                f'MountVolume.NodeAffinity check failed for volume "{name}" : no matching'
                " NodeSelectorTerms",
            )
    source = mount_source(spec)
    assert source is not None
    is_read_only = is_read_only or bool(getattr(source, "read_only", False))
    made_on = found.metadata.annotations.get(LOCAL_DATA, "")
    return FoundVolume(name, source, spec, claim, is_read_only, made_on=made_on)


def driver_volume(found: FoundVolume, uid: str) -> DriverVolume:
    """Return a volume as its driver knows it."""
    source, spec = found.source, found.spec
    if isinstance(source, NfsPart):
        attributes = {"server": source.server, "path": source.path}
        source = CsiPart(NFS_DRIVER, found.name, volume_attributes=attributes)
    assert isinstance(source, CsiPart)
    return DriverVolume(
        source.driver,
        inline_handle(uid, found.name) if found.is_inline else source.volume_handle,
        found.name,
        attributes=source.volume_attributes,
        fs_type=source.fs_type,
        mount_options=spec.mount_options,
        access_modes=spec.access_modes,
        size=spec.size,
        is_block=found.is_block,
        is_read_only=found.is_read_only,
        is_inline=found.is_inline,
        made_on=found.made_on,
    )


def check_mode(pod: Pod, volume: Volume, found: FoundVolume) -> None:
    """Refuse a volume of one mode that a container uses as one of the other."""
    spec = pod.spec
    for container in (*spec.initContainers, *spec.containers, *spec.ephemeralContainers):
        mounted: Mapping[str, Sequence[str]] = {
            "volumeMounts": [each.name for each in container.volumeMounts],
            "volumeDevices": [each.name for each in container.volumeDevices],
        }
        wrong = "volumeMounts" if found.is_block else "volumeDevices"
        if volume.name in mounted[wrong]:
            mode = found.spec.volume_mode
            raise VolumeFailure(
                "FailedMount",
                f"Unable to attach or mount volumes: unmounted volumes=[{volume.name}], unattached"
                f" volumes=[], failed to process volumes=[{volume.name}]: volume {volume.name} has"
                f" volumeMode {mode}, but is specified in {wrong}",
            )


def _check_claim(claim: PersistentVolumeClaim, pod: Pod, *, is_made: bool) -> None:
    owners = claim.metadata.ownerReferences
    if is_made and not any(each.uid == pod.metadata.uid and each.controller for each in owners):
        where, own = claim.metadata, pod.metadata
        text = (
            f"PVC {where.namespace}/{where.name} was not created for pod"
            f" {own.namespace}/{own.name} (pod is not owner)"
        )
        raise VolumeFailure("FailedMount", text)
    if claim.metadata.deletionTimestamp:
        raise VolumeFailure("FailedMount", "PVC is being deleted")
    if claim.status.phase != BOUND:
        raise VolumeFailure("FailedMount", "PVC is not bound")
    if not claim.spec.volumeName:
        raise VolumeFailure("FailedMount", "PVC has empty pvc.Spec.VolumeName")


def _unprocessed(volume: Volume, reason: str) -> VolumeFailure:
    name = volume.name
    return VolumeFailure(
        "FailedMount",
        f"Unable to attach or mount volumes: unmounted volumes=[{name}], unattached volumes=[],"
        f" failed to process volumes=[{name}]: {reason}",
    )
