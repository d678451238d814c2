"""Validation of PersistentVolumes, and of the specs of inline volumes."""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kedge.api import rules
from kedge.api.builtin.content import listed, text, typed
from kedge.api.core_v1 import path_rules
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.pod.affinity import NodeSelector
from kedge.api.core_v1.pod.affinity_validation import validate_node_selector
from kedge.api.core_v1.volume import storage, storage_validation
from kedge.api.core_v1.volume.validation import validate_driver_name, validate_host_path
from kedge.api.core_v1.volume.volume import HostPathVolumeSource
from kedge.api.internal_forms import internal_diff, internal_form
from kedge.api.model import Document
from kedge.machinery import names
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity

Errors = Iterator[FieldError]
Fields = Mapping[str, Any]

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_RECLAIM_POLICIES: Final = ("Delete", "Recycle", "Retain")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_INLINE: Final = "in the context of inline volumes"
_NOT_INLINE: Final = f"may not be specified {_INLINE}"
_MOUNT_OPTIONS: Final = "volume.beta.kubernetes.io/mount-options"
_CLASS: Final = "volumeAttributesClassName"
_ZERO: Final = Quantity.of("0")
_SECRETS: Final = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)
_WITH_MOUNT_OPTIONS: Final = (
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
)


def validate(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    name = obj.metadata.name
    yield from within("spec", _spec(spec, name))
    options = _MOUNT_OPTIONS in obj.metadata.annotations
    if options and not any(source in spec for source in _WITH_MOUNT_OPTIONS):
        why = "may not specify mount options for this volume type"
        yield FieldError.forbidden(f"metadata.annotations.{_MOUNT_OPTIONS}", why)


def _spec(spec: Fields, name: str) -> Errors:
    yield from _access_modes(listed(spec, "accessModes"))
    yield from _capacity(spec.get("capacity"))
    policy = spec.get("persistentVolumeReclaimPolicy")
    yield from rules.none_or_one_of("persistentVolumeReclaimPolicy", policy, _RECLAIM_POLICIES)
    yield from _node_affinity(spec)
    yield from _sources(spec, name)
    if class_name := text(spec, "storageClassName"):
        yield from rules.problems("storageClassName", class_name, names.dns_subdomain(class_name))
    mode = spec.get("volumeMode")
    if mode is not None and mode not in _VOLUME_MODES:
        yield FieldError.not_supported("volumeMode", mode, _VOLUME_MODES)
    yield from _attributes_class(spec)


def _attributes_class(spec: Fields) -> Errors:
    name = spec.get(_CLASS)
    if name is None:
        return
    if not name:
        yield FieldError.required(_CLASS, "an empty string is disallowed")
    else:
        yield from rules.problems(_CLASS, name, names.dns_subdomain(name))
    if "csi" not in spec:
        why = "has to be specified when using volumeAttributesClassName"
        yield FieldError.required("csi", why)


def validate_inline(spec: Fields, path: str) -> Errors:
    """Yield the errors of a volume that a VolumeAttachment describes itself."""
    return within(path, _inline(spec))


def _inline(spec: Fields) -> Errors:
    for field in ("claimRef", "capacity"):
        if spec.get(field) is not None and spec[field] != {}:
            yield FieldError.forbidden(field, _NOT_INLINE)
    if "csi" not in spec:
        yield FieldError.required("csi", f"has to be specified {_INLINE}")
    yield from _access_modes(listed(spec, "accessModes"))
    if text(spec, "persistentVolumeReclaimPolicy") not in ("", "Retain"):
        why = f"may only be Retain {_INLINE}"
        yield FieldError.forbidden("persistentVolumeReclaimPolicy", why)
    if "nodeAffinity" in spec:
        yield FieldError.forbidden("nodeAffinity", _NOT_INLINE)
    yield from _sources(spec, "", has_affinity=False)
    if spec.get("storageClassName"):
        yield FieldError.forbidden("storageClassName", _NOT_INLINE)
    if spec.get("volumeMode", "Filesystem") != "Filesystem":
        why = f"may not specify volumeMode other than Filesystem {_INLINE}"
        yield FieldError.forbidden("volumeMode", why)


def _access_modes(modes: Sequence[str]) -> Errors:
    path = "accessModes"
    if not modes:
        yield FieldError.required(path)
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield FieldError.not_supported(path, mode, _ACCESS_MODES)
    known = {mode for mode in modes if mode in _ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield FieldError.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _capacity(given: Mapping[str, str] | None) -> Errors:
    capacity = dict(sorted((given or {}).items()))
    if not capacity:
        yield FieldError.required("capacity")
    if set(capacity) != {"storage"}:
        shown = None if given is None else capacity
        yield FieldError.not_supported("capacity", shown, ("storage",))
    for name, amount in capacity.items():
        quantity = Quantity.of(amount)
        if quantity.value() < 0:
            why = "must be a valid resource quantity"
            yield FieldError.invalid(f"capacity[{name}]", quantity.value(), why)
        if quantity <= _ZERO:
            yield FieldError.invalid(f"capacity[{name}]", quantity, "must be greater than zero")


def _node_affinity(spec: Fields) -> Errors:
    affinity = spec.get("nodeAffinity")
    if affinity is None:
        return
    required = affinity.get("required")
    if required is None:
        why = "must specify required node constraints"
        yield FieldError.required("nodeAffinity.required", why)
    else:
        selector = typed(required, NodeSelector)
        yield from within("nodeAffinity.required", validate_node_selector(selector))


def _sources(spec: Fields, name: str, *, has_affinity: bool = True) -> Errors:
    given = [source for source in SOURCES if source in spec]
    for i, source in enumerate(given):
        path, check = SOURCES[source]
        # Upstream forgets to refuse a second source if it is this one.
        if i and source != "flexVolume":
            why = "may not specify more than 1 volume type"
            yield FieldError.forbidden(_BLAMED.get(source, source), why)
            continue
        yield from within(path, check(spec[source]))
        if source == "iscsi":
            yield from _iscsi_portal(spec[source], name)
        if source == "local" and not (has_affinity and "nodeAffinity" in spec):
            yield FieldError.required("nodeAffinity", "Local volume requires node affinity")
    if not given:
        yield FieldError.required("", "must specify a volume type")
    root = text(spec, "hostPath.path")
    policy = text(spec, "persistentVolumeReclaimPolicy")
    if root and _cleaned(root) == "/" and policy == "Recycle":
        why = "may not be 'recycle' for a hostPath mount of '/'"
        yield FieldError.forbidden("persistentVolumeReclaimPolicy", why)


def _cleaned(path: str) -> str:
    """Return a path without empty steps; POSIX gives two slashes at its start a meaning."""
    cleaned = posixpath.normpath(path)
    return "/" if cleaned == "//" else cleaned


def _iscsi_portal(source: Fields, name: str) -> Errors:
    portal = text(source, "targetPortal")
    if "initiatorName" in source and len(f"{name}:{portal}") > 64:
        why = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
            "if iscsi.initiatorName is specified."
        )
        yield FieldError.invalid("iscsi.targetportal", portal, why)


def _required(source: Fields, *fields: str) -> Errors:
    for name in fields:
        if not source.get(name):
            yield FieldError.required(name)


def _as(kind: type[Any], check: Callable[[Any], Errors]) -> Callable[[Fields], Errors]:
    """Return the check of a source that pods have, too."""
    return lambda source: check(typed(source, kind))


def _glusterfs(source: Fields) -> Errors:
    yield from _required(source, "endpoints", "path")
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        why = "if the endpointnamespace is set, it must be a valid namespace name"
        yield FieldError.invalid("endpointsNamespace", namespace, why)
    elif namespace is not None:
        yield from rules.problems("endpointsNamespace", namespace, names.dns_label(namespace))


def _rbd(source: Fields) -> Errors:
    yield from _required(source, "monitors", "image")


def _cephfs(source: Fields) -> Errors:
    yield from _required(source, "monitors")


def _iscsi(source: Fields) -> Errors:
    yield from _required(source, "targetPortal", "iqn")
    if iqn := text(source, "iqn"):
        yield from _iscsi_name("iqn", iqn)
    lun = source.get("lun", 0)
    yield from rules.problems("lun", lun, names.in_range(lun, 0, 255))
    secret = source.get("secretRef")
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and secret is None:
        yield FieldError.required("secretRef")
    if secret is not None:
        yield from within("secretRef", _required(secret, "name"))
    if "initiatorName" in source:
        yield from _iscsi_name("initiatorname", text(source, "initiatorName"))


def _iscsi_name(field: str, name: str) -> Errors:
    if not storage_validation.is_iscsi_name(name):
        yield FieldError.invalid(field, name, "must be valid format")


def _cinder(source: Fields) -> Errors:
    yield from _required(source, "volumeID")
    yield from _plain_secret(source)


def _plain_secret(source: Fields) -> Errors:
    if "secretRef" in source:
        yield from within("secretRef", _required(source["secretRef"], "name", "namespace"))


def _flex(source: Fields) -> Errors:
    return storage_validation.flex(
        storage.FlexVolumeSource(driver=text(source, "driver"), options=source.get("options") or {})
    )


def _azure_file(source: Fields) -> Errors:
    yield from _required(source, "secretName", "shareName")
    if source.get("secretNamespace") == "":
        yield FieldError.required("secretNamespace")


def _scale_io(source: Fields) -> Errors:
    yield from _required(source, "gateway", "system", "volumeName")


def _local(source: Fields) -> Errors:
    yield from _required(source, "path")
    yield from path_rules.no_backsteps("path", text(source, "path"))


def _storage_os(source: Fields) -> Errors:
    yield from _required(source, "volumeName")
    for name in ("volumeName", "volumeNamespace"):
        if value := text(source, name):
            yield from rules.problems(name, value, names.dns_label(value))
    yield from _plain_secret(source)


def _csi(source: Fields) -> Errors:
    yield from validate_driver_name("driver", text(source, "driver"))
    yield from _required(source, "volumeHandle")
    for field in _SECRETS:
        if field in source:
            yield from within(field, _secret_reference(source[field]))


def _secret_reference(ref: Fields) -> Errors:
    for field, rule in (("name", names.dns_subdomain), ("namespace", names.dns_label)):
        if value := text(ref, field):
            yield from rules.problems(field, value, rule(value))
        else:
            yield FieldError.required(field)


# In the order in which upstream looks for them: of two sources the later one is blamed.
SOURCES: Final[Mapping[str, tuple[str, Callable[[Fields], Errors]]]] = {
    "hostPath": ("hostPath", _as(HostPathVolumeSource, validate_host_path)),
    "gcePersistentDisk": (
        "persistentDisk",
        _as(storage.GCEPersistentDiskVolumeSource, storage_validation.gce_disk),
    ),
    "awsElasticBlockStore": (
        "awsElasticBlockStore",
        _as(storage.AWSElasticBlockStoreVolumeSource, storage_validation.aws_disk),
    ),
    "glusterfs": ("glusterfs", _glusterfs),
    "flocker": ("flocker", _as(storage.FlockerVolumeSource, storage_validation.flocker)),
    "nfs": ("nfs", _as(storage.NFSVolumeSource, storage_validation.nfs)),
    "rbd": ("rbd", _rbd),
    "quobyte": ("quobyte", _as(storage.QuobyteVolumeSource, storage_validation.quobyte)),
    "cephfs": ("cephfs", _cephfs),
    "iscsi": ("iscsi", _iscsi),
    "cinder": ("cinder", _cinder),
    "fc": ("fc", _as(storage.FCVolumeSource, storage_validation.fibre_channel)),
    "flexVolume": ("flexVolume", _flex),
    "azureFile": ("azureFile", _azure_file),
    "vsphereVolume": (
        "vsphereVolume",
        _as(storage.VsphereVirtualDiskVolumeSource, storage_validation.vsphere),
    ),
    "photonPersistentDisk": (
        "photonPersistentDisk",
        _as(storage.PhotonPersistentDiskVolumeSource, storage_validation.photon_disk),
    ),
    "portworxVolume": (
        "portworxVolume",
        _as(storage.PortworxVolumeSource, storage_validation.portworx),
    ),
    "azureDisk": ("azureDisk", _as(storage.AzureDiskVolumeSource, storage_validation.azure_disk)),
    "scaleIO": ("scaleIO", _scale_io),
    "local": ("local", _local),
    "storageos": ("storageos", _storage_os),
    "csi": ("csi", _csi),
}
"""The sources of volumes: the path of their errors, and their check."""

_BLAMED: Final = {"cephfs": "cephFS"}


def validate_update(new: Document, old: Document) -> Errors:
    yield from validate(new)
    before, after = old.content.get("spec") or {}, new.content.get("spec") or {}
    now, known = _fixed_sources(after, before), {n: before[n] for n in SOURCES if n in before}
    if now != known:
        why = "spec.persistentvolumesource is immutable after creation\n"
        difference = internal_diff(known, now, "core.PersistentVolumeSource")
        yield FieldError.forbidden("spec.persistentvolumesource", why + difference)
    yield from rules.unchanged("volumeMode", after.get("volumeMode"), before.get("volumeMode"))
    nodes, others = after.get("nodeAffinity"), before.get("nodeAffinity")
    if others is not None and nodes != others and _with_stable_labels(others, nodes) != nodes:
        why = f"{rules.IMMUTABLE}, except for updating from beta label to GA"
        shown = internal_form(nodes, "*core.VolumeNodeAffinity")
        yield FieldError.invalid("nodeAffinity", shown, why)
    if _CLASS in before and _CLASS not in after:
        why = "update from non-nil value to nil is forbidden"
        yield FieldError.forbidden(f"spec.{_CLASS}", why)


def _fixed_sources(after: Fields, before: Fields) -> dict[str, Any]:
    """Return the sources of a volume, except for the one part that may be added later."""
    sources = {name: after[name] for name in SOURCES if name in after}
    late = "controllerExpandSecretRef"
    if "csi" in sources and "csi" in before and late not in before["csi"]:
        sources["csi"] = {key: value for key, value in sources["csi"].items() if key != late}
    return sources


_STABLE_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


def _with_stable_labels(before: Any, after: Any) -> Any:
    """Return the old affinity with the stable names of labels that the new one has renamed."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        changed = {key: _with_stable_labels(value, after.get(key)) for key, value in before.items()}
        key = before.get("key")
        if isinstance(key, str) and _STABLE_LABELS.get(key, key) == after.get("key"):
            changed["key"] = after["key"]
        return changed
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [_with_stable_labels(*pair) for pair in zip(before, after, strict=True)]
    return before
