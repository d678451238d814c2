"""Protocol buffers for small messages: Structs or dataclasses whose fields carry their numbers.

Own code instead of generated code, because packages called `v1beta1` and `v1` would meet those of
other plugins in the one pool that the protobuf library keeps for a whole process.
"""

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from kedge.machinery.protobuf_wire import (
    BYTES,
    VARINT,
    bytes_field,
    decode_varint,
    encode_varint,
    fields,
    signed,
    varint_field,
)

M = TypeVar("M")


class Malformed(ValueError):
    """The bytes are not a message of this type."""


class _WireField(NamedTuple):
    name: str
    number: int
    type: Any
    """Of one element; of a map's values."""
    many: str
    """`list`, `map`, or nothing."""


def encode(message: object) -> bytes:
    """The message as bytes; fields that have their default stay off the wire."""
    return b"".join(
        part
        for field in _fields(type(message))
        for part in _written(field, getattr(message, field.name))
    )


def decode(kind: type[M], data: bytes) -> M:
    """The message in some bytes; fields of unknown numbers are skipped. Raises Malformed."""
    known = {field.number: field for field in _fields(kind)}
    # Absent strings are read as empty, whatever the default of messages made here.
    found: dict[str, Any] = {
        field.name: "" for field in known.values() if field.type is str and not field.many
    }
    try:
        for number, wire, value in fields(data):
            if number in known:
                _read(known[number], wire, value, found)
    except ValueError as error:
        raise Malformed(str(error)) from error
    return kind(**found)


_tables: dict[type, tuple[_WireField, ...]] = {}


def _fields(kind: Any) -> tuple[_WireField, ...]:
    table = _tables.get(kind)
    if table is None:
        hints = get_type_hints(kind, include_extras=True)
        table = tuple(_field(name, hints[name]) for name in _names(kind))
        _tables[kind] = table
    return table


def _names(kind: Any) -> Sequence[str]:
    if hasattr(kind, "__struct_fields__"):
        return tuple(kind.__struct_fields__)
    # Messages with secrets are dataclasses: those can leave a field out of their text.
    import dataclasses

    return [each.name for each in dataclasses.fields(kind)]


def _field(name: str, hint: Any) -> _WireField:
    assert get_origin(hint) is Annotated
    kind, number = get_args(hint)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _WireField(name, number, arguments[0], "")
    if origin is not None and issubclass(origin, Mapping):
        return _WireField(name, number, arguments[1], "map")
    if origin is not None and issubclass(origin, Sequence):
        return _WireField(name, number, arguments[0], "list")
    return _WireField(name, number, kind, "")


# Writing.


def _written(field: _WireField, value: Any) -> Iterator[bytes]:
    if field.many == "map":
        for key in sorted(value):
            yield bytes_field(field.number, _pair(key, _bytes(value[key])))
    elif field.many == "list" and field.type is int:
        if value:
            yield bytes_field(field.number, b"".join(map(encode_varint, value)))
    elif field.many == "list":
        for each in value:
            yield bytes_field(field.number, _bytes(each))
    elif field.type in (int, bool):
        if value:
            yield varint_field(field.number, int(value))
    elif value is not None and value not in ("", b""):
        yield bytes_field(field.number, _bytes(value))


def _pair(key: str, value: bytes) -> bytes:
    return bytes_field(1, key.encode()) + (bytes_field(2, value) if value else b"")


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else encode(value)


# Reading.


def _read(field: _WireField, wire: int, value: Any, found: dict[str, Any]) -> None:
    if field.type in (int, bool):
        _read_numbers(field, wire, value, found)
        return
    if wire != BYTES:
        raise Malformed(f"field {field.number} has wire type {wire}")
    if field.many == "map":
        pair = {number: content for number, kind, content in fields(value) if kind == BYTES}
        key, content = _text(pair.get(1, b"")), pair.get(2, b"")
        found.setdefault(field.name, {})[key] = _value(field, content)
        return
    read = _value(field, value)
    if field.many:
        found.setdefault(field.name, []).append(read)
    else:
        found[field.name] = read


def _value(field: _WireField, content: bytes) -> Any:
    if field.type is bytes:
        return bytes(content)
    return _text(content) if field.type is str else decode(field.type, content)


def _read_numbers(field: _WireField, wire: int, value: Any, found: dict[str, Any]) -> None:
    packed = wire == BYTES and field.many
    if not packed and wire != VARINT:
        raise Malformed(f"field {field.number} has wire type {wire}")
    numbers = [signed(each) for each in (_varints(value) if packed else (value,))]
    if field.many:
        found.setdefault(field.name, []).extend(numbers)
    elif numbers:
        found[field.name] = bool(numbers[-1]) if field.type is bool else numbers[-1]


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Malformed("a string that is no UTF-8") from error


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = decode_varint(data, at)
        yield value
