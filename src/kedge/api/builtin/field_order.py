"""Documents with their fields in the order in which Kubernetes writes them."""

from typing import Any

from kedge.api.builtin import schemas
from kedge.machinery.schema import ANY, Schema


def in_order(document: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Return an object of a built-in type with the fields in order, and maps by name."""
    ordered: dict[str, Any] = _ordered(document, schema)
    return ordered


def _ordered(value: Any, schema: Schema) -> Any:
    if type(value) is list:
        items = schema.items or ANY
        return [_ordered(each, items) for each in value]
    if type(value) is not dict or schema.type == "any":
        return value
    if schema.type == "map":
        return {name: _ordered(value[name], schema.items or ANY) for name in sorted(value)}
    names = schemas.table().get(schema.name) or schema.fields
    known = [name for name in names if name in value]
    rest = [name for name in value if name not in names]
    return {name: _ordered(value[name], schema.field(name) or ANY) for name in (*known, *rest)}
