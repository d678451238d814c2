"""Schemas of custom resources as errors of Kubernetes quote them: in its internal form."""

from collections.abc import Mapping
from typing import Any, Final

_FIELDS: Final[Mapping[str, tuple[str, Any]]] = {
    "id": ("ID", ""),
    "$schema": ("Schema", ""),
    "$ref": ("Ref", None),
    "description": ("Description", ""),
    "type": ("Type", ""),
    "nullable": ("Nullable", False),
    "format": ("Format", ""),
    "title": ("Title", ""),
    "default": ("Default", None),
    "maximum": ("Maximum", None),
    "exclusiveMaximum": ("ExclusiveMaximum", False),
    "minimum": ("Minimum", None),
    "exclusiveMinimum": ("ExclusiveMinimum", False),
    "maxLength": ("MaxLength", None),
    "minLength": ("MinLength", None),
    "pattern": ("Pattern", ""),
    "maxItems": ("MaxItems", None),
    "minItems": ("MinItems", None),
    "uniqueItems": ("UniqueItems", False),
    "multipleOf": ("MultipleOf", None),
    "enum": ("Enum", None),
    "maxProperties": ("MaxProperties", None),
    "minProperties": ("MinProperties", None),
    "required": ("Required", None),
    "items": ("Items", None),
    "allOf": ("AllOf", None),
    "oneOf": ("OneOf", None),
    "anyOf": ("AnyOf", None),
    "not": ("Not", None),
    "properties": ("Properties", None),
    "additionalProperties": ("AdditionalProperties", None),
    "patternProperties": ("PatternProperties", None),
    "dependencies": ("Dependencies", None),
    "additionalItems": ("AdditionalItems", None),
    "definitions": ("Definitions", None),
    "externalDocs": ("ExternalDocs", None),
    "example": ("Example", None),
    "x-kubernetes-preserve-unknown-fields": ("XPreserveUnknownFields", None),
    "x-kubernetes-embedded-resource": ("XEmbeddedResource", False),
    "x-kubernetes-int-or-string": ("XIntOrString", False),
    "x-kubernetes-list-map-keys": ("XListMapKeys", None),
    "x-kubernetes-list-type": ("XListType", None),
    "x-kubernetes-map-type": ("XMapType", None),
    "x-kubernetes-validations": ("XValidations", None),
}
"""By name on the wire: the name and the zero value of the internal field, in the order of Go."""

_RULE: Final[Mapping[str, tuple[str, Any]]] = {
    "rule": ("Rule", ""),
    "message": ("Message", ""),
    "messageExpression": ("MessageExpression", ""),
    "reason": ("Reason", None),
    "fieldPath": ("FieldPath", ""),
    "optionalOldSelf": ("OptionalOldSelf", None),
}
_DOCS: Final[Mapping[str, tuple[str, Any]]] = {
    "description": ("Description", ""),
    "url": ("URL", ""),
}


def internal_schema(schema: Any) -> dict[str, Any]:
    """Return the document of a schema with the names and zero values of the internal type. A value
    that is no schema, which is an error elsewhere, is quoted as an empty one."""
    if not isinstance(schema, Mapping):
        schema = {}
    return {
        name: _value(wire, schema[wire]) if wire in schema else zero
        for wire, (name, zero) in _FIELDS.items()
    }


def _value(wire: str, value: Any) -> Any:
    if not isinstance(value, (Mapping, list, bool)):
        return value
    match wire:
        case "items" if isinstance(value, list):
            return {"Schema": None, "JSONSchemas": [internal_schema(each) for each in value]}
        case "items":
            return {"Schema": internal_schema(value), "JSONSchemas": None}
        case "allOf" | "oneOf" | "anyOf" if isinstance(value, list):
            return [internal_schema(each) for each in value]
        case "not":
            return internal_schema(value)
        case "properties" | "patternProperties" | "definitions" if isinstance(value, Mapping):
            return {name: internal_schema(each) for name, each in sorted(value.items())}
        case "additionalProperties" | "additionalItems":
            return _or_bool(value)
        case "dependencies" if isinstance(value, Mapping):
            return {name: _or_names(each) for name, each in sorted(value.items())}
        case "externalDocs" if isinstance(value, Mapping):
            return _renamed(value, _DOCS)
        case "x-kubernetes-validations" if isinstance(value, list):
            return [_renamed(each, _RULE) for each in value if isinstance(each, Mapping)]
    return value


def _or_bool(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"Allows": value, "Schema": None}
    return {"Allows": True, "Schema": internal_schema(value)}


def _or_names(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {"Schema": internal_schema(value), "Property": None}
    return {"Schema": None, "Property": value if isinstance(value, list) else None}


def _renamed(value: Mapping[str, Any], names: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.get(wire, zero) for wire, (name, zero) in names.items()}
