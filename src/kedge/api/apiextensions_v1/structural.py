"""Structural schemas: each field has one type, said outside of `allOf`, `anyOf`, `oneOf`, `not`."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from kedge.api.apiextensions_v1.json_schema import JSONSchemaProps, additional, junctions
from kedge.machinery.errors import FieldError
from kedge.machinery.patterns import compile_pattern

Level = Literal["at the root", "for specified array items", "for specified object fields"]
ROOT: Level = "at the root"
ITEM: Level = "for specified array items"
FIELD: Level = "for specified object fields"

_INT_OR_STRING = (JSONSchemaProps(type="integer"), JSONSchemaProps(type="string"))

# Words without a place below a junction, and what upstream says of each.
_FORBIDDEN = (
    ("type", "type", "must be empty to be structural"),
    ("additionalProperties", "additionalProperties", "must be undefined to be structural"),
    ("default", "default", "must be undefined to be structural"),
    ("title", "title", "must be empty to be structural"),
    ("description", "description", "must be empty to be structural"),
    ("nullable", "nullable", "must be false to be structural"),
    (
        "preserve_unknown_fields",
        "x-kubernetes-preserve-unknown-fields",
        "must be false to be structural",
    ),
    ("embedded_resource", "x-kubernetes-embedded-resource", "must be false to be structural"),
    ("int_or_string", "x-kubernetes-int-or-string", "must be false to be structural"),
    ("list_map_keys", "x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("list_type", "x-kubernetes-list-type", "must be undefined to be structural"),
    ("map_type", "x-kubernetes-map-type", "must be undefined to be structural"),
    ("validations", "x-kubernetes-validations", "must be empty to be structural"),
)


def validate_structural(schema: JSONSchemaProps, path: str) -> list[FieldError]:
    """Everything that keeps a schema from being structural, sorted as upstream sorts it."""
    errors = [*_invariants(schema, ROOT, path), *_incomplete_junctions(schema, schema, path, path)]
    return sorted(errors, key=str)


def _invariants(schema: JSONSchemaProps, level: Level, path: str) -> Iterator[FieldError]:
    if schema.items is not None:
        yield from _invariants(schema.items, ITEM, f"{path}.items")
    elif schema.type == "array":
        yield FieldError.required(f"{path}.items", "must be specified")
    for name, field in schema.properties.items():
        yield from _invariants(field, FIELD, f"{path}.properties[{name}]")
    if schema.additionalProperties is not None:
        if level is ROOT:
            yield FieldError.forbidden(
                f"{path}.additionalProperties", "must not be used at the root"
            )
        if (rest := additional(schema)) is not None:
            yield from _invariants(rest, FIELD, f"{path}.additionalProperties")
    yield from _extensions(schema, path)
    yield from _junctions(schema, path)
    yield from _type(schema, level, path)
    yield from _resource_fields(schema, level, path)


def _extensions(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    why = "must be false if x-kubernetes-int-or-string is true"
    if schema.int_or_string and schema.preserve_unknown_fields:
        yield FieldError.invalid(f"{path}.x-kubernetes-preserve-unknown-fields", True, why)
    if schema.int_or_string and schema.embedded_resource:
        yield FieldError.invalid(f"{path}.x-kubernetes-embedded-resource", True, why)


def _type(schema: JSONSchemaProps, level: Level, path: str) -> Iterator[FieldError]:
    embedded = "must be object if x-kubernetes-embedded-resource is true"
    if schema.embedded_resource and schema.type != "object":
        if schema.type:
            yield FieldError.invalid(f"{path}.type", schema.type, embedded)
        else:
            yield FieldError.required(f"{path}.type", embedded)
    elif not (schema.type or schema.int_or_string or schema.preserve_unknown_fields):
        yield FieldError.required(f"{path}.type", f"must not be empty {level}")
    if schema.embedded_resource and schema.additionalProperties is not None:
        why = "must not be used if x-kubernetes-embedded-resource is set"
        yield FieldError.forbidden(f"{path}.additionalProperties", why)
    if level is ROOT and schema.type and schema.type != "object":
        yield FieldError.invalid(f"{path}.type", schema.type, "must be object at the root")


def _resource_fields(schema: JSONSchemaProps, level: Level, path: str) -> Iterator[FieldError]:
    """Yield the errors of a schema's apiVersion, kind and metadata."""
    whole = level is ROOT or schema.embedded_resource
    for name in ("kind", "apiVersion"):
        field = schema.properties.get(name)
        if whole and field is not None and field.type != "string":
            at = f"{path}.properties[{name}].type"
            yield FieldError.invalid(at, field.type, "must be string")
    metadata = schema.properties.get("metadata")
    if metadata is not None:
        at = f"{path}.properties[metadata]"
        if whole and metadata.type != "object":
            yield FieldError.invalid(f"{at}.type", metadata.type, "must be object")
        if level is ROOT and not _restricts_name_only(metadata):
            why = (
                "must not specify anything other than name and generateName, "
                "but metadata is implicitly specified"
            )
            yield FieldError.forbidden(at, why)
    unspecified = not schema.preserve_unknown_fields and not schema.properties
    if schema.embedded_resource and unspecified:
        why = (
            "must not be empty if x-kubernetes-embedded-resource is true "
            "without x-kubernetes-preserve-unknown-fields"
        )
        yield FieldError.required(f"{path}.properties", why)


def _restricts_name_only(metadata: JSONSchemaProps) -> bool:
    if not metadata.properties.keys() <= {"name", "generateName"}:
        return False
    rest = msgspec.structs.replace(metadata, type="", default=None, properties={})
    return rest == JSONSchemaProps()


def _junctions(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    """Yield the errors under `allOf` and similar, except for the two forms of int-or-string."""
    plain = tuple(schema.anyOf) == _INT_OR_STRING
    first = schema.allOf[0] if schema.allOf else JSONSchemaProps()
    wrapped = tuple(first.anyOf) == _INT_OR_STRING
    if plain:
        schema = msgspec.structs.replace(schema, anyOf=())
    if wrapped:
        bare = msgspec.structs.replace(first, anyOf=())
        schema = msgspec.structs.replace(schema, allOf=(bare, *schema.allOf[1:]))
    yield from _values(schema, path)


def _values(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    for inner, at in junctions(schema, path):
        yield from _nested(inner, at)
    if schema.pattern:
        try:
            compile_pattern(schema.pattern)
        except ValueError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            yield FieldError.invalid(f"{path}.pattern", schema.pattern, why)


def _nested(schema: JSONSchemaProps, path: str) -> Iterator[FieldError]:
    yield from _values(schema, path)
    if schema.items is not None:
        yield from _nested(schema.items, f"{path}.items")
    for name, field in schema.properties.items():
        yield from _nested(field, f"{path}.properties[{name}]")
    for attribute, word, why in _FORBIDDEN:
        if _is_set(attribute, getattr(schema, attribute)):
            yield FieldError.forbidden(f"{path}.{word}", why)
    if "metadata" in schema.properties:
        why = "must not be specified in a nested context"
        yield FieldError.forbidden(f"{path}.properties[metadata]", why)


def _is_set(attribute: str, value: object) -> bool:
    if attribute == "default":
        return value is not None
    # `additionalProperties: {}` says something; `false` allows nothing new and may stay.
    return bool(value) or value == {}


def _incomplete_junctions(
    values: JSONSchemaProps, schema: JSONSchemaProps, path: str, from_path: str
) -> Iterator[FieldError]:
    """Fields that a junction speaks of but the schema around it does not define."""
    for inner, at in junctions(values, from_path):
        yield from _incomplete(inner, schema, path, at)


def _incomplete(
    values: JSONSchemaProps, schema: JSONSchemaProps | None, path: str, from_path: str
) -> Iterator[FieldError]:
    if schema is None:
        yield FieldError.required(path, f"because it is defined in {from_path}")
        return
    yield from _incomplete_junctions(values, schema, path, from_path)
    if values.items is not None:
        yield from _incomplete(values.items, schema.items, f"{path}.items", f"{from_path}.items")
    for name, field in values.properties.items():
        at = f".properties[{name}]"
        yield from _incomplete(field, schema.properties.get(name), path + at, from_path + at)
