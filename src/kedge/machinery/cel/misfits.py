"""Values of another type than the schema declares: an expression that uses one fails.

A schema takes `1.0` for an integer, expressions do not. Upstream converts a value when an
expression reads it, so that only the rules that read it fail. Objects with such values are rare,
and all others are evaluated as they are.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.schema_types import Schema, converter
from kedge.machinery.cel.values import MapList, SetList

_NO_INTEGER: Final = "invalid data, expected int, got float64"
_NO_INT_OR_STRING: Final = (
    "invalid data, expected XIntOrString value to be either a string or integer"
)


class Misfit:
    """A value that cannot be used: every use of it in an expression raises the error."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def fail(self, *operands: object) -> NoReturn:
        raise CelError(self.why)

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = fail
    __add__ = __sub__ = __mul__ = __mod__ = __neg__ = __bool__ = __float__ = fail
    __radd__ = __rsub__ = __rmul__ = __rmod__ = __len__ = __iter__ = __int__ = fail
    cel_type = property(fail)


class GuardedMap(dict[str, Any]):
    """A map or an object that has misfits, whose members fail when they are read."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return value.fail() if type(value) is Misfit else value

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) and self[key] is not NotImplemented  # type: ignore[index]


def has_fraction(value: Any) -> bool:
    """Whether a document has a number that is written as a fraction."""
    kind = type(value)
    if kind is dict:
        return any(map(has_fraction, value.values()))
    if kind is list:
        return any(map(has_fraction, value))
    return kind is float


def guarded(schema: Schema, value: Any) -> Any:
    """Return a document as expressions see it, with misfits in place of wrong numbers."""
    if type(value) is float:
        if schema.get("x-kubernetes-int-or-string"):
            return Misfit(_NO_INT_OR_STRING)
        return Misfit(_NO_INTEGER) if schema.get("type") == "integer" else value
    if isinstance(value, list) and schema.get("type") == "array":
        return _guarded_list(schema, value)
    if isinstance(value, dict) and schema.get("type") == "object":
        return _guarded_map(schema, value)
    convert = converter(schema)
    return value if convert is None else convert(value)


def _guarded_list(schema: Schema, values: list[Any]) -> list[Any]:
    items = schema.get("items")
    made = [guarded(items, each) for each in values] if isinstance(items, Mapping) else values
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return SetList(made)
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    return MapList(made, keys) if kind == "map" else made


def _guarded_map(schema: Schema, document: dict[str, Any]) -> GuardedMap:
    values, properties = schema.get("additionalProperties"), schema.get("properties", {})
    made = GuardedMap()
    for key, value in document.items():
        inner = values if isinstance(values, Mapping) else properties.get(key)
        if value is not None:
            made[key] = value if inner is None else guarded(inner, value)
    return made
