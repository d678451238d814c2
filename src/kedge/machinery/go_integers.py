"""Integers as Go converts them from a parsed document: the result of an apply is not parsed again.

Numbers of 64 bits keep their lower 32 bits in a field of 32. Larger numbers are floats by then, and
become the least integer of 64 bits.
"""

from typing import Any, Final

from kedge.machinery.schema import Schema

_LEAST: Final = -(1 << 63)


def converted(schema: Schema, value: Any) -> Any:
    """Return a document with all integers in the ranges of their fields."""
    if schema.type == "integer":
        return _integer(value, schema.format)
    if isinstance(value, dict):
        return {
            key: converted(below, each) if (below := _below(schema, key)) is not None else each
            for key, each in value.items()
        }
    if isinstance(value, list) and schema.type == "list" and schema.items is not None:
        return [converted(schema.items, each) for each in value]
    return value


def _below(schema: Schema, key: str) -> Schema | None:
    return schema.items if schema.type == "map" else schema.fields.get(key)


def _integer(value: Any, format_: str) -> Any:
    is_whole = isinstance(value, float) and value.is_integer()
    if isinstance(value, bool) or not (isinstance(value, int) or is_whole):
        return value
    whole = int(value)
    if not _LEAST <= whole < -_LEAST:
        whole = _LEAST
    return (whole + (1 << 31)) % (1 << 32) - (1 << 31) if format_ == "int32" else whole
