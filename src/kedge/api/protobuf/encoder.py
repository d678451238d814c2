"""Documents encoded as protobuf, for clients that prefer it to JSON.

A field that a document lacks is not sent, and Go gives it its zero value, as it does for JSON. So
the result means the same to a client as the document. It is not the same bytes that
kube-apiserver sends: that sends zeros of fields that are no pointers, too.
"""

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from kedge.api.protobuf.messages import MAGIC, MessageField, fields_of
from kedge.machinery.durations import parse_duration, parse_time
from kedge.machinery.protobuf_wire import (
    BYTES,
    FIXED64,
    VARINT,
    bytes_field,
    bytes_head,
    encode_varint,
)

Write = Callable[[Any], bytes]
"""Returns the bytes of a value: those of a field with tag and length, or of a message."""

ENVELOPE_END: Final = bytes_field(3, b"") + bytes_field(4, b"")
"""The fields after the message in its envelope: no content encoding, and no content type."""
_WIRE_TYPES: Final = {"int": VARINT, "bool": VARINT, "double": FIXED64}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LENGTHS: Final = tuple(encode_varint(length) for length in range(1 << 10))


def encode(message: str, document: Mapping[str, Any]) -> bytes:
    """Return a document as a message, without the envelope that names its kind."""
    return _message(message)(document)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return a message as clients expect it: with its kind before it."""
    return envelope_head(api_version, kind, len(raw)) + raw + ENVELOPE_END


def envelope_head(api_version: str, kind: str, length: int) -> bytes:
    """Return what precedes a message of that length in its envelope."""
    type_meta = bytes_field(1, api_version.encode()) + bytes_field(2, kind.encode())
    return MAGIC + bytes_field(1, type_meta) + bytes_head(2, length)


@cache
def _message(message: str) -> Write:
    """Return the function that encodes documents of one message.

    The fields are looked up when the first document is encoded, since messages may contain
    themselves. Several threads encode: the fields are visible to them when they are complete, and
    a second look-up by another thread does no harm.
    """
    known = fields_of(message)
    if all(field.name == "*" for field in known.values()) and known:
        return _wrapper(known)
    found: list[_MessageFields] = []

    def write(document: Mapping[str, Any]) -> bytes:
        if not found:
            found.append(_prepared(known))
        own, inline = found[0]
        parts = [
            field(value)
            for name, value in document.items()
            if value is not None and (field := own.get(name)) is not None
        ]
        for tag, inner in inline:
            if content := inner(document):
                parts += (tag, _length(content), content)
        return b"".join(parts)

    return write


class _MessageFields(NamedTuple):
    """The functions that encode the fields of a message."""

    own: Mapping[str, Write]
    inline: Sequence[tuple[bytes, Write]]
    """Messages whose fields appear among those of this one, with their tags."""


def _prepared(known: Mapping[int, MessageField]) -> _MessageFields:
    own: dict[str, Write] = {}
    inline: list[tuple[bytes, Write]] = []
    for number, field in known.items():
        if field.name == ".":
            inline.append((_tag(number, BYTES), _message(field.type)))
        else:
            own[field.name] = _field(number, field)
    return _MessageFields(own, inline)


def _wrapper(known: Mapping[int, MessageField]) -> Write:
    """Return the function for a message that JSON shows as the value of one of its fields."""
    choices = {_shape(field): _field(number, field) for number, field in known.items()}

    def write(value: Any) -> bytes:
        shape = "list" if isinstance(value, list) else type(value).__name__
        content = choices[shape](value) if shape in choices else b""
        # JSONSchemaPropsOrBool: a schema allows what it describes.
        return choices["bool"](True) + content if "bool" in choices and shape == "dict" else content

    return write


def _shape(field: MessageField) -> str:
    """Return the type of the Python value that a field of a wrapper holds."""
    return field.many or ("bool" if field.type == "bool" else "dict")


def _field(number: int, field: MessageField) -> Write:
    value = _value(field.type)
    wire = _WIRE_TYPES.get(field.type, BYTES)
    tag = _tag(number, wire)
    one = _delimited(tag, value) if wire == BYTES else _bare(tag, value)
    match field.many:
        case "list":
            return lambda elements: b"".join([one(_element(each, field.type)) for each in elements])
        case "map":
            return _map(_tag(number, BYTES), _field(2, field._replace(many="")))
        case _:
            return one


def _element(value: Any, type_: str) -> Any:
    """Return an element of a list; Go reads null as the zero value."""
    if value is not None:
        return value
    return {"string": "", "int": 0, "bool": False, "double": 0.0}.get(type_, {})


def _delimited(tag: bytes, value: Write) -> Write:
    def write(content: Any) -> bytes:
        encoded = value(content)
        return tag + _length(encoded) + encoded

    return write


def _bare(tag: bytes, value: Write) -> Write:
    return lambda content: tag + value(content)


def _map(tag: bytes, value: Write) -> Write:
    def write(pairs: Mapping[str, Any]) -> bytes:
        parts: list[bytes] = []
        for key, element in pairs.items():
            name = key.encode()
            entry = b"\x0a" + _length(name) + name + (b"" if element is None else value(element))
            parts += (tag, _length(entry), entry)
        return b"".join(parts)

    return write


def _tag(number: int, wire: int) -> bytes:
    return encode_varint(number << 3 | wire)


def _length(content: bytes) -> bytes:
    length = len(content)
    return _LENGTHS[length] if length < len(_LENGTHS) else encode_varint(length)


def _value(type_: str) -> Write:
    """Return the function that encodes a value, without tag and length."""
    match type_:
        case "string":
            return str.encode
        case "int" | "bool":
            return encode_varint
        case "double":
            return struct.Struct("<d").pack
        case "bytes":
            return base64.b64decode
        case "json":
            return lambda value: bytes_field(1, msgspec.json.encode(value))
        case "quantity":
            return lambda value: bytes_field(1, str(value).encode())
        case "int-or-string":
            return _int_or_string
        case "time" | "micro-time":
            return _time
        case "duration":
            return lambda value: b"\x08" + encode_varint(parse_duration(value))
        case message:
            return _later(message)


def _later(message: str) -> Write:
    """Return the function of a message that is looked up on first use: messages may contain
    themselves."""
    return lambda value: _message(message)(value)


def _int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + bytes_field(3, value.encode())
    return b"\x08\x00\x10" + encode_varint(value) + b"\x1a\x00"


def _time(text: str) -> bytes:
    since = parse_time(text) - _EPOCH
    # Days and seconds carry the sign; microseconds never do.
    seconds = since.days * 86400 + since.seconds
    return b"\x08" + encode_varint(seconds) + b"\x10" + encode_varint(since.microseconds * 1000)
