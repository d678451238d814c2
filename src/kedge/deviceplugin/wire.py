"""Protocol buffers for small messages: dataclasses whose fields carry their numbers.

Own code instead of generated code, because packages called `v1beta1` and `v1` would meet those of
other plugins in the one pool that the protobuf library keeps for a whole process.
"""

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

M = TypeVar("M")

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIXTY_FOUR = 2**64


class Malformed(ValueError):
    """Bytes that are no such message."""


class _Field(NamedTuple):
    name: str
    number: int
    type: Any
    """Of one element."""
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
    # What is not said is empty, whatever it is in messages made here.
    found: dict[str, Any] = {
        field.name: "" for field in known.values() if field.type is str and not field.many
    }
    for number, wire, value in _parts(data):
        if number in known:
            _read(known[number], wire, value, found)
    return kind(**found)


@cache
def _fields(kind: type) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _field(field.name, hints[field.name])
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
    )


def _field(name: str, hint: Any) -> _Field:
    assert get_origin(hint) is Annotated
    kind, number = get_args(hint)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _Field(name, number, arguments[0], "")
    if origin is not None and issubclass(origin, Mapping):
        return _Field(name, number, str, "map")
    if origin is not None and issubclass(origin, Sequence):
        return _Field(name, number, arguments[0], "list")
    return _Field(name, number, kind, "")


# Writing.


def _written(field: _Field, value: Any) -> Iterator[bytes]:
    if field.many == "map":
        for key in sorted(value):
            yield _delimited(field.number, _pair(key, value[key]))
    elif field.many == "list" and field.type is int:
        if value:
            yield _delimited(field.number, b"".join(_varint(each % _SIXTY_FOUR) for each in value))
    elif field.many == "list":
        for each in value:
            yield _delimited(field.number, _bytes(each))
    elif field.type in (int, bool):
        if value:
            yield _varint(field.number << 3 | _VARINT) + _varint(int(value) % _SIXTY_FOUR)
    elif value is not None and value != "":
        yield _delimited(field.number, _bytes(value))


def _pair(key: str, value: str) -> bytes:
    return _delimited(1, key.encode()) + (_delimited(2, value.encode()) if value else b"")


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else encode(value)


def _delimited(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Reading.


def _read(field: _Field, wire: int, value: Any, found: dict[str, Any]) -> None:
    if field.type in (int, bool):
        _read_numbers(field, wire, value, found)
        return
    if wire != _BYTES:
        raise Malformed(f"field {field.number} has wire type {wire}")
    if field.many == "map":
        pair = {number: content for number, kind, content in _parts(value) if kind == _BYTES}
        found.setdefault(field.name, {})[_text(pair.get(1, b""))] = _text(pair.get(2, b""))
        return
    read = _text(value) if field.type is str else decode(field.type, value)
    if field.many:
        found.setdefault(field.name, []).append(read)
    else:
        found[field.name] = read


def _read_numbers(field: _Field, wire: int, value: Any, found: dict[str, Any]) -> None:
    packed = wire == _BYTES and field.many
    if not packed and wire != _VARINT:
        raise Malformed(f"field {field.number} has wire type {wire}")
    numbers = [_signed(each) for each in (_varints(value) if packed else (value,))]
    if field.many:
        found.setdefault(field.name, []).extend(numbers)
    elif numbers:
        found[field.name] = bool(numbers[-1]) if field.type is bool else numbers[-1]


def _signed(value: int) -> int:
    return value - _SIXTY_FOUR if value >= _SIXTY_FOUR // 2 else value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Malformed("a string that is no UTF-8") from error


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _take_varint(data, at)
        yield value


def _parts(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of every field that the bytes hold."""
    at = 0
    while at < len(data):
        tag, at = _take_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _take_varint(data, at)
            yield number, wire, value
            continue
        if wire == _BYTES:
            length, at = _take_varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise Malformed(f"unknown wire type {wire}")
        if at + length > len(data):
            raise Malformed("the message ends too early")
        yield number, wire, data[at : at + length]
        at += length


def _take_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _SIXTY_FOUR, at
        shift += 7
    raise Malformed("a number that does not end")
