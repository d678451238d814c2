"""Defaults of volumes."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from kedge.api.core_v1 import image
from kedge.api.core_v1.claim import PersistentVolumeClaimTemplate, VolumeResourceRequirements
from kedge.api.core_v1.references import ObjectFieldSelector
from kedge.api.core_v1.resource_defaults import rounded
from kedge.api.core_v1.volume.projection import (
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    ProjectedVolumeSource,
    VolumeProjection,
)
from kedge.api.core_v1.volume.storage import (
    AzureDiskVolumeSource,
    ISCSIVolumeSource,
    RBDVolumeSource,
    ScaleIOVolumeSource,
)
from kedge.api.core_v1.volume.volume import (
    EmptyDirVolumeSource,
    EphemeralVolumeSource,
    HostPathVolumeSource,
    ImageVolumeSource,
    Volume,
)

FILE_MODE = 0o644
_HOUR = 3600


def default_volume(volume: Volume) -> Volume:
    """The volume with its source completed; one without a source becomes an empty directory."""
    for source in Volume.__struct_fields__[1:]:
        given = getattr(volume, source)
        if given is not None:
            complete = _COMPLETE.get(source)
            return volume if complete is None else replace(volume, **{source: complete(given)})
    return replace(volume, emptyDir=EmptyDirVolumeSource())


def default_field(field: ObjectFieldSelector) -> ObjectFieldSelector:
    return field if field.apiVersion else replace(field, apiVersion="v1")


def default_claim(template: PersistentVolumeClaimTemplate) -> PersistentVolumeClaimTemplate:
    """The claim a pod or a workload makes, its amounts rounded and its mode filled in."""
    spec = template.spec
    resources = VolumeResourceRequirements(
        limits=rounded(spec.resources.limits), requests=rounded(spec.resources.requests)
    )
    mode = "Filesystem" if spec.volumeMode is None else spec.volumeMode
    return replace(template, spec=replace(spec, resources=resources, volumeMode=mode))


def _with_mode(source: Any) -> Any:
    return replace(source, defaultMode=FILE_MODE) if source.defaultMode is None else source


def _host_path(source: HostPathVolumeSource) -> HostPathVolumeSource:
    return replace(source, type="") if source.type is None else source


def _files(files: Sequence[DownwardAPIVolumeFile]) -> Sequence[DownwardAPIVolumeFile]:
    return [_file(file) for file in files] or ()


def _file(file: DownwardAPIVolumeFile) -> DownwardAPIVolumeFile:
    fields = ("fieldRef", "containerFieldRef", "containerfieldRef")
    given = {name: ref for name in fields if (ref := getattr(file, name)) is not None}
    return replace(file, **{name: default_field(ref) for name, ref in given.items()})


def _downward(source: DownwardAPIVolumeSource) -> DownwardAPIVolumeSource:
    complete: DownwardAPIVolumeSource = _with_mode(source)
    return replace(complete, items=_files(source.items))


def _projected(source: ProjectedVolumeSource) -> ProjectedVolumeSource:
    complete: ProjectedVolumeSource = _with_mode(source)
    return replace(complete, sources=[_part(part) for part in source.sources] or ())


def _part(part: VolumeProjection) -> VolumeProjection:
    if part.clusterTrustBundle is not None or part.podCertificate is not None:
        # Their feature gates are off upstream.
        part = replace(part, clusterTrustBundle=None, podCertificate=None)
    if part.downwardAPI is not None:
        files = _files(part.downwardAPI.items)
        part = replace(part, downwardAPI=replace(part.downwardAPI, items=files))
    token = part.serviceAccountToken
    if token is not None and token.expirationSeconds is None:
        part = replace(part, serviceAccountToken=replace(token, expirationSeconds=_HOUR))
    return part


def _image(source: ImageVolumeSource) -> ImageVolumeSource:
    if source.pullPolicy:
        return source
    return replace(source, pullPolicy=image.pull_policy(source.reference))


def _ephemeral(source: EphemeralVolumeSource) -> EphemeralVolumeSource:
    template = source.volumeClaimTemplate
    return (
        source
        if template is None
        else EphemeralVolumeSource(volumeClaimTemplate=default_claim(template))
    )


def _iscsi(source: ISCSIVolumeSource) -> ISCSIVolumeSource:
    return source if source.iscsiInterface else replace(source, iscsiInterface="default")


def _rbd(source: RBDVolumeSource) -> RBDVolumeSource:
    return replace(
        source,
        pool=source.pool or "rbd",
        user=source.user or "admin",
        keyring=source.keyring or "/etc/ceph/keyring",
    )


def _scale_io(source: ScaleIOVolumeSource) -> ScaleIOVolumeSource:
    return replace(
        source,
        storageMode=source.storageMode or "ThinProvisioned",
        fsType=source.fsType or "xfs",
    )


def _azure_disk(source: AzureDiskVolumeSource) -> AzureDiskVolumeSource:
    defaults = {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"}
    absent = {name: value for name, value in defaults.items() if getattr(source, name) is None}
    return replace(source, **absent)


_COMPLETE = {
    "hostPath": _host_path,
    "secret": _with_mode,
    "configMap": _with_mode,
    "downwardAPI": _downward,
    "projected": _projected,
    "image": _image,
    "ephemeral": _ephemeral,
    "iscsi": _iscsi,
    "rbd": _rbd,
    "scaleIO": _scale_io,
    "azureDisk": _azure_disk,
}
