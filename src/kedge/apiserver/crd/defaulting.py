"""The defaults of a CRD's schema, put where an object has nothing."""

from copy import deepcopy
from typing import Any

from kedge.machinery.schema import ANY, Schema

_ABSENT = object()


def apply_defaults(schema: Schema, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with defaults filled in.

    Values that are present stay. A null in a field that is not nullable counts as absent, and the
    default replaces it. Without a default it stays, for validation to refuse: `without_nulls`
    removes it where a body is read.
    """
    filled: dict[str, Any] = _filled(schema, document)
    return filled


def without_nulls(schema: Schema, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without nulls in fields that are not nullable and have no default.

    Upstream removes them from bodies and from patched objects, but not from the result of a
    server-side apply, which it does not parse again.
    """
    bare: dict[str, Any] = _bare(schema, document)
    return bare


def _bare(schema: Schema | None, value: Any) -> Any:
    if schema is None or schema.type == "any":
        return value
    if isinstance(value, dict):
        return {
            name: inner if inner is None else _bare(schema.field(name), inner)
            for name, inner in value.items()
            if inner is not None or not _is_unset(schema.field(name))
        }
    if isinstance(value, list):
        return [_bare(schema.items, element) for element in value]
    return value


def _is_unset(field: Schema | None) -> bool:
    """Whether a null in a field says nothing."""
    if field is None or field is ANY or field.nullable:
        return False
    return field.default is None


def _filled(schema: Schema | None, value: Any) -> Any:
    if schema is None or schema.type == "any":
        return value
    if isinstance(value, dict):
        return _filled_object(schema, value)
    if isinstance(value, list):
        return [_filled_element(schema.items, element) for element in value]
    return value


def _filled_object(schema: Schema, value: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, inner in value.items():
        field = schema.field(name)
        if inner is None and field is not None and not field.nullable and field.default is not None:
            inner = deepcopy(field.default)
        result[name] = _filled(field, inner)
    for name, field in schema.fields.items():
        if field.default is not None and result.get(name, _ABSENT) is _ABSENT:
            # A default may be an object with defaults of its own.
            result[name] = _filled(field, deepcopy(field.default))
    return result


def _filled_element(items: Schema | None, element: Any) -> Any:
    """Elements keep their place, so a null without a default stays for validation to refuse."""
    if element is None and items is not None and not items.nullable:
        element = deepcopy(items.default)
    return _filled(items, element)
