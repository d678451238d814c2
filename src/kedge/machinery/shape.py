"""Fitting a document to its Schema: only declared fields, right types, canonical scalars."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from kedge.machinery import durations
from kedge.machinery.quantity import FORMAT_WRONG, Quantity
from kedge.machinery.schema import Schema

Path = tuple["Path", str | int] | None
"""A path as linked pairs of names and indices: spelled out only when there is something to say."""

MAX_DEPTH = 100


class AsMapping(str):
    """A path at which a list is written as a mapping: declared, but only kedge takes it."""


class TypeMismatch(Exception):
    """A value of another type than the schema declares."""

    def __init__(
        self, path: Path, value: object, schema: Schema, why: str = "", read_as: str = ""
    ) -> None:
        super().__init__()
        self.field = spell(path)
        self.value = value
        self.go_type = read_as or _go_type(schema)
        """The type that Go would name."""
        self.owner: Schema | None = None
        """The innermost object with declared fields around the value."""
        self._schema = schema
        self._why = why
        self.way: list[tuple[str, str]] = []
        """The fields that lead to the value: the name of the type of each, and its own."""

    def passing(self, owner: Schema, name: str) -> None:
        """Prepend the field `name` of `owner` to the path of the error."""
        self.owner = self.owner or owner
        self.way.insert(0, (owner.name, name))

    @property
    def member(self) -> str:
        """The field of the owner that has or contains the value."""
        return self.way[-1][1] if self.way else ""

    @property
    def levels(self) -> int:
        """How many lists and maps are between the field and the value."""
        field = self.owner.fields.get(self.member) if self.owner is not None else None
        found = 0
        while field is not None and field is not self._schema and field.type in ("list", "map"):
            field, found = field.items, found + 1
        return found

    def __str__(self) -> str:
        if self._why:
            return self._why
        if not self.way:
            return f"json: cannot unmarshal {self._what} into Go value of type {self.go_type}"
        # Go names the innermost struct, then the fields that lead there without any indices.
        owner = self.owner.name.rpartition(".")[2] if self.owner is not None else ""
        names = [name for _, name in self.way]
        place = ".".join([owner or self.field.rpartition(".")[2], *names])
        return (
            f"json: cannot unmarshal {self._what} into Go struct field {place} "
            f"of type {self.go_type}"
        )

    @property
    def _what(self) -> str:
        """The type of the given value. Go names a number only where it expects one."""
        what = json_type(self.value)
        expected = self._schema.type in ("integer", "number", "int-or-string")
        return f"{what} {self.value}" if what == "number" and expected else what

    @property
    def restored(self) -> str:
        """Return the error of Go if it restores the value from a parsed document, as it does
        after a strategic merge patch."""
        if self._why:
            return self._why
        if self._schema.type in _OWN_READERS:
            return f"json: cannot unmarshal {self._what} into Go value of type {self.go_type}"
        given, wanted = _go_kind(self.value), self._schema.type
        match wanted:
            case "object":
                return f"cannot restore struct from: {given}"
            case "map":
                return f"cannot restore map from {given}"
            case "list" | "bytes":
                return f"cannot restore slice from {given}"
        # Go converts integers to strings and numbers to each other, though not here.
        convertible = (given, wanted) in _CONVERTIBLE
        if convertible:
            return f"cannot convert {given} to {self.go_type}"
        return f"unrecognized type: {_go_type(self._schema)}"


_CONVERTIBLE = {("int64", "string"), ("float64", "integer"), ("int64", "integer")}
_OWN_READERS = ("quantity", "time", "micro-time", "int-or-string", "any")
"""Types that parse their values themselves, wherever they come from."""


class UnknownFields(list[str]):
    """Paths of unknown fields of a document, up to a limit."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def append(self, path: str) -> None:
        if len(self) < self._most:
            super().append(path)

    def extend(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.append(path)


def fit(schema: Schema, document: dict[str, Any], unknown: list[str]) -> dict[str, Any]:
    """The part of the document that the schema declares; paths of all else are added to `unknown`,
    and an AsMapping for each list that is written as a mapping.

    Nulls mean "not set" and go, as do empty lists and maps of built-in kinds, which Kubernetes
    leaves off the wire. Raises TypeMismatch at the first value of a wrong type.
    """
    fitted: dict[str, Any] = _FITTERS[schema.type](schema, document, None, unknown, MAX_DEPTH - 1)
    return fitted


def spell(path: Path) -> str:
    """`spec.containers[0].image`, as Kubernetes writes field paths."""
    parts: list[str | int] = []
    while path is not None:
        path, part = path
        parts.append(part)
    text = ""
    for part in reversed(parts):
        if type(part) is int:
            text += f"[{part}]"
        else:
            text += f".{part}" if text else str(part)
    return text


def _fit_object(
    schema: Schema, value: Any, path: Path, unknown: list[str], depth: int
) -> dict[str, Any]:
    if type(value) is not dict:
        raise TypeMismatch(path, value, schema)
    if depth <= 0:
        raise _too_deep(path, value, schema)
    fields = schema.fields
    fitted: dict[str, Any] = {}
    for name, inner in value.items():
        field = fields.get(name)
        if type(inner) is str and field is not None and field.type == "string":
            fitted[name] = inner  # what most values are, without a call for each
        elif field is None:
            if schema.open or (schema.embedded and name in ("apiVersion", "kind", "metadata")):
                fitted[name] = _fit_any(schema, inner, (path, name), unknown, depth - 1)
            else:
                unknown.append(spell((path, name)))
        elif inner is not None:
            try:
                member = _FITTERS[field.type](field, inner, (path, name), unknown, depth - 1)
            except TypeMismatch as misfit:
                misfit.passing(schema, name)
                raise
            if member or field.keep_empty or not (field.type == "list" or field.type == "map"):
                fitted[name] = member
        elif field.nullable:
            fitted[name] = None
    return fitted


def _fit_list(schema: Schema, value: Any, path: Path, unknown: list[str], depth: int) -> list[Any]:
    if type(value) is not list:
        if schema.pairs is None or type(value) is not dict:
            raise TypeMismatch(path, value, schema)
        unknown.append(AsMapping(spell(path)))
        name, content = schema.pairs
        value = [{name: key, content: inner} for key, inner in value.items()]
    if depth <= 0:
        raise _too_deep(path, value, schema)
    elements: list[Any] = value
    items = schema.items
    assert items is not None
    if None in elements and not items.nullable:
        elements = [zero_of(items) if each is None else each for each in elements]
    if items.type == "string":
        for i, element in enumerate(elements):
            if type(element) is not str:
                raise TypeMismatch((path, i), element, items)
        return elements
    fitter, left = _FITTERS[items.type], depth - 1
    return [fitter(items, element, (path, i), unknown, left) for i, element in enumerate(elements)]


def _fit_map(
    schema: Schema, value: Any, path: Path, unknown: list[str], depth: int
) -> dict[str, Any]:
    if type(value) is not dict:
        raise TypeMismatch(path, value, schema)
    if depth <= 0:
        raise _too_deep(path, value, schema)
    items = schema.items
    assert items is not None
    if items.type == "string" and {*map(type, value.values())} == {str}:
        return value
    if None in value.values() and not items.nullable:
        zero = zero_of(items)
        value = {name: zero if element is None else element for name, element in value.items()}
    fitter, left = _FITTERS[items.type], depth - 1
    return {
        name: fitter(items, element, (path, name), unknown, left) for name, element in value.items()
    }


_ZEROS: dict[str, Any] = {
    "object": {},
    "list": [],
    "map": {},
    "string": "",
    "bytes": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "quantity": 0,
    "int-or-string": 0,
}


def zero_of(schema: Schema) -> Any:
    """Return what Go reads a null as in a list or map, where it cannot mean "not set"."""
    return _ZEROS.get(schema.type)


def _fit_any(schema: Schema, value: Any, path: Path, unknown: list[str], depth: int) -> Any:
    """Any value as it is, but nothing that cannot be written down again."""
    if type(value) is dict or type(value) is list:
        if depth <= 0:
            raise _too_deep(path, value, schema)
        for inner in value.values() if type(value) is dict else value:
            _fit_any(schema, inner, path, unknown, depth - 1)
    elif type(value) is int and not -(2**63) <= value < 2**64:
        raise TypeMismatch(path, value, schema, f"number {value} is out of range")
    return value


def _too_deep(path: Path, value: Any, schema: Schema) -> TypeMismatch:
    return TypeMismatch(path, value, schema, f"exceeded max depth of {MAX_DEPTH}")


def _fit_string(schema: Schema, value: Any, path: Path, *_: Any) -> str:
    if type(value) is str:
        return value
    raise TypeMismatch(path, value, schema)


def _fit_integer(schema: Schema, value: Any, path: Path, *_: Any) -> int:
    bound = 2**31 if schema.format == "int32" else 2**63
    if type(value) is int and -bound <= value < bound:
        return value
    raise TypeMismatch(path, value, schema)


def integral(number: float) -> int | float:
    """Return 2 for 2.0: how Go writes that number as JSON."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _fit_number(schema: Schema, value: Any, path: Path, *_: Any) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    raise TypeMismatch(path, value, schema)


def _fit_boolean(schema: Schema, value: Any, path: Path, *_: Any) -> bool:
    if type(value) is bool:
        return value
    raise TypeMismatch(path, value, schema)


def _fit_quantity(schema: Schema, value: Any, path: Path, *_: Any) -> str:
    if type(value) not in (str, int, float):
        raise TypeMismatch(path, value, schema, FORMAT_WRONG)
    try:
        return str(Quantity.of(value))
    except ValueError as error:
        raise TypeMismatch(path, value, schema, str(error)) from None


def _fit_int_or_string(schema: Schema, value: Any, path: Path, *_: Any) -> int | str:
    if type(value) is str or (type(value) is int and -(2**31) <= value < 2**31):
        return value
    raise TypeMismatch(path, value, schema, read_as="int32")


def _fit_time(schema: Schema, value: Any, path: Path, *_: Any) -> str:
    if type(value) is not str:
        raise TypeMismatch(path, value, schema, read_as="string")
    try:
        moment = durations.parse_time(value)
    except ValueError:
        layout = _TIME_LAYOUTS[schema.type]
        why = f'parsing time {json.dumps(value)} as "{layout}": {_time_fault(value, layout)}'
        raise TypeMismatch(path, value, schema, why) from None
    return (durations.format_micro_time if schema.type == "micro-time" else durations.format_time)(
        moment
    )


_TIME_LAYOUTS = {
    "time": "2006-01-02T15:04:05Z07:00",
    "micro-time": "2006-01-02T15:04:05.000000Z07:00",
}
_TIME_PARTS = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d{2}"),
    ("-", "-"),
    ("02", r"\d{2}"),
    ("T", "T"),
    ("15", r"\d{2}"),
    (":", ":"),
    ("04", r"\d{2}"),
    (":", ":"),
    ("05", r"\d{2}(?:[.,]\d+)?"),
)


def _time_fault(value: str, layout: str) -> str:
    """Where the text stops to follow the layout, as Go says it."""
    rest = value
    for part, pattern in _TIME_PARTS:
        found = re.match(pattern, rest)
        if found is None:
            return f"cannot parse {json.dumps(rest)} as {json.dumps(part)}"
        rest = rest[found.end() :]
    zone = re.match(r"Z|[+-]\d{2}:\d{2}", rest)
    if zone is None:
        fraction = ".000000" if ".000000" in layout and "." not in value else ""
        return f"cannot parse {json.dumps(rest)} as {json.dumps(fraction or 'Z07:00')}"
    if rest[zone.end() :]:
        return f"extra text: {json.dumps(rest[zone.end() :])}"
    return ": day out of range"


def _fit_bytes(schema: Schema, value: Any, path: Path, *_: Any) -> str:
    if type(value) is not str:
        raise TypeMismatch(path, value, schema)
    try:
        # Go's decoder skips line breaks, and so must we.
        plain = value.replace("\n", "").replace("\r", "") if "\n" in value else value
        base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        raise TypeMismatch(path, value, schema, "illegal base64 data at input byte 0") from None
    return plain


_FITTERS: dict[str, Callable[[Schema, Any, Path, list[str], int], Any]] = {
    "object": _fit_object,
    "list": _fit_list,
    "map": _fit_map,
    "any": _fit_any,
    "string": _fit_string,
    "integer": _fit_integer,
    "number": _fit_number,
    "boolean": _fit_boolean,
    "quantity": _fit_quantity,
    "int-or-string": _fit_int_or_string,
    "time": _fit_time,
    "micro-time": _fit_time,
    "bytes": _fit_bytes,
}


def json_type(value: object) -> str:
    """Return the type of a JSON value as errors of Go name it."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "null"


def _go_kind(value: object) -> str:
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int():
            return "int64"
        case float():
            return "float64"
        case list():
            return "slice"
        case _:
            return "map"


def _go_type(schema: Schema) -> str:
    match schema.type:
        case "integer":
            return schema.format or "int64"
        case "number":
            return "float64"
        case "boolean":
            return "bool"
        case "list":
            assert schema.items is not None
            return f"[]{_go_type(schema.items)}"
        case "map":
            assert schema.items is not None
            return f"map[string]{_go_type(schema.items)}"
        case "object":
            version, _, name = schema.name.rpartition(".")
            return f"{version.rpartition('.')[2]}.{name}" if name else "object"
        case "quantity":
            return "resource.Quantity"
        case "time":
            return "v1.Time"
        case "micro-time":
            return "v1.MicroTime"
        case "bytes":
            return "[]uint8"
        case "int-or-string":
            return "intstr.IntOrString"
        case _:
            return "string"
