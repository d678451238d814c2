"""PersistentVolumeClaim: a wish for storage that outlives its pods."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import field
from msgspec.structs import replace

from kedge.api import rules
from kedge.api.core_v1 import resource_names
from kedge.api.core_v1.claim import PersistentVolumeClaimSpec, VolumeResourceRequirements
from kedge.api.core_v1.references import TypedLocalObjectReference, TypedObjectReference
from kedge.api.core_v1.resource_defaults import rounded
from kedge.api.internal_forms import internal_diff
from kedge.api.label_selector import validate_label_selector
from kedge.api.model import Model, Object, Time, keyed, null
from kedge.api.presentation import Column, Presentation, age_column, name_column
from kedge.api.resource import STATUS, Resource
from kedge.api.strategy import Strategy
from kedge.machinery import names
from kedge.machinery.errors import FieldError
from kedge.machinery.quantity import Quantity

PENDING = "Pending"
BOUND = "Bound"
STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
RESIZE_STATES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)

VOLUME_MODES = ("Block", "Filesystem")
_UNSEEN: Mapping[str, str] = {}
"""Upstream quotes a path here, in a form that shows nothing of it."""
_ZERO = Quantity.from_value(0)


class PersistentVolumeClaimCondition(Model):
    """One aspect of the claim's state."""

    __required__ = ("type", "status")

    lastProbeTime: Time | None = field(default_factory=null)
    """When it was last looked at."""
    lastTransitionTime: Time | None = field(default_factory=null)
    """When the status last changed."""
    message: str = ""
    """Why, for people."""
    reason: str = ""
    """Why, as one word."""
    status: str = ""
    """True, False or Unknown."""
    type: str = ""
    """The type of the condition, for instance Resizing."""


class ModifyVolumeStatus(Model):
    """How far a change of attributes has come."""

    __required__ = ("status",)

    status: str = ""
    """Pending, InProgress or Infeasible."""
    targetVolumeAttributesClassName: str = ""
    """The class that is being applied."""


class PersistentVolumeClaimStatus(Model):
    """The observed state of the claim."""

    accessModes: Sequence[str] = ()
    """How the bound volume can be mounted."""
    allocatedResourceStatuses: Mapping[str, str] = {}
    """How far a resize has come."""
    allocatedResources: Mapping[str, Quantity] = {}
    """The amounts that a resize has allocated."""
    capacity: Mapping[str, Quantity] = {}
    """The capacity of the bound volume."""
    conditions: Annotated[Sequence[PersistentVolumeClaimCondition], keyed("type")] = ()
    """Aspects of its state."""
    currentVolumeAttributesClassName: str | None = None
    """The class of attributes in force."""
    modifyVolumeStatus: ModifyVolumeStatus | None = None
    """How far a change of attributes has come."""
    phase: str = ""
    """Pending, Bound or Lost."""


class PersistentVolumeClaim(Object):
    """A wish for storage that outlives its pods."""

    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    """The desired state."""
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)
    """The observed state of the claim."""


def default(obj: PersistentVolumeClaim) -> PersistentVolumeClaim:
    obj = replace(obj, spec=default_spec(obj.spec))
    if obj.status.phase:
        return obj
    return replace(obj, status=replace(obj.status, phase=PENDING))


def default_spec(spec: PersistentVolumeClaimSpec) -> PersistentVolumeClaimSpec:
    """Set the defaults of a claim or a claim template."""
    requests, limits = rounded(spec.resources.requests), rounded(spec.resources.limits)
    resources = VolumeResourceRequirements(requests=requests, limits=limits)
    mode = spec.volumeMode if spec.volumeMode is not None else "Filesystem"
    return replace(spec, resources=resources, volumeMode=mode)


def prepare_for_create(obj: PersistentVolumeClaim) -> PersistentVolumeClaim:
    status = PersistentVolumeClaimStatus(phase=PENDING)
    return replace(obj, spec=_with_sources(obj.spec, known=False), status=status)


def prepare_for_update(
    new: PersistentVolumeClaim, old: PersistentVolumeClaim
) -> PersistentVolumeClaim:
    known = old.spec.dataSource is not None or old.spec.dataSourceRef is not None
    return replace(new, spec=_with_sources(new.spec, known=known))


def _with_sources(spec: PersistentVolumeClaimSpec, *, known: bool) -> PersistentVolumeClaimSpec:
    """Let the older and the newer way to name a source agree."""
    source, ref = spec.dataSource, spec.dataSourceRef
    if ref is not None and ref.namespace and not known:
        # The feature gate CrossNamespaceVolumeDataSource is off.
        spec, ref = replace(spec, dataSourceRef=None), None
    if source is not None and ref is None:
        # Anything else in the older field has always been dropped without a word.
        if not known and not _is_volume(source):
            return replace(spec, dataSource=None)
        ref = TypedObjectReference(apiGroup=source.apiGroup, kind=source.kind, name=source.name)
        return replace(spec, dataSourceRef=ref)
    if ref is not None and source is None and not ref.namespace:
        source = TypedLocalObjectReference(apiGroup=ref.apiGroup, kind=ref.kind, name=ref.name)
        return replace(spec, dataSource=source)
    return spec


def _is_volume(source: TypedLocalObjectReference) -> bool:
    what = (source.apiGroup or "", source.kind)
    return what in (
        ("", "PersistentVolumeClaim"),
        ("snapshot.storage.k8s.io", "VolumeSnapshot"),
    )


def validate(obj: PersistentVolumeClaim) -> Iterator[FieldError]:
    return validate_spec(obj.spec, "spec")


def validate_spec(spec: PersistentVolumeClaimSpec, path: str) -> Iterator[FieldError]:
    """Everything wrong with what a claim, or the template of one, asks for."""
    yield from _access_modes(spec.accessModes, f"{path}.accessModes")
    yield from validate_label_selector(spec.selector, f"{path}.selector")
    at = f"{path}.resources[storage]"
    if (size := spec.resources.requests.get(resource_names.STORAGE)) is None:
        yield FieldError.required(at)
    elif size <= _ZERO:
        yield FieldError.invalid(at, size, "must be greater than zero")
    for name in ("storageClassName", "volumeAttributesClassName"):
        if value := getattr(spec, name):
            yield from rules.problems(f"{path}.{name}", value, names.dns_subdomain(value))
    if spec.volumeMode is not None and spec.volumeMode not in VOLUME_MODES:
        yield FieldError.not_supported(f"{path}.volumeMode", spec.volumeMode, VOLUME_MODES)
    yield from _sources(spec, path)


def _access_modes(modes: Sequence[str], path: str) -> Iterator[FieldError]:
    if not modes:
        yield FieldError.required(path, "at least 1 access mode is required")
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield FieldError.not_supported(path, mode, sorted(ACCESS_MODES))
    known = {mode for mode in modes if mode in ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield FieldError.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _sources(spec: PersistentVolumeClaimSpec, path: str) -> Iterator[FieldError]:
    source, ref = spec.dataSource, spec.dataSourceRef
    if source is not None:
        yield from _source(source, f"{path}.dataSource")
    if ref is None:
        return
    yield from _source(ref, f"{path}.dataSourceRef")
    if ref.namespace:
        at = f"{path}.dataSourceRef.namespace"
        yield from rules.problems(at, ref.namespace, names.dns_label(ref.namespace))
        if source is not None:
            why = "may not be specified when dataSourceRef.namespace is specified"
            yield FieldError.invalid(path, _UNSEEN, why)
    elif source is not None and not _same(source, ref):
        yield FieldError.invalid(path, _UNSEEN, "must match dataSourceRef")


def _source(
    source: TypedLocalObjectReference | TypedObjectReference, path: str
) -> Iterator[FieldError]:
    if not source.name:
        yield FieldError.required(f"{path}.name")
    if not source.kind:
        yield FieldError.required(f"{path}.kind")
    if source.apiGroup:
        found = names.dns_subdomain(source.apiGroup)
        yield from rules.problems(f"{path}.apiGroup", source.apiGroup, found)
    elif source.kind != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield FieldError.invalid(path, source.kind, why)


def _same(source: TypedLocalObjectReference, ref: TypedObjectReference) -> bool:
    return (source.apiGroup, source.kind, source.name) == (ref.apiGroup, ref.kind, ref.name)


def validate_update(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> Iterator[FieldError]:
    if new.metadata.annotations.get(STORAGE_CLASS) != old.metadata.annotations.get(STORAGE_CLASS):
        path = f"metadata.annotations[{STORAGE_CLASS}]"
        value = new.metadata.annotations.get(STORAGE_CLASS, "")
        yield FieldError.invalid(path, value, rules.IMMUTABLE)
    before, after = _with_freedoms(new, old)
    if before != after:
        why = (
            "spec is immutable after creation except resources.requests "
            "and volumeAttributesClassName for bound claims\n"
        )
        difference = internal_diff(before, after, "core.PersistentVolumeClaimSpec")
        yield FieldError.forbidden("spec", why + difference)
    size, known = _storage(new.spec.resources.requests), _storage(old.spec.resources.requests)
    if size < known and size <= _storage(old.status.capacity):
        why = "field can not be less than status.capacity"
        yield FieldError.forbidden("spec.resources.requests.storage", why)
    yield from rules.unchanged("volumeMode", new.spec.volumeMode, old.spec.volumeMode)
    yield from _kept_attributes(new, old)


def _with_freedoms(
    new: PersistentVolumeClaim, old: PersistentVolumeClaim
) -> tuple[PersistentVolumeClaimSpec, PersistentVolumeClaimSpec]:
    """The old and the new spec, made equal where they may differ."""
    spec, known = new.spec, old.spec
    if not known.volumeName:
        known = replace(known, volumeName=spec.volumeName)
    if old.spec.storageClassName is None and spec.storageClassName is not None:
        annotated = old.metadata.annotations.get(STORAGE_CLASS)
        if annotated is None or annotated == spec.storageClassName:
            spec = replace(spec, storageClassName=None)
    if new.status.phase == BOUND:
        requests = {**spec.resources.requests}
        if before := old.spec.resources.requests.get(resource_names.STORAGE):
            requests[resource_names.STORAGE] = before
        limits = spec.resources.limits
        spec = replace(
            spec,
            resources=VolumeResourceRequirements(requests=requests, limits=limits),
            volumeAttributesClassName=old.spec.volumeAttributesClassName,
        )
    return known, spec


def _storage(amounts: Mapping[str, Quantity]) -> Quantity:
    return amounts.get(resource_names.STORAGE, _ZERO)


def _kept_attributes(
    new: PersistentVolumeClaim, old: PersistentVolumeClaim
) -> Iterator[FieldError]:
    name = new.spec.volumeAttributesClassName
    if old.status.currentVolumeAttributesClassName is None or name:
        return
    if name != old.spec.volumeAttributesClassName:
        to = "nil" if name is None else "empty string"
        why = f"update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"
        yield FieldError.forbidden("spec.volumeAttributesClassName", why)


def validate_status(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> Iterator[FieldError]:
    status = new.status
    for name, amount in status.capacity.items():
        if amount.value() < 0:
            why = "must be a valid resource quantity"
            yield FieldError.invalid(f"status.capacity[{name}]", amount.value(), why)
    for name, state in status.allocatedResourceStatuses.items():
        yield from _resizable(name, "status.allocatedResourceStatuses")
        if state not in RESIZE_STATES:
            path = "status.allocatedResourceStatuses"
            yield FieldError.not_supported(path, name, sorted(RESIZE_STATES))
    for name, amount in status.allocatedResources.items():
        yield from _resizable(name, "status.allocatedResources")
        path = f"status.allocatedResources[{name}]"
        yield from resource_names.validate_amount(resource_names.STORAGE, amount, path)


def _resizable(name: str, path: str) -> Iterator[FieldError]:
    if found := names.qualified_name(name):
        yield from rules.problems(path, name, found)
    elif resource_names.is_native(name) and name != resource_names.STORAGE:
        yield FieldError.not_supported(path, name, [resource_names.STORAGE])


def status_cell(obj: PersistentVolumeClaim) -> str:
    return "Terminating" if obj.metadata.deletionTimestamp else obj.status.phase


def capacity_cell(obj: PersistentVolumeClaim) -> str:
    return str(_storage(obj.status.capacity)) if obj.spec.volumeName else ""


def modes_cell(obj: PersistentVolumeClaim) -> str:
    if not obj.spec.volumeName:
        return ""
    return ",".join(short for mode, short in ACCESS_MODES.items() if mode in obj.status.accessModes)


def class_cell(obj: PersistentVolumeClaim) -> str:
    annotated = obj.metadata.annotations.get(STORAGE_CLASS)
    return annotated if annotated is not None else obj.spec.storageClassName or ""


def _or_unset(value: str | None) -> str:
    return "<unset>" if value is None else value


RESOURCE: Resource[PersistentVolumeClaim] = Resource(
    type=PersistentVolumeClaim,
    plural="persistentvolumeclaims",
    subresources=[STATUS],
    strategy=Strategy(
        counts_generation=False,
        returns_deleted_object=True,
        default=default,
        prepare_for_create=prepare_for_create,
        prepare_for_update=prepare_for_update,
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_status,
    ),
    presentation=Presentation(
        short_names=["pvc"],
        columns=[
            name_column(),
            Column(name="Status", cell=status_cell, description="Whether the claim has a volume."),
            Column(
                name="Volume",
                cell=lambda obj: obj.spec.volumeName,
                description="The volume that it is bound to.",
            ),
            Column(name="Capacity", cell=capacity_cell, description="Size of the volume."),
            Column(name="Access Modes", cell=modes_cell, description="How it can be mounted."),
            Column(name="StorageClass", cell=class_cell, description="The storage class."),
            Column(
                name="VolumeAttributesClass",
                cell=lambda obj: _or_unset(obj.spec.volumeAttributesClassName),
                description="The class of changeable attributes.",
            ),
            age_column(),
            Column(
                name="VolumeMode",
                cell=lambda obj: _or_unset(obj.spec.volumeMode),
                priority=1,
                description="Filesystem or Block.",
            ),
        ],
    ),
)
