"""OpenAPI 2 in protobuf, which kubectl reads if OpenAPI 3 has no document for a kind.

The numbers are those of gnostic's openapi.v2 messages, for the parts that kedge writes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kedge.machinery.protobuf_wire import bytes_field, double_field, varint_field

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""In the Accept header of clients."""
CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""In the Content-Type header of answers; upstream writes it without the @."""

Json = Mapping[str, Any]
Writer = Callable[[int, Any], bytes]
"""Writes a value as the field of this number, its tag included."""
Fields = dict[str, tuple[int, Writer]]
"""The fields of a message by their names in JSON."""


def encode(document: Json) -> bytes:
    """Return an OpenAPI v2 document as the message openapi.v2.Document."""
    return _body(_DOCUMENT, 16, document)


def _body(fields: Fields, extension: int, value: Json) -> bytes:
    """Return the fields of a message; those that begin with x- are vendor extensions."""
    parts = []
    for key, content in value.items():
        if key.startswith("x-"):
            parts.append(_named(_any)(extension, {key: content}))
        elif key in fields:
            number, write = fields[key]
            parts.append(write(number, content))
    return b"".join(parts)


def _text(number: int, value: str) -> bytes:
    return bytes_field(number, value.encode())


def _any(number: int, value: Any) -> bytes:
    """Return a value of any type as YAML; JSON is valid YAML."""
    return bytes_field(number, _text(2, msgspec.json.encode(value).decode()))


def _message(fields: Fields, extension: int) -> Writer:
    return lambda number, value: bytes_field(number, _body(fields, extension, value))


def _each(write: Writer) -> Writer:
    """A repeated field."""

    def written(number: int, values: Iterable[Any]) -> bytes:
        return b"".join(write(number, value) for value in values)

    return written


def _inside(*numbers: int, write: Writer) -> Writer:
    """A value wrapped in messages whose only field it is."""
    *outer, inner = numbers

    def written(number: int, value: Any) -> bytes:
        content = write(inner, value)
        for each in reversed(outer):
            content = bytes_field(each, content)
        return bytes_field(number, content)

    return written


def _named(write: Writer) -> Writer:
    """A mapping, which is a repeated message of name and value."""

    def written(number: int, values: Json) -> bytes:
        entries = (_text(1, name) + write(2, value) for name, value in values.items())
        return b"".join(bytes_field(number, entry) for entry in entries)

    return written


def _type(number: int, value: str | list[str]) -> bytes:
    names = [value] if isinstance(value, str) else value
    return bytes_field(number, _each(_text)(1, names))


def _items(number: int, value: Json | list[Json]) -> bytes:
    return bytes_field(number, _each(_schema)(1, [value] if isinstance(value, Mapping) else value))


def _additional(number: int, value: Json | bool) -> bytes:
    written = varint_field(2, value) if isinstance(value, bool) else _schema(1, value)
    return bytes_field(number, written)


def _schema(number: int, value: Json) -> bytes:
    return bytes_field(number, _body(_SCHEMA, 31, value))


def _parameter(number: int, value: Json) -> bytes:
    """A ParametersItem; what it holds depends on where the parameter is."""
    if "$ref" in value:
        return bytes_field(number, _message(_REFERENCE, 0)(2, value))
    if value["in"] == "body":
        return bytes_field(number, _inside(1, write=_message(_BODY_PARAMETER, 6))(1, value))
    if value["in"] == "query":
        return bytes_field(number, _inside(2, 3, write=_message(_QUERY_PARAMETER, 23))(1, value))
    place = 4 if value["in"] == "path" else 1
    return bytes_field(number, _inside(2, place, write=_message(_OTHER_PARAMETER, 22))(1, value))


_REFERENCE: Final[Fields] = {"$ref": (1, _text), "description": (2, _text)}

_SCHEMA: Final[Fields] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _any),
    "multipleOf": (6, double_field),
    "maximum": (7, double_field),
    "exclusiveMaximum": (8, varint_field),
    "minimum": (9, double_field),
    "exclusiveMinimum": (10, varint_field),
    "maxLength": (11, varint_field),
    "minLength": (12, varint_field),
    "pattern": (13, _text),
    "maxItems": (14, varint_field),
    "minItems": (15, varint_field),
    "uniqueItems": (16, varint_field),
    "maxProperties": (17, varint_field),
    "minProperties": (18, varint_field),
    "required": (19, _each(_text)),
    "enum": (20, _each(_any)),
    "additionalProperties": (21, _additional),
    "type": (22, _type),
    "items": (23, _items),
    "allOf": (24, _each(_schema)),
    "properties": (25, _inside(1, write=_named(_schema))),
}

_BODY_PARAMETER: Final[Fields] = {
    "description": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, varint_field),
    "schema": (5, _schema),
}

_QUERY_PARAMETER: Final[Fields] = {
    "required": (1, varint_field),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (6, _text),
    "format": (7, _text),
}

_OTHER_PARAMETER: Final[Fields] = {
    "required": (1, varint_field),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "format": (6, _text),
}

_RESPONSE: Final[Fields] = {"description": (1, _text), "schema": (2, _inside(1, write=_schema))}

_OPERATION: Final[Fields] = {
    "tags": (1, _each(_text)),
    "summary": (2, _text),
    "description": (3, _text),
    "operationId": (5, _text),
    "produces": (6, _each(_text)),
    "consumes": (7, _each(_text)),
    "parameters": (8, _each(_parameter)),
    "responses": (9, _inside(1, write=_named(_inside(1, write=_message(_RESPONSE, 5))))),
    "schemes": (10, _each(_text)),
    "deprecated": (11, varint_field),
}

_operation: Final = _message(_OPERATION, 13)

_PATH_ITEM: Final[Fields] = {
    "get": (2, _operation),
    "put": (3, _operation),
    "post": (4, _operation),
    "delete": (5, _operation),
    "options": (6, _operation),
    "head": (7, _operation),
    "patch": (8, _operation),
    "parameters": (9, _each(_parameter)),
}

_API_KEY: Final[Fields] = {
    "type": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "description": (4, _text),
}

_INFO: Final[Fields] = {"title": (1, _text), "version": (2, _text), "description": (3, _text)}

_DOCUMENT: Final[Fields] = {
    "swagger": (1, _text),
    "info": (2, _message(_INFO, 7)),
    "paths": (8, _inside(2, write=_named(_message(_PATH_ITEM, 10)))),
    "definitions": (9, _inside(1, write=_named(_schema))),
    "security": (12, _each(_inside(1, write=_named(_inside(1, write=_each(_text)))))),
    "securityDefinitions": (
        13,
        _inside(1, write=_named(_inside(2, write=_message(_API_KEY, 5)))),
    ),
}
