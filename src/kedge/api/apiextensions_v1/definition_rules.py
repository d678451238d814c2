"""Validation of CustomResourceDefinitions and of their updates."""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from kedge.api import rules
from kedge.api.apiextensions_v1.conversion_rules import bundle_errors, conversion_errors
from kedge.api.apiextensions_v1.definition import (
    APPROVAL,
    CustomResourceColumnDefinition,
    CustomResourceDefinition,
    CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion,
    CustomResourceSubresources,
    SelectableField,
    WebhookConversion,
    is_established,
    schema_of_version,
)
from kedge.api.apiextensions_v1.json_schema import JSONSchemaProps, additional
from kedge.api.apiextensions_v1.schema_rules import is_readable, validate_schema
from kedge.machinery import names
from kedge.machinery.errors import FieldError

COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
MOST_SELECTABLE_FIELDS = 8


def validate(
    crd: CustomResourceDefinition, old: CustomResourceDefinition | None = None
) -> Iterator[FieldError]:
    name = f"{crd.spec.names.plural}.{crd.spec.group}"
    meta = crd.metadata
    for field, given in (("generateName", meta.generateName), ("name", meta.name)):
        if given not in ("", name):
            why = 'must be spec.names.plural+"."+spec.group'
            yield FieldError.invalid(f"metadata.{field}", given, why)
    yield from _spec(crd.spec, () if old is None else old.spec.versions)
    yield from _names(crd.status.acceptedNames, "status.acceptedNames")
    yield from _stored_versions(crd)
    yield from _approval(crd)
    if crd.spec.preserveUnknownFields:
        why = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true "
            "in spec.versions[*].schema instead"
        )
        yield FieldError.invalid("spec.preserveUnknownFields", True, why)


def validate_update(
    new: CustomResourceDefinition, old: CustomResourceDefinition
) -> Iterator[FieldError]:
    yield from validate(new, old)
    yield from bundle_errors(new, old)
    if is_established(old):
        yield from rules.unchanged("spec.scope", new.spec.scope, old.spec.scope)
        yield from rules.unchanged("spec.names.kind", new.spec.names.kind, old.spec.names.kind)
    yield from rules.unchanged("spec.group", new.spec.group, old.spec.group)
    yield from rules.unchanged("spec.names.plural", new.spec.names.plural, old.spec.names.plural)


def validate_status(
    new: CustomResourceDefinition, old: CustomResourceDefinition
) -> Iterator[FieldError]:
    yield from _names(new.status.acceptedNames, "status.acceptedNames")


def _spec(
    spec: CustomResourceDefinitionSpec, old: Sequence[CustomResourceDefinitionVersion]
) -> Iterator[FieldError]:
    yield from _group(spec.group)
    yield from rules.one_of("spec.scope", spec.scope, ("Cluster", "Namespaced"))
    for i, version in enumerate(spec.versions):
        if schema_of_version(version) is None:
            yield FieldError.required(f"spec.versions[{i}].schema.openAPIV3Schema")
    for i, version in enumerate(spec.versions):
        yield from _joined(f"spec.versions[{i}].name", version.name)
        yield from _deprecation(version, f"spec.versions[{i}].deprecationWarning")
    yield from _contents(spec.versions, [schema_of_version(version) for version in old])
    yield from _set_of_versions(spec.versions)
    for word in ("plural", "singular", "kind", "listKind"):
        if not getattr(spec.names, word):
            yield FieldError.required(f"spec.names.{word}")
    yield from _names(spec.names, "spec.names")
    yield from _conversion(spec)


def _group(group: str) -> Iterator[FieldError]:
    if not group:
        yield FieldError.required("spec.group")
    elif problems := names.dns_subdomain(group):
        yield FieldError.invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield FieldError.invalid("spec.group", group, "should be a domain with at least one dot")


def _joined(path: str, value: str) -> Iterator[FieldError]:
    if problems := names.dns1035_label(value):
        yield FieldError.invalid(path, value, ",".join(problems))


def _deprecation(version: CustomResourceDefinitionVersion, path: str) -> Iterator[FieldError]:
    warning = version.deprecationWarning
    if warning is None:
        return
    if not version.deprecated:
        yield FieldError.invalid(path, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > 256:
        yield FieldError.invalid(path, warning, "must be <= 256 characters long")
    if not warning:
        yield FieldError.invalid(path, warning, "must not be an empty string")
    strange = next((i for i, char in enumerate(warning) if not char.isprintable()), None)
    if strange is not None:
        why = (
            "must only contain printable UTF-8 characters; "
            f"non-printable character found at index {len(warning[:strange].encode())}"
        )
        yield FieldError.invalid(path, warning, why)


def _set_of_versions(versions: Sequence[CustomResourceDefinitionVersion]) -> Iterator[FieldError]:
    known = [version.name for version in versions]
    if len(set(known)) < len(known):
        yield FieldError.invalid("spec.versions", known, "must contain unique version names")
    if sum(version.storage for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield FieldError.invalid("spec.versions", known or None, why)


def _contents(
    versions: Sequence[CustomResourceDefinitionVersion], known: Sequence[JSONSchemaProps | None]
) -> Iterator[FieldError]:
    """Validate schemas, subresources, columns and selectable fields.

    A part that all versions share is validated once, under the top-level field that held it before
    versions could differ. Upstream reports these paths, so users search for them.
    """
    for at, _, version in _judged(versions, "schema", "spec.validation"):
        schema = schema_of_version(version)
        path = f"{at}.openAPIV3Schema"
        if schema is not None and not is_readable(schema):
            yield FieldError.invalid(path, "", "boolean or JSON schema expected")
        elif schema is not None:
            status = _has_status(version, versions, at)
            yield from validate_schema(schema, path, status=status, known=schema in known)
    for at, subresources, _ in _judged(versions, "subresources", "spec.subresources"):
        yield from _subresources(subresources, at)
    where = "spec.additionalPrinterColumns"
    for at, columns, _ in _judged(versions, "additionalPrinterColumns", where):
        for i, column in enumerate(columns):
            yield from _column(column, f"{at}[{i}]")
    for at, fields, version in _judged(versions, "selectableFields", "spec.selectableFields"):
        yield from _selectable_fields(fields, schema_of_version(version), at)


def _judged(
    versions: Sequence[CustomResourceDefinitionVersion], attribute: str, shared: str
) -> Iterator[tuple[str, Any, CustomResourceDefinitionVersion]]:
    """(path, value, version) for each distinct thing to look at."""
    values = [getattr(version, attribute) for version in versions]
    if versions and all(value == values[0] for value in values):
        yield shared, values[0], versions[0]
        return
    for i, (value, version) in enumerate(zip(values, versions, strict=True)):
        yield f"spec.versions[{i}].{attribute}", value, version


def _has_status(
    version: CustomResourceDefinitionVersion,
    versions: Sequence[CustomResourceDefinitionVersion],
    path: str,
) -> bool:
    bearers = versions if path == "spec.validation" else (version,)
    return any(each.subresources and each.subresources.status is not None for each in bearers)


def _names(words: CustomResourceDefinitionNames, path: str) -> Iterator[FieldError]:
    if words.plural:
        yield from _joined(f"{path}.plural", words.plural)
    if words.singular:
        yield from _joined(f"{path}.singular", words.singular)
    for field in ("kind", "listKind"):
        value: str = getattr(words, field)
        if value and (problems := names.dns1035_label(value.lower())):
            why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            yield FieldError.invalid(f"{path}.{field}", value, why)
    for i, short in enumerate(words.shortNames):
        yield from _joined(f"{path}.shortNames[{i}]", short)
    if words.kind and words.kind == words.listKind:
        why = "kind and listKind may not be the same"
        yield FieldError.invalid(f"{path}.listKind", words.listKind, why)
    for i, category in enumerate(words.categories):
        yield from _joined(f"{path}.categories[{i}]", category)


def _conversion(spec: CustomResourceDefinitionSpec) -> Iterator[FieldError]:
    conversion = spec.conversion
    if conversion is None:
        return
    path = "spec.conversion.strategy"
    if conversion.strategy != "None" and spec.preserveUnknownFields:
        why = "must be None if spec.preserveUnknownFields is true"
        yield FieldError.invalid(path, conversion.strategy, why)
    yield from rules.one_of(path, conversion.strategy, ("None", "Webhook"))
    if conversion.strategy == "Webhook":
        yield from conversion_errors(conversion.webhook or WebhookConversion())
    elif conversion.webhook is not None:
        why = "should not be set when strategy is not set to Webhook"
        if conversion.webhook.clientConfig is not None:
            yield FieldError.forbidden("spec.conversion.webhookClientConfig", why)
        if conversion.webhook.conversionReviewVersions:
            yield FieldError.forbidden("spec.conversion.conversionReviewVersions", why)


def _subresources(parts: CustomResourceSubresources | None, path: str) -> Iterator[FieldError]:
    if parts is None or parts.scale is None:
        return
    scale = parts.scale
    for field, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        value: str = getattr(scale, field)
        at = f"{path}.scale.{field}"
        if not value:
            yield FieldError.required(at)
        elif not value.startswith("."):
            yield FieldError.invalid(at, value, "must be a simple json path starting with .")
        elif not value.startswith(f"{root}."):
            yield FieldError.invalid(at, value, f"should be a json path under {root}")
    if scale.labelSelectorPath:
        at = f"{path}.scale.labelSelectorPath"
        if not scale.labelSelectorPath.startswith("."):
            why = "must be a simple json path starting with ."
            yield FieldError.invalid(at, scale.labelSelectorPath, why)
        elif not scale.labelSelectorPath.startswith((".spec.", ".status.")):
            why = "should be a json path under either .spec or .status"
            yield FieldError.invalid(at, scale.labelSelectorPath, why)


def _column(column: CustomResourceColumnDefinition, path: str) -> Iterator[FieldError]:
    if not column.name:
        yield FieldError.required(f"{path}.name")
    types = f"must be one of {','.join(COLUMN_TYPES)}"
    if not column.type:
        yield FieldError.required(f"{path}.type", types)
    elif column.type not in COLUMN_TYPES:
        yield FieldError.invalid(f"{path}.type", column.type, types)
    if column.format and column.format not in COLUMN_FORMATS:
        why = f"must be one of {','.join(COLUMN_FORMATS)}"
        yield FieldError.invalid(f"{path}.format", column.format, why)
    if not column.jsonPath:
        yield FieldError.required(f"{path}.JSONPath")
    elif not column.jsonPath.startswith("."):
        why = "must be a simple json path starting with ."
        yield FieldError.invalid(f"{path}.JSONPath", column.jsonPath, why)


def _selectable_fields(
    fields: Sequence[SelectableField], schema: JSONSchemaProps | None, path: str
) -> Iterator[FieldError]:
    if schema is None or not is_readable(schema):
        return
    seen: set[str] = set()
    for i, field in enumerate(fields):
        at = f"{path}[{i}].jsonPath"
        if not field.jsonPath:
            yield FieldError.required(at)
            continue
        try:
            found = _field_at(schema, field.jsonPath)
        except ValueError as error:
            yield FieldError.invalid(at, field.jsonPath, f"is an invalid path: {error}")
            continue
        if field.jsonPath.split(".")[1] == "metadata":
            why = "must not point to fields in metadata"
            yield FieldError.invalid(at, field.jsonPath, why)
        if found is None or found.type not in ("string", "boolean", "integer"):
            why = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            yield FieldError.invalid(at, field.jsonPath, why)
        if field.jsonPath in seen:
            yield FieldError.duplicate(at, field.jsonPath)
        seen.add(field.jsonPath)
    if len(seen) > MOST_SELECTABLE_FIELDS:
        yield FieldError.too_many(path, len(seen), MOST_SELECTABLE_FIELDS)


def _field_at(schema: JSONSchemaProps, path: str) -> JSONSchemaProps | None:
    """The schema at the end of a plain path such as `.spec.color`; ValueError if there is none."""
    if "[" in path:
        raise ValueError("array notation is not allowed")
    if not path.startswith("."):
        raise ValueError(f"expected [ or . but got: {path.partition('.')[0]}")
    at: JSONSchemaProps | None = schema
    for step in path[1:].split("."):
        if not step:
            raise ValueError("unexpected end of JSON path")
        if at is None or (at.properties and step not in at.properties):
            raise ValueError("does not refer to a valid field")
        if not at.properties and at.additionalProperties is None:
            raise ValueError("does not refer to a valid field")
        at = at.properties[step] if at.properties else additional(at)
    return at


def _stored_versions(crd: CustomResourceDefinition) -> Iterator[FieldError]:
    path = "status.storedVersions"
    stored = crd.status.storedVersions
    if not stored:
        yield FieldError.invalid(path, None, "must have at least one stored version")
        return
    known = {version.name for version in crd.spec.versions}
    for version in crd.spec.versions:
        if version.storage and version.name not in stored:
            why = f"must have the storage version {version.name}"
            yield FieldError.invalid(path, stored, why)
    for i, name in enumerate(stored):
        if name not in known:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            yield FieldError.invalid(f"{path}[{i}]", name, why)


def is_protected(group: str) -> bool:
    """Whether a group belongs to the Kubernetes project, so that definitions need its approval."""
    return group.endswith((".k8s.io", ".kubernetes.io")) or group in ("k8s.io", "kubernetes.io")


def _approval(crd: CustomResourceDefinition) -> Iterator[FieldError]:
    written = crd.metadata.annotations.get(APPROVAL, "")
    if not is_protected(crd.spec.group) or written.startswith("unapproved"):
        return
    path = f"metadata.annotations[{APPROVAL}]"
    must = f'protected groups must have approval annotation "{APPROVAL}"'
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not written:
        yield FieldError.required(path, f"{must}, {see}")
    elif not is_address(written):
        either = 'with either a URL or a reason starting with "unapproved"'
        yield FieldError.invalid(path, written, f"{must} {either}, {see}")


def is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc)
