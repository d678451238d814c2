"""Validation of the spec of a volume claim."""

from collections.abc import Iterator
from typing import Final

from kedge.api import rules
from kedge.api.core_v1.claim import PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.references import TypedLocalObjectReference, TypedObjectReference
from kedge.api.label_selector import validate_label_selector
from kedge.api.metadata import validate_annotations, validate_labels
from kedge.api.model import ObjectMeta
from kedge.machinery import names
from kedge.machinery.errors import FieldError

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")


def validate_claim_template(template: PersistentVolumeClaimTemplate) -> Iterator[FieldError]:
    """Everything wrong with the claim that a volume makes."""
    yield from validate_annotations(template.metadata.annotations, "metadata.annotations")
    yield from validate_labels(template.metadata.labels, "metadata.labels")
    yield from unsettable_metadata(template.metadata)
    yield from within("spec", validate_claim_spec(template.spec))


def unsettable_metadata(metadata: ObjectMeta) -> Iterator[FieldError]:
    """Refuse metadata of a template other than labels and annotations."""
    unset = ObjectMeta()
    for name in ObjectMeta.__struct_fields__:
        if name in ("annotations", "labels"):
            continue
        if getattr(metadata, name) not in (getattr(unset, name), []):
            yield FieldError.forbidden(f"metadata.{name}", "cannot be set")


def validate_claim_spec(spec: PersistentVolumeClaimSpec) -> Iterator[FieldError]:
    """Everything wrong with what a claim asks for."""
    if not spec.accessModes:
        yield FieldError.required("accessModes", "at least 1 access mode is required")
    yield from validate_label_selector(spec.selector, "selector")
    for mode in spec.accessModes:
        if mode not in ACCESS_MODES:
            yield FieldError.not_supported("accessModes", mode, ACCESS_MODES)
    if "ReadWriteOncePod" in spec.accessModes and set(spec.accessModes) & set(ACCESS_MODES[:3]):
        why = "may not use ReadWriteOncePod with other access modes"
        yield FieldError.forbidden("accessModes", why)
    storage = spec.resources.requests.get("storage")
    if storage is None:
        yield FieldError.required("resources[storage]")
    elif storage.nanos <= 0:
        yield FieldError.invalid("resources[storage]", storage, "must be greater than zero")
    for name in ("storageClassName", "volumeAttributesClassName"):
        if class_name := getattr(spec, name):
            yield from rules.problems(name, class_name, names.dns_subdomain(class_name))
    if spec.volumeMode is not None and spec.volumeMode not in VOLUME_MODES:
        yield FieldError.not_supported("volumeMode", spec.volumeMode, VOLUME_MODES)
    yield from _sources(spec)


def _sources(spec: PersistentVolumeClaimSpec) -> Iterator[FieldError]:
    source, ref = spec.dataSource, spec.dataSourceRef
    if source is not None:
        yield from within("dataSource", _source(source))
    if ref is None:
        return
    yield from within("dataSourceRef", _source(ref))
    if ref.namespace:
        found = names.dns_label(ref.namespace)
        yield from rules.problems("dataSourceRef.namespace", ref.namespace, found)
        if source is not None:
            why = "may not be specified when dataSourceRef.namespace is specified"
            yield FieldError.invalid("", {}, why)
    elif source is not None and _identity(source) != _identity(ref):
        yield FieldError.invalid("", {}, "must match dataSourceRef")


def _identity(ref: TypedLocalObjectReference | TypedObjectReference) -> tuple[str | None, ...]:
    return ref.apiGroup, ref.kind, ref.name


def _source(ref: TypedLocalObjectReference | TypedObjectReference) -> Iterator[FieldError]:
    if not ref.name:
        yield FieldError.required("name")
    if not ref.kind:
        yield FieldError.required("kind")
    if ref.apiGroup:
        yield from rules.problems("apiGroup", ref.apiGroup, names.dns_subdomain(ref.apiGroup))
    elif ref.kind != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield FieldError.invalid("", ref.kind, why)
