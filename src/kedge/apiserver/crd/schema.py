"""A CRD's openAPIV3Schema -> Schema: what objects of a custom kind may hold."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from kedge.api.model import ObjectMeta
from kedge.api.structs import schema_of
from kedge.machinery.schema import ANY, ListType, Schema, Type

_SCALARS: dict[str, Type] = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}
# Words that the Schema says in its own terms; all others are published as they stand.
_TOLD = frozenset(
    (
        "type",
        "format",
        "description",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "nullable",
        "default",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    )
)


def from_openapi(props: Mapping[str, Any]) -> Schema:
    """The schema of whole objects: apiVersion, kind and metadata are always there."""
    return _whole(_node(props))


def _whole(schema: Schema) -> Schema:
    """A resource, be it the object itself or one embedded in it."""
    head = {
        "apiVersion": Schema(type="string"),
        "kind": Schema(type="string"),
        "metadata": schema_of(ObjectMeta),
    }
    fields = {**schema.fields, **head}
    # The author's words on these three stay; their types are not the author's to choose.
    for name in head:
        if (said := schema.fields.get(name)) is not None and said.description:
            fields[name] = msgspec.structs.replace(head[name], description=said.description)
    return msgspec.structs.replace(schema, fields=fields)


def _node(props: Mapping[str, Any]) -> Schema:
    """Return the schema of a part, the same one for equal simple ones: most fields are strings."""
    if all(_is_short(value) for value in props.values()):
        return _shared_node(tuple((word, type(value), value) for word, value in props.items()))
    return _own_node(props)


def _is_short(value: object) -> bool:
    return type(value) in _PLAIN or (type(value) is str and len(value) <= _LONGEST_SHARED)


_PLAIN: Final = frozenset((int, float, bool))
_LONGEST_SHARED: Final = 64


@lru_cache(1024)
def _shared_node(props: tuple[tuple[str, type, Any], ...]) -> Schema:
    return _own_node({word: value for word, _, value in props})


def _own_node(props: Mapping[str, Any]) -> Schema:
    schema = _typed(props)
    schema.description = props.get("description") or ""
    schema.format = props.get("format") or ""
    schema.nullable = bool(props.get("nullable"))
    schema.default = props.get("default")
    schema.keywords = {word: value for word, value in props.items() if word not in _TOLD}
    return _whole(schema) if props.get("x-kubernetes-embedded-resource") else schema


def _typed(props: Mapping[str, Any]) -> Schema:
    type_ = props.get("type") or ""
    if props.get("x-kubernetes-int-or-string"):
        return Schema(type="int-or-string")
    if type_ in _SCALARS:
        return Schema(type=_SCALARS[type_])
    if type_ == "array":
        return _list(props)
    if type_ == "object" or props.get("properties"):
        return _object(props)
    return Schema(type="any")


def _object(props: Mapping[str, Any]) -> Schema:
    properties: Mapping[str, Any] = props.get("properties") or {}
    rest = props.get("additionalProperties")
    atomic = props.get("x-kubernetes-map-type") == "atomic"
    if not properties and rest is not None and rest is not False:
        items = _node(rest) if isinstance(rest, dict) else ANY
        return Schema(type="map", items=items, atomic=atomic, keep_empty=True)
    return Schema(
        type="object",
        fields={name: _node(field) for name, field in properties.items()},
        required=tuple(props.get("required") or ()),
        open=bool(props.get("x-kubernetes-preserve-unknown-fields")) or rest is True,
        embedded=bool(props.get("x-kubernetes-embedded-resource")),
        atomic=atomic,
    )


def _list(props: Mapping[str, Any]) -> Schema:
    items = _node(props.get("items") or {})
    if props.get("x-kubernetes-preserve-unknown-fields") and items.type == "object":
        items = msgspec.structs.replace(items, open=True)
    list_type: ListType = props.get("x-kubernetes-list-type") or "atomic"
    return Schema(
        type="list",
        items=items,
        list_type=list_type,
        list_keys=tuple(props.get("x-kubernetes-list-map-keys") or ()),
        keep_empty=True,
    )
