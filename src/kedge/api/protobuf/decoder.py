"""Protobuf request bodies, decoded to the documents that the client would have sent as JSON.

Go always sends fields that are no pointers, so a zero tells nothing there and is dropped, unless
the field is marked as `pointer` or `kept` (`messages.py`).
"""

import base64
import math
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kedge.api.protobuf.messages import MAGIC, MessageField, fields_of, is_known, message_name
from kedge.machinery.durations import format_duration, format_micro_time, format_time
from kedge.machinery.protobuf_wire import BYTES, FIXED64, VARINT, decode_varint, fields, signed

_DEEPEST = 100
_WIRE_TYPES = {"int": VARINT, "bool": VARINT, "double": FIXED64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ABSENT = object()
"""Marks a value that JSON omits."""


def decode(body: bytes) -> dict[str, Any]:
    """Return the document in a request body; raises ValueError."""
    return _object(body, _DEEPEST)


def _object(body: bytes, depth: int) -> dict[str, Any]:
    if not body.startswith(MAGIC):
        prefix = " ".join(map(str, MAGIC))
        why = "provided data does not appear to be a protobuf message"
        raise ValueError(f"{why}, expected prefix [{prefix}]")
    api_version, kind, raw = _envelope(body[len(MAGIC) :])
    name = message_name(api_version, kind)
    document = _message(raw, name, depth) if is_known(name) else None
    if not isinstance(document, dict):
        raise ValueError(f'no kind "{kind}" is registered for version "{api_version}"')
    return {"apiVersion": api_version, "kind": kind, **document}


def _envelope(data: bytes) -> tuple[str, str, bytes]:
    """Return apiVersion, kind and bytes of the object in a body."""
    api_version, kind, raw = "", "", b""
    for number, wire, value in fields(data):
        if number == 1 and wire == BYTES:
            names = {n: v.decode() for n, w, v in fields(value) if w == BYTES}
            api_version, kind = names.get(1, ""), names.get(2, "")
        elif number == 2 and wire == BYTES:
            raw = value
        elif number == 3 and value:
            raise ValueError("encoded objects are not supported")
    return api_version, kind, raw


def _message(data: bytes, name: str, depth: int) -> Any:
    if depth == 0:
        raise ValueError("message is nested too deeply")
    document: dict[str, Any] = {}
    known = fields_of(name)
    whole = _whole(known)
    for number, wire, value in fields(data):
        field = known.get(number)
        if field is None:
            continue
        if field.many == "list":
            elements = document.setdefault(field.name, [])
            elements += _elements(field, wire, value, depth)
        elif field.many == "map":
            key, element = _entry(field, _typed(BYTES, wire, value), depth)
            document.setdefault(field.name, {})[key] = element
        else:
            shown = _shown(field, _value(field.type, wire, value, depth))
            if field.name == ".":
                document |= shown
            elif shown is not _ABSENT:
                document[field.name] = shown
    return document.get("*", whole) if whole is not None else document


def _whole(known: dict[int, MessageField]) -> Any:
    """Return the value of an empty message whose one field stands for it; None for others."""
    first = known.get(1)
    if first is None or first.name != "*":
        return None
    return [] if first.many else _ABSENT


def _elements(field: MessageField, wire: int, value: Any, depth: int) -> Iterator[Any]:
    if wire == BYTES and field.type in _WIRE_TYPES:
        yield from _packed(field.type, value)
    else:
        element = _value(field.type, wire, value, depth)
        yield None if element is _ABSENT else element


def _packed(type_: str, data: bytes) -> Iterator[Any]:
    at = 0
    while at < len(data):
        if type_ == "double":
            value: Any = data[at : at + 8]
            at += 8
        else:
            value, at = decode_varint(data, at)
        yield _value(type_, _WIRE_TYPES[type_], value, 1)


def _entry(field: MessageField, data: bytes, depth: int) -> tuple[str, Any]:
    """Return one key and value of a map."""
    parts = {number: (wire, value) for number, wire, value in fields(data)}
    key = _value("string", *parts.get(1, (BYTES, b"")), depth)
    absent = (VARINT, 0) if field.type in ("int", "bool") else (BYTES, b"")
    element = _value(field.type, *parts.get(2, absent), depth)
    return key, None if element is _ABSENT else element


def _shown(field: MessageField, value: Any) -> Any:
    """Return the value of a single field, or _ABSENT if JSON omits it."""
    if field.pointer or field.kept or isinstance(value, dict | list):
        return value
    if field.name == "*":  # the choice between schema and bool: false is the answer, not its lack
        return value
    return value if value else _ABSENT


def _value(type_: str, wire: int, value: Any, depth: int) -> Any:
    value = _typed(_WIRE_TYPES.get(type_, BYTES), wire, value)
    match type_:
        case "string":
            return value.decode()
        case "int":
            return signed(value)
        case "bool":
            return value != 0
        case "double":
            return _double(value)
        case "bytes":
            return base64.b64encode(value).decode()
        case "json":
            return _json(value, depth)
        case "quantity":
            return _parts(value, "string").get(1, "")
        case "int-or-string":
            return _int_or_string(value)
        case "time" | "micro-time":
            return _time(value, type_)
        case "duration":
            return format_duration(_parts(value, "int").get(1, 0))
        case message:
            return _message(value, message, depth - 1)


def _typed(wanted: int, wire: int, value: Any) -> Any:
    if wire != wanted:
        raise ValueError(f"wrong wireType = {wire}")
    return value


def _double(data: bytes) -> float:
    if len(data) != 8:
        raise ValueError("unexpected EOF")
    (value,) = struct.unpack("<d", data)
    if not math.isfinite(value):
        raise ValueError("unsupported value: not a finite number")
    return float(value)


def _json(data: bytes, depth: int) -> Any:
    """Return the JSON document in the only field of a message."""
    raw = next((value for n, wire, value in fields(data) if (n, wire) == (1, BYTES)), b"")
    if not raw:
        return _ABSENT
    if raw.startswith(MAGIC):
        return _object(raw, depth - 1)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"invalid JSON: {error}") from None


def _int_or_string(data: bytes) -> int | str:
    numbers = _parts(data, "int")
    if numbers.get(1, 0) == 1:
        text: str = _parts(data, "string").get(3, "")
        return text
    number: int = numbers.get(2, 0)
    return number


def _time(data: bytes, type_: str) -> Any:
    # The zero of Go's time has no bytes at all; 1970 has.
    if not data:
        return _ABSENT
    parts = _parts(data, "int")
    seconds, nanoseconds = parts.get(1, 0), parts.get(2, 0)
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError:
        raise ValueError("time is out of range") from None
    return format_time(moment) if type_ == "time" else format_micro_time(moment)


def _parts(data: bytes, type_: str) -> dict[int, Any]:
    """Return the fields of a small message that have one type, by number."""
    wanted = _WIRE_TYPES.get(type_, BYTES)
    return {n: _value(type_, wire, v, 1) for n, wire, v in fields(data) if wire == wanted}
