"""Validation of metadata, on create and on update."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kedge.api import rules
from kedge.api.model import ManagedFieldsEntry, ObjectMeta, OwnerReference
from kedge.machinery import names
from kedge.machinery.errors import ErrorScope, FieldError
from kedge.machinery.short_cache import short_cache

ANNOTATIONS_LIMIT = 256 * 1024
MANAGER_LIMIT = 128
SUBRESOURCE_LIMIT = 256
ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


def validate(
    meta: ObjectMeta,
    *,
    namespaced: bool,
    check_name: names.Rule,
    check_finalizer: names.Rule = names.core_finalizer,
) -> Iterator[FieldError]:
    """Everything wrong with the metadata of an object, new or changed.

    Built-in kinds want finalizers that are standard or have a domain; custom ones take any
    qualified name, so for them pass `check_finalizer=names.finalizer`.
    """
    yield from _names(meta, check_name)
    yield from _namespace(meta.namespace, namespaced)
    yield from rules.nonnegative("metadata.generation", meta.generation)
    if meta.labels:
        yield from validate_labels(meta.labels, "metadata.labels")
    if meta.annotations:
        yield from validate_annotations(meta.annotations, "metadata.annotations")
    if meta.ownerReferences:
        yield from _owners(meta.ownerReferences)
    if meta.finalizers:
        yield from _finalizers(meta.finalizers, check_finalizer)
    if meta.managedFields:
        yield from _managed_fields(meta.managedFields)


def validate_update(new: ObjectMeta, old: ObjectMeta) -> Iterator[FieldError]:
    """Everything wrong with a change of metadata. Some of it `validate` reports, too: upstream
    looks at labels, annotations and owners in both places.

    Expects that the server has already kept what a writer may leave out: uid, timestamps,
    generation, and the resourceVersion of an unconditional update.
    """
    if old.deletionTimestamp:
        yield from _no_new_finalizers(new.finalizers, old.finalizers)
    if not new.resourceVersion:
        why = "must be specified for an update"
        yield FieldError.invalid("metadata.resourceVersion", "", why)
    if new.generation < old.generation:
        why = "must not be decremented"
        yield FieldError.invalid("metadata.generation", new.generation, why)
    if _fixed(new) != _fixed(old):
        for field, now, before in zip(_FIXED, _fixed(new), _fixed(old), strict=True):
            yield from rules.unchanged(f"metadata.{field}", now, before)
    if new.labels:
        yield from validate_labels(new.labels, "metadata.labels")
    if new.annotations:
        yield from validate_annotations(new.annotations, "metadata.annotations")
    if new.ownerReferences:
        yield from _owners(new.ownerReferences)


def without_sound_parts(meta: ObjectMeta) -> ObjectMeta:
    """Return metadata in which `validate` found nothing, without the parts that every check looks
    at in the same way. Another check has the same errors then, in less time."""
    return replace(meta, labels={}, annotations={}, ownerReferences=(), managedFields=())


_FIXED = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def _fixed(meta: ObjectMeta) -> tuple[str | int | None, ...]:
    return (
        meta.name,
        meta.namespace,
        meta.uid,
        meta.creationTimestamp,
        meta.deletionTimestamp,
        meta.deletionGracePeriodSeconds,
    )


def validate_labels(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Everything wrong with a map of labels; all of it is blamed on the map."""
    for key, value in labels.items():
        if not is_label_key(key):
            yield from rules.problems(path, key, names.qualified_name(key))
        if found := names.label_value(value):
            yield from rules.problems(path, value, found)


def validate_annotations(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Everything wrong with a map of annotations."""
    size = 0
    for key, value in annotations.items():
        if not is_label_key(key):
            yield from _annotation_key(key, path)
        size += _byte_length(key) + _byte_length(value)
    if size > ANNOTATIONS_LIMIT:
        yield FieldError.too_long(path, ANNOTATIONS_LIMIT)


def _annotation_key(key: str, path: str) -> Iterator[FieldError]:
    problems = rules.problems(path, key, names.annotation_key(key))
    if names.needs_escapes(key):
        return (problem.only(ErrorScope.EXTENSION) for problem in problems)
    return problems


# The same few keys come again and again, and prefixed ones are the slow case of the rule.
@short_cache(4096)
def is_label_key(key: str) -> bool:
    """Whether the key may be that of a label."""
    return not names.qualified_name(key)


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _names(meta: ObjectMeta, check: names.Rule) -> Iterator[FieldError]:
    if meta.generateName:
        found = names.generate_name_prefix(meta.generateName, check)
        yield from rules.problems("metadata.generateName", meta.generateName, found)
    if not meta.name:
        yield FieldError.required("metadata.name", "name or generateName is required")
    elif found := check(meta.name):
        yield from rules.problems("metadata.name", meta.name, found)


def _namespace(namespace: str, namespaced: bool) -> Iterator[FieldError]:
    if not namespaced:
        if namespace:
            yield FieldError.forbidden("metadata.namespace", "not allowed on this type")
    elif not namespace:
        yield FieldError.required("metadata.namespace")
    elif found := names.dns_label(namespace):
        yield from rules.problems("metadata.namespace", namespace, found)


MOST_OWNERS: Final = 1_000
"""How many owners an object may have. The garbage collector looks at all of them whenever the
object changes."""


def _owners(owners: Sequence[OwnerReference]) -> Iterator[FieldError]:
    path = "metadata.ownerReferences"
    if len(owners) > MOST_OWNERS:
        yield FieldError.too_many(path, len(owners), MOST_OWNERS)
        return
    for owner in owners:
        yield from _owner(owner, path)
    if len(owners) == 1:
        return
    controllers = [f"{owner.kind}/{owner.name}" for owner in owners if owner.controller]
    for other in controllers[1:]:
        why = (
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {controllers[0]} and {other}'
        )
        yield FieldError.invalid(path, owners, why)


def _owner(owner: OwnerReference, path: str) -> Iterator[FieldError]:
    if not owner.apiVersion or owner.apiVersion[-1] == "/" or owner.apiVersion.count("/") > 1:
        why = "version must not be empty"
        yield FieldError.invalid(f"{path}.apiVersion", owner.apiVersion, why)
    if not (owner.kind and owner.name and owner.uid):
        for field in ("kind", "name", "uid"):
            if not getattr(owner, field):
                yield FieldError.invalid(f"{path}.{field}", "", "must not be empty")
    if owner.apiVersion == "v1" and owner.kind == "Event":
        why = "/v1, Kind=Event is disallowed from being an owner"
        yield FieldError.invalid(path, owner, why)


def _finalizers(finalizers: Sequence[str], check: names.Rule) -> Iterator[FieldError]:
    path = "metadata.finalizers"
    for finalizer in finalizers:
        if not is_label_key(finalizer):
            yield from rules.problems(path, finalizer, names.qualified_name(finalizer))
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        why = f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        yield FieldError.invalid(path, finalizers, why)
    if check is not names.finalizer:
        yield from standard_finalizers(finalizers)


def standard_finalizers(finalizers: Sequence[str]) -> Iterator[FieldError]:
    """The finalizers that are neither standard nor have a domain."""
    for i, finalizer in enumerate(finalizers):
        if found := names.core_finalizer(finalizer):
            yield from rules.problems(f"metadata.finalizers[{i}]", finalizer, found)


def _no_new_finalizers(new: Sequence[str], old: Iterable[str]) -> Iterator[FieldError]:
    if added := sorted(set(new) - set(old)):
        shown = ", ".join(f'"{name}"' for name in added)
        why = (
            "no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{shown}}}"
        )
        yield FieldError.forbidden("metadata.finalizers", why)


def _managed_fields(entries: Sequence[ManagedFieldsEntry]) -> Iterator[FieldError]:
    if list(entries) == [ManagedFieldsEntry()]:
        return  # which resets them
    for i, entry in enumerate(entries):
        path = f"metadata.managedFields[{i}]"
        if entry.operation not in ("Apply", "Update"):
            why = "must be `Apply` or `Update`"
            yield FieldError.invalid(f"{path}.operation", entry.operation, why)
        if entry.fieldsType and entry.fieldsType != "FieldsV1":
            why = "must be `FieldsV1`"
            yield FieldError.invalid(f"{path}.fieldsType", entry.fieldsType, why)
        if entry.manager:
            yield from validate_manager(entry.manager, f"{path}.manager")
        if len(entry.subresource) > SUBRESOURCE_LIMIT:
            yield FieldError.too_long(f"{path}.subresource", SUBRESOURCE_LIMIT)


def validate_manager(manager: str, path: str) -> Iterator[FieldError]:
    """Everything wrong with the name of a field manager, be it in an object or in a request."""
    if manager.isascii() and manager.isprintable() and len(manager) <= MANAGER_LIMIT:
        return
    if _byte_length(manager) > MANAGER_LIMIT:
        yield FieldError.too_long(path, MANAGER_LIMIT)
    position = 0
    for char in manager:
        if not char.isprintable():
            why = f"invalid character U+{ord(char):04X} (at position {position})"
            yield FieldError.invalid(path, manager, why)
        position += _byte_length(char)
