"""JSONSchemaProps: the schema of custom resources, in the JSON Schema dialect of CRDs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from kedge.api.model import Json, Model, keyed

Number = Annotated[int | float, msgspec.Meta(extra={"type": "number", "format": "double"})]
"""A bound, written back as it was given: `1` does not become `1.0`."""


class ExternalDocumentation(Model):
    """Where to read more."""

    description: str = ""
    """The description of the document."""
    url: str = ""
    """The address."""


class ValidationRule(Model):
    """A condition in CEL that values of this type are to meet."""

    __required__ = ("rule",)

    rule: str = ""
    """The expression; `self` is the value."""
    message: str = ""
    """The message of a failed rule."""
    messageExpression: str = ""
    """An expression that makes up the message."""
    reason: str | None = None
    """The reason given to clients: FieldValueInvalid, FieldValueForbidden, ..."""
    fieldPath: str = ""
    """The field to blame, relative to this one."""
    optionalOldSelf: bool | None = None
    """Whether `oldSelf` is an optional, so that the rule also holds for new values."""


class JSONSchemaProps(Model):
    """The schema of one value."""

    id: str = ""
    """Not allowed in a CRD."""
    schema_: str = msgspec.field(default="", name="$schema")
    """Address of the dialect."""
    ref: str | None = msgspec.field(default=None, name="$ref")
    """Not allowed in a CRD."""
    description: str = ""
    """A human-readable description of the value."""
    type: str = ""
    """One of array, boolean, integer, number, object, string."""
    format: str = ""
    """A narrower type: int32, int64, date-time, ipv4, uuid, ..."""
    title: str = ""
    """A name for people."""
    default: Json = None
    """The value that an absent field gets."""
    maximum: Number | None = None
    """The greatest number allowed."""
    exclusiveMaximum: bool = False
    """Whether the maximum itself is too great."""
    minimum: Number | None = None
    """The least number allowed."""
    exclusiveMinimum: bool = False
    """Whether the minimum itself is too small."""
    maxLength: int | None = None
    """The most characters a string may have."""
    minLength: int | None = None
    """The fewest characters a string may have."""
    pattern: str = ""
    """A regular expression that strings must match somewhere."""
    maxItems: int | None = None
    """The most elements a list may have."""
    minItems: int | None = None
    """The fewest elements a list may have."""
    uniqueItems: bool = False
    """Not allowed in a CRD; use x-kubernetes-list-type."""
    multipleOf: Number | None = None
    """Numbers must be a multiple of this."""
    enum: Sequence[Json] = ()
    """The only values allowed."""
    maxProperties: int | None = None
    """The most fields an object may have."""
    minProperties: int | None = None
    """The fewest fields an object may have."""
    required: Sequence[str] = ()
    """Fields that an object must have."""
    items: "JSONSchemaProps | None" = None
    """The schema of the elements of a list."""
    allOf: Sequence["JSONSchemaProps"] = ()
    """Schemas; the value must match all of them."""
    oneOf: Sequence["JSONSchemaProps"] = ()
    """Schemas; the value must match exactly one of them."""
    anyOf: Sequence["JSONSchemaProps"] = ()
    """Schemas; the value must match at least one of them."""
    not_: "JSONSchemaProps | None" = msgspec.field(default=None, name="not")
    """A schema that the value must not meet."""
    properties: Mapping[str, "JSONSchemaProps"] = {}
    """The schemas of the fields of an object."""
    additionalProperties: Json = None
    """The schema of all other fields of an object, or true for any value."""
    patternProperties: Mapping[str, "JSONSchemaProps"] = {}
    """Not allowed in a CRD."""
    dependencies: Mapping[str, Json] = {}
    """Not allowed in a CRD."""
    additionalItems: Json = None
    """Not allowed in a CRD."""
    definitions: Mapping[str, "JSONSchemaProps"] = {}
    """Not allowed in a CRD."""
    externalDocs: ExternalDocumentation | None = None
    """Where to read more."""
    example: Json = None
    """A value as it might be."""
    nullable: bool = False
    """Whether null is a value too."""
    preserve_unknown_fields: bool | None = msgspec.field(
        default=None, name="x-kubernetes-preserve-unknown-fields"
    )
    """True keeps fields that the schema does not name."""
    embedded_resource: bool = msgspec.field(default=False, name="x-kubernetes-embedded-resource")
    """Whether the object is itself a resource, with apiVersion, kind and metadata."""
    int_or_string: bool = msgspec.field(default=False, name="x-kubernetes-int-or-string")
    """Whether the value is an integer or a string."""
    list_map_keys: Sequence[str] = msgspec.field(default=(), name="x-kubernetes-list-map-keys")
    """The fields that identify an element of a list of type map."""
    list_type: str | None = msgspec.field(default=None, name="x-kubernetes-list-type")
    """How list elements are identified: atomic, set or map."""
    map_type: str | None = msgspec.field(default=None, name="x-kubernetes-map-type")
    """Whether an object has one owner (atomic) or one per field (granular)."""
    validations: Annotated[Sequence[ValidationRule], keyed("rule")] = msgspec.field(
        default=(), name="x-kubernetes-validations"
    )
    """Conditions in CEL."""


def additional(schema: JSONSchemaProps) -> JSONSchemaProps | None:
    """The schema of fields without a name in `properties`, if there is one."""
    written = schema.additionalProperties
    if isinstance(written, JSONSchemaProps):
        return written
    return msgspec.convert(written, JSONSchemaProps) if isinstance(written, dict) else None


def normal(schema: JSONSchemaProps) -> JSONSchemaProps:
    """The schema with its `additionalProperties` read as schemas too, so that unknown words go.

    Raises msgspec.ValidationError where one of them is no schema.
    """
    inner = {name: normal(each) for name, each in schema.properties.items()}
    return msgspec.structs.replace(
        schema,
        properties=inner,
        items=schema.items and normal(schema.items),
        additionalProperties=_normal_additional(schema.additionalProperties),
    )


def _normal_additional(written: Any) -> Any:
    if isinstance(written, dict):
        written = msgspec.convert(written, JSONSchemaProps)
    if isinstance(written, JSONSchemaProps):
        return normal(written)
    if written is None or isinstance(written, bool):
        return written
    raise msgspec.ValidationError("boolean or JSON schema expected")


def document(schema: JSONSchemaProps) -> dict[str, Any]:
    """The schema as plain JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(schema)
    return plain


def junctions(schema: JSONSchemaProps, path: str) -> Iterator[tuple[JSONSchemaProps, str]]:
    """The schemas under `not`, `allOf`, `oneOf` and `anyOf`, each with its path."""
    if schema.not_ is not None:
        yield schema.not_, f"{path}.not"
    for word in ("allOf", "oneOf", "anyOf"):
        for i, each in enumerate(getattr(schema, word)):
            yield each, f"{path}.{word}[{i}]"


def every(schema: JSONSchemaProps) -> Iterator[JSONSchemaProps]:
    """The schema and all schemas within it."""
    yield schema
    inner = [*schema.properties.values(), *(each for each, _ in junctions(schema, ""))]
    for each in (schema.items, additional(schema), *inner):
        if each is not None:
            yield from every(each)
