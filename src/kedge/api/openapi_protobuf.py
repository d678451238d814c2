"""OpenAPI 2 in protobuf, which kubectl reads if OpenAPI 3 has no document for a kind.

The numbers are those of gnostic's openapi.v2 messages, for the parts that kedge writes.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""How clients ask for it."""
CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""How it is answered; upstream spells it without the @."""

Json = Mapping[str, Any]
Writer = Callable[[int, Any], bytes]
"""Writes a value as the field of this number, its tag included."""
Fields = dict[str, tuple[int, Writer]]
"""The fields of a message by their names in JSON."""

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def encode(document: Json) -> bytes:
    """A document of version 2 as the message openapi.v2.Document."""
    return _body(_DOCUMENT, 16, document)


def _body(fields: Fields, extension: int, value: Json) -> bytes:
    """The fields of a message; those that begin with x- go into its vendor extensions."""
    parts = []
    for key, content in value.items():
        if key.startswith("x-"):
            parts.append(_named(_any)(extension, {key: content}))
        elif key in fields:
            number, write = fields[key]
            parts.append(write(number, content))
    return b"".join(parts)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _delimited(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _text(number: int, value: str) -> bytes:
    return _delimited(number, value.encode())


def _flag(number: int, value: bool) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(int(value))


def _integer(number: int, value: int) -> bytes:
    # Negative numbers are ten bytes long, as two's complement in 64 bits.
    return _varint(number << 3 | _VARINT) + _varint(value & (1 << 64) - 1)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def _any(number: int, value: Any) -> bytes:
    """A value of any type, as YAML: which JSON is."""
    return _delimited(number, _text(2, msgspec.json.encode(value).decode()))


def _message(fields: Fields, extension: int) -> Writer:
    return lambda number, value: _delimited(number, _body(fields, extension, value))


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
            content = _delimited(each, content)
        return _delimited(number, content)

    return written


def _named(write: Writer) -> Writer:
    """A mapping, which is a repeated message of name and value."""

    def written(number: int, values: Json) -> bytes:
        entries = (_text(1, name) + write(2, value) for name, value in values.items())
        return b"".join(_delimited(number, entry) for entry in entries)

    return written


def _type(number: int, value: str | list[str]) -> bytes:
    names = [value] if isinstance(value, str) else value
    return _delimited(number, _each(_text)(1, names))


def _items(number: int, value: Json | list[Json]) -> bytes:
    return _delimited(number, _each(_schema)(1, [value] if isinstance(value, Mapping) else value))


def _additional(number: int, value: Json | bool) -> bytes:
    written = _flag(2, value) if isinstance(value, bool) else _schema(1, value)
    return _delimited(number, written)


def _schema(number: int, value: Json) -> bytes:
    return _delimited(number, _body(_SCHEMA, 31, value))


def _parameter(number: int, value: Json) -> bytes:
    """A ParametersItem; what it holds depends on where the parameter is."""
    if "$ref" in value:
        return _delimited(number, _message(_REFERENCE, 0)(2, value))
    if value["in"] == "body":
        return _delimited(number, _inside(1, write=_message(_BODY_PARAMETER, 6))(1, value))
    if value["in"] == "query":
        return _delimited(number, _inside(2, 3, write=_message(_QUERY_PARAMETER, 23))(1, value))
    place = 4 if value["in"] == "path" else 1
    return _delimited(number, _inside(2, place, write=_message(_OTHER_PARAMETER, 22))(1, value))


_REFERENCE: Final[Fields] = {"$ref": (1, _text), "description": (2, _text)}

_SCHEMA: Final[Fields] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _flag),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _flag),
    "maxLength": (11, _integer),
    "minLength": (12, _integer),
    "pattern": (13, _text),
    "maxItems": (14, _integer),
    "minItems": (15, _integer),
    "uniqueItems": (16, _flag),
    "maxProperties": (17, _integer),
    "minProperties": (18, _integer),
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
    "required": (4, _flag),
    "schema": (5, _schema),
}

_QUERY_PARAMETER: Final[Fields] = {
    "required": (1, _flag),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (6, _text),
    "format": (7, _text),
}

_OTHER_PARAMETER: Final[Fields] = {
    "required": (1, _flag),
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
    "deprecated": (11, _flag),
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
