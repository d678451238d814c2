"""Dropping what a CRD's schema does not name, without a word about types.

Custom resources are not fitted as built-in kinds are: a value of a wrong type stays, for validation
to refuse (422) together with everything else that is wrong.
"""

from typing import Any, Final

from kedge.machinery.schema import Schema

_LIMIT: Final = 1 << 63


def prune(schema: Schema, document: dict[str, Any], unknown: list[str]) -> dict[str, Any]:
    """The part of the document that the schema names; paths of all else are added to `unknown`."""
    found: list[str] = []
    kept: dict[str, Any] = _pruned(schema, document, "", found)
    unknown.extend(sorted(found))
    return kept


def _pruned(schema: Schema | None, value: Any, path: str, unknown: list[str]) -> Any:
    if schema is not None and schema.type == "any":
        return _read(value)
    if isinstance(value, list):
        items = schema.items if schema is not None and schema.type == "list" else None
        return [_pruned(items, each, f"{path}[{i}]", unknown) for i, each in enumerate(value)]
    if isinstance(value, dict):
        return _pruned_object(schema, value, path, unknown)
    return _read(value)


def _read(value: Any) -> Any:
    """Return a value as upstream reads it: an integer beyond 64 bits is a fraction."""
    if isinstance(value, dict):
        return {name: _read(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_read(each) for each in value]
    if type(value) is int and not -_LIMIT <= value < _LIMIT:
        return float(value)
    return value


def _pruned_object(
    schema: Schema | None, value: dict[str, Any], path: str, unknown: list[str]
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, inner in value.items():
        at = f"{path}.{name}" if path else name
        field = schema.field(name) if schema is not None else None
        if field is not None:
            kept[name] = _pruned(field, inner, at, unknown)
        else:
            unknown.append(at)
    return kept
