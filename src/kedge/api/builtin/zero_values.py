"""Documents as Kubernetes writes them: which zero values are left out, and which are always there.

`zero_values.json` maps each type to its fields that are no pointers, one type per line;
tools/derive_zero_values.py writes it. A field is marked

    -            a zero value is left out
    s b i q n    an absent value is written as "", false, 0, "0" or null
    o            an absent value is written as an empty object
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from kedge.api.builtin.schemas import full_name
from kedge.machinery.schema import Schema

_ALWAYS: Final[Mapping[str, Any]] = {"s": "", "b": False, "i": 0, "q": "0", "n": None}


def written(content: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return the fields of an object as Kubernetes writes them."""
    marks = _table().get(schema.name, {})
    result: dict[str, Any] = {}
    for name, value in content.items():
        member = schema.fields.get(name)
        whole = value if member is None else _value(value, member)
        if marks.get(name) == "-" and not whole:
            continue
        result[name] = None if marks.get(name) == "n" and whole == [] else whole
    for name, mark in marks.items():
        if name not in result and mark != "-" and name in schema.fields:
            result[name] = written({}, schema.fields[name]) if mark == "o" else _ALWAYS[mark]
    return result


def _value(value: Any, schema: Schema) -> Any:
    if schema.type == "object" and isinstance(value, Mapping):
        return written(value, schema)
    if schema.type == "list" and isinstance(value, list) and schema.items is not None:
        return [_value(item, schema.items) for item in value]
    return value


@cache
def _table() -> dict[str, dict[str, str]]:
    text = Path(__file__).with_name("zero_values.json").read_bytes()
    short = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    return {full_name(name): marks for name, marks in short.items()}
