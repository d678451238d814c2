"""Rules for volume sources that reach storage over the network or through a cloud."""

import re
from collections.abc import Iterator
from typing import Final

from kedge.api import rules
from kedge.api.core_v1.references import LocalObjectReference
from kedge.api.core_v1.volume import storage
from kedge.machinery import names
from kedge.machinery.errors import FieldError

_ISCSI_NAMES: Final = {
    "iqn": re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.([a-zA-Z0-9-.]+)(:[^,;*&$|\s]+)\Z").search,
    "eui": re.compile(r"eui.[a-zA-Z0-9]{16}").fullmatch,
    "naa": re.compile(r"naa.[a-zA-Z0-9]{32}").fullmatch,
}
_HOST_PORT: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*):[^:]*").fullmatch
_PAIRS: Final = "must be a host:port pair or multiple pairs separated by commas"
_MANAGED_DISK: Final = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/"
    "{disk-id}"
)
_BLOB_DISK: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"


def required(source: object, *fields: str) -> Iterator[FieldError]:
    """Fields that may not be left out."""
    for name in fields:
        if not getattr(source, name):
            yield FieldError.required(name)


def partition(number: int) -> Iterator[FieldError]:
    # The message names another range than the check, as upstream: 0 means the whole disk.
    if not 0 <= number <= 255:
        yield FieldError.invalid("partition", number, "must be between 1 and 255, inclusive")


def aws_disk(source: storage.AWSElasticBlockStoreVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "volumeID")
    yield from partition(source.partition)


def azure_disk(source: storage.AzureDiskVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "diskName", "diskURI")
    modes, kinds = ("None", "ReadOnly", "ReadWrite"), ("Dedicated", "Managed", "Shared")
    if source.cachingMode is not None and source.cachingMode not in modes:
        yield FieldError.not_supported("cachingMode", source.cachingMode, modes)
    if source.kind is None:
        return
    if source.kind not in kinds:
        yield FieldError.not_supported("kind", source.kind, kinds)
    managed = source.kind == "Managed"
    if not source.diskURI.startswith("/subscriptions/" if managed else "https://"):
        pattern = _MANAGED_DISK if managed else _BLOB_DISK
        yield FieldError.not_supported("diskURI", source.diskURI, [pattern])


def azure_file(source: storage.AzureFileVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "secretName", "shareName")


def cephfs(source: storage.CephFSVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "monitors")


def cinder(source: storage.CinderVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "volumeID")
    yield from _secret(source.secretRef)


def fibre_channel(source: storage.FCVolumeSource) -> Iterator[FieldError]:
    if not source.targetWWNs and not source.wwids:
        why = "must specify either targetWWNs or wwids, but not both"
        yield FieldError.required("targetWWNs", why)
    if source.targetWWNs and source.wwids:
        why = "targetWWNs and wwids can not be specified simultaneously"
        yield FieldError.invalid("targetWWNs", source.targetWWNs, why)
    if source.targetWWNs:
        if source.lun is None:
            yield FieldError.required("lun", "lun is required if targetWWNs is specified")
        else:
            yield from rules.problems("lun", source.lun, names.in_range(source.lun, 0, 255))


def flex(source: storage.FlexVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "driver")
    for key in source.options:
        space = "." + key.partition("/")[0].lower()
        if space.endswith((".kubernetes.io", ".k8s.io")):
            why = "kubernetes.io and k8s.io namespaces are reserved"
            yield FieldError.invalid(f"options[{key}]", key, why)


def flocker(source: storage.FlockerVolumeSource) -> Iterator[FieldError]:
    if not source.datasetName and not source.datasetUUID:
        yield FieldError.required("", "one of datasetName and datasetUUID is required")
    if source.datasetName and source.datasetUUID:
        why = "datasetName and datasetUUID can not be specified simultaneously"
        yield FieldError.invalid("", "resource", why)
    if "/" in source.datasetName:
        yield FieldError.invalid("datasetName", source.datasetName, "must not contain '/'")


def gce_disk(source: storage.GCEPersistentDiskVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "pdName")
    yield from partition(source.partition)


def glusterfs(source: storage.GlusterfsVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "endpoints", "path")


def iscsi(source: storage.ISCSIVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "targetPortal", "iqn")
    if source.iqn:
        yield from _iscsi_name("iqn", source.iqn)
    yield from rules.problems("lun", source.lun, names.in_range(source.lun, 0, 255))
    if (source.chapAuthDiscovery or source.chapAuthSession) and source.secretRef is None:
        yield FieldError.required("secretRef")
    if source.initiatorName is not None:
        yield from _iscsi_name("initiatorname", source.initiatorName)


def _iscsi_name(field: str, name: str) -> Iterator[FieldError]:
    fits = _ISCSI_NAMES.get(name[:3])
    if fits is None:
        why = "must be valid format starting with iqn, eui, or naa"
        yield FieldError.invalid(field, name, why)
    elif not fits(name):
        yield FieldError.invalid(field, name, "must be valid format")


def is_iscsi_name(name: str) -> bool:
    """Whether this can be the name of a target or an initiator."""
    fits = _ISCSI_NAMES.get(name[:3])
    return fits is not None and bool(fits(name))


def nfs(source: storage.NFSVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "server", "path")
    if not source.path.startswith("/"):
        yield FieldError.invalid("path", source.path, "must be an absolute path")


def photon_disk(source: storage.PhotonPersistentDiskVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "pdID")


def portworx(source: storage.PortworxVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "volumeID")


def quobyte(source: storage.QuobyteVolumeSource) -> Iterator[FieldError]:
    if not source.registry:
        yield FieldError.required("registry", _PAIRS)
    elif len(source.tenant) >= 65:
        why = "must be a UUID and may not exceed a length of 64 characters"
        yield FieldError.required("tenant", why)
    else:
        for pair in source.registry.split(","):
            if not _HOST_PORT(pair):
                yield FieldError.invalid("registry", source.registry, _PAIRS)
    yield from required(source, "volume")


def rbd(source: storage.RBDVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "monitors", "image")


def scale_io(source: storage.ScaleIOVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "gateway", "system", "volumeName")


def storage_os(source: storage.StorageOSVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "volumeName")
    for name in ("volumeName", "volumeNamespace"):
        if value := getattr(source, name):
            yield from rules.problems(name, value, names.dns_label(value))
    yield from _secret(source.secretRef)


def vsphere(source: storage.VsphereVirtualDiskVolumeSource) -> Iterator[FieldError]:
    yield from required(source, "volumePath")


def _secret(ref: LocalObjectReference | None) -> Iterator[FieldError]:
    if ref is not None and not ref.name:
        yield FieldError.required("secretRef.name")
