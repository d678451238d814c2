"""From an OpenAPI schema to CEL: types, the sizes that it allows, and values."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.estimate import Path
from kedge.machinery.cel.tokens import RESERVED
from kedge.machinery.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    CelType,
    list_of,
    map_of,
    object_of,
)
from kedge.machinery.cel.values import (
    MapList,
    SetList,
    parse_duration,
    parse_timestamp,
)

MAX_REQUEST: Final = 3 << 20
_LARGEST: Final = MAX_REQUEST - 2
_STRING_LEAST: Final = 2
_FORMATS: Final = {
    # format: (type, smallest text, largest text)
    "byte": (BYTES, _STRING_LEAST, _LARGEST),
    "duration": (DURATION, 4, 32),
    "date": (TIMESTAMP, 12, 12),
    "date-time": (TIMESTAMP, 22, 32),
}

Schema = Mapping[str, Any]


class DeclaredType:
    """A type, how large its values may be, and the same of its parts."""

    __slots__ = ("element", "fields", "key", "least", "most", "type")

    def __init__(
        self,
        type: CelType,
        *,
        least: int,
        most: int = 0,
        element: "DeclaredType | None" = None,
        key: "DeclaredType | None" = None,
        fields: "Mapping[str, DeclaredType] | None" = None,
    ) -> None:
        self.type = type
        self.least = least
        """Bytes of the smallest value in JSON."""
        self.most = most
        """Elements or characters of the largest value."""
        self.element = element
        self.key = key
        self.fields = fields or {}

    def size(self, path: Path) -> int | None:
        """Return the largest size of the value at a path below this one; None if not known."""
        node: DeclaredType | None = self
        for name in path[1:]:
            if node is None:
                return None
            if name in ("@items", "@values"):
                node = node.element
            elif name == "@keys":
                node = node.key
            else:
                node = node.fields.get(name)
        return None if node is None else node.most

    def cardinality(self) -> int:
        """Return how many such values fit into a request."""
        return MAX_REQUEST // (self.least + 1)


_KEY: Final = DeclaredType(STRING, least=_STRING_LEAST, most=0)
"""The key of a map. Upstream's estimates take keys for empty, and real CRDs rely on it."""
_META: Final = {
    "kind": {"type": "string"},
    "apiVersion": {"type": "string"},
    "metadata": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
    },
}


def with_meta(schema: Schema) -> dict[str, Any]:
    """Return the schema of a whole object: with kind, apiVersion, and a little metadata."""
    return {**schema, "properties": {**schema.get("properties", {}), **_META}}


def declared_type(
    schema: Schema, *, root: bool = False, name: str = "object"
) -> DeclaredType | None:
    """Return the type that a schema stands for; None if it stands for none."""
    if schema.get("x-kubernetes-int-or-string"):
        most = schema.get("maxLength")
        return DeclaredType(DYN, least=1, most=_LARGEST if most is None else max(0, most) * 4)
    if root:
        schema = with_meta(schema)
    kind = schema.get("type")
    if kind == "array":
        return _array(schema, name)
    if kind == "object":
        return _object(schema, name)
    if kind == "string":
        return _string(schema)
    simple = {"boolean": (BOOL, 4), "number": (DOUBLE, 1), "integer": (INT, 1)}.get(str(kind))
    return None if simple is None else DeclaredType(simple[0], least=simple[1])


def _inner(schema: Schema, name: str) -> DeclaredType | None:
    root = bool(schema.get("x-kubernetes-embedded-resource"))
    return declared_type(schema, root=root, name=name)


def _array(schema: Schema, name: str) -> DeclaredType | None:
    items = schema.get("items")
    element = _inner(items, f"{name}.@idx") if isinstance(items, Mapping) else None
    if element is None:
        return None
    most = schema.get("maxItems")
    most = _LARGEST // (element.least + 1) if most is None else max(0, most)
    return DeclaredType(list_of(element.type), least=2, most=most, element=element)


def _object(schema: Schema, name: str) -> DeclaredType | None:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        element = _inner(values, f"{name}.@elem")
        if element is None:
            return None
        most = schema.get("maxProperties")
        most = _LARGEST // (element.least + 6) if most is None else max(0, most)
        type = map_of(STRING, element.type)
        return DeclaredType(type, least=2, most=most, element=element, key=_KEY)
    fields: dict[str, DeclaredType] = {}
    keys: dict[str, str] = {}
    least, required = 2, set(schema.get("required", ()))
    for field, inner in schema.get("properties", {}).items():
        found = _inner(inner, f"{name}.{field}")
        if found is None:
            continue
        escaped = escape(field)
        if escaped is not None:
            fields[escaped] = found
            if escaped != field:
                keys[escaped] = field
        if field in required and inner.get("default") is None:
            least += len(field.encode()) + found.least + 4
    types = {field: found.type for field, found in fields.items()}
    # A field may be named by a reserved word as it is, where the grammar allows that.
    for escaped, field in list(keys.items()):
        if field in _RESERVED:
            types[field] = types[escaped]
    return DeclaredType(object_of(name, types, keys), least=least, fields=fields)


def _string(schema: Schema) -> DeclaredType:
    length = schema.get("maxLength")
    special = _FORMATS.get(schema.get("format", ""))
    if special is not None:
        type, least, most = special
        if type is BYTES and length is not None:
            most = max(0, length)
        return DeclaredType(type, least=least, most=most)
    if length is not None:
        most = max(0, length) * 4
    elif schema.get("enum"):
        texts = [each for each in schema["enum"] if isinstance(each, str)]
        most = max((len(each.encode()) for each in texts), default=0)
    else:
        most = _LARGEST
    return DeclaredType(STRING, least=_STRING_LEAST, most=most)


# Names of fields.

_RESERVED: Final = RESERVED
_PLAIN: Final = re.compile("[A-Za-z_][A-Za-z0-9_./-]*").fullmatch
_ESCAPED: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_TO_ESCAPE: Final = re.compile(r"__|[./-]")


def escape(name: str) -> str | None:
    """Return the name of a property in expressions; None if they cannot name it."""
    if _PLAIN(name) is None:
        return None
    if name in _RESERVED:
        return f"__{name}__"
    return _TO_ESCAPE.sub(lambda match: _ESCAPED[match[0]], name)


# Values.

Convert = Callable[[Any], Any]


def converter(schema: Schema) -> Convert | None:
    """Return what makes values of documents; None if documents are the values."""
    if schema.get("x-kubernetes-int-or-string"):
        return None
    kind = schema.get("type")
    if kind == "string":
        return _CONVERTED.get(schema.get("format", ""))
    if kind == "number":
        return float
    if kind == "array":
        return _list_converter(schema)
    if kind == "object":
        return _object_converter(schema)
    return None


def _list_converter(schema: Schema) -> Convert | None:
    items = schema.get("items")
    inner = converter(items) if isinstance(items, Mapping) else None
    kind = schema.get("x-kubernetes-list-type")
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    if kind not in ("set", "map"):
        return None if inner is None else lambda values: [inner(each) for each in values]
    each_of = inner or (lambda value: value)
    if kind == "set":
        return lambda values: SetList([each_of(each) for each in values])
    return lambda values: MapList([each_of(each) for each in values], keys)


def _object_converter(schema: Schema) -> Convert | None:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        inner = converter(values)
        if inner is None and not values.get("nullable"):
            return None
        one = inner or (lambda value: value)
        return lambda document: {
            key: one(value) for key, value in document.items() if value is not None
        }
    properties = schema.get("properties", {})
    fields = {name: found for name, inner in properties.items() if (found := converter(inner))}
    nullable = any(inner.get("nullable") for inner in properties.values())
    if not fields and not nullable:
        return None

    def convert(document: dict[str, Any]) -> dict[str, Any]:
        return {
            key: fields[key](value) if key in fields else value
            for key, value in document.items()
            if value is not None
        }

    return convert


def _bytes(text: Any) -> Any:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError, TypeError):
        raise CelError("failed to decode base64") from None


def _timestamp(text: Any) -> Any:
    try:
        return parse_timestamp(text if "T" in text.upper() else f"{text}T00:00:00Z")
    except (ValueError, AttributeError):
        raise CelError(f"Invalid date time format: {text}") from None


def _duration(text: Any) -> Any:
    try:
        return parse_duration(text)
    except (ValueError, TypeError):
        raise CelError(f"Invalid duration format: {text}") from None


_CONVERTED: Final[dict[str, Convert]] = {
    "byte": _bytes,
    "date": _timestamp,
    "date-time": _timestamp,
    "duration": _duration,
}
