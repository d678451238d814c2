"""The defaults of a CRD's schema, put where an object has nothing."""

from copy import deepcopy
from typing import Any

from kedge.machinery.schema import ANY, Schema

_ABSENT = object()


def apply_defaults(schema: Schema, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with defaults filled in.

    Values that are present stay. A null in a field that is not nullable counts as absent: the
    default replaces it or, without a default, it is removed.
    """
    filled: dict[str, Any] = _filled(schema, document)
    return filled


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
        if inner is None and field is not None and field is not ANY and not field.nullable:
            continue  # what has a default gets it below
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
