"""Names of the Go types of fields, as errors of JSON name them.

`go_types.json` maps each type to its fields whose Go type has a name of its own, or that are in an
embedded struct: `Rule. v1.ScopeType`. tools/derive_go_types.py writes it.
"""

from functools import cache
from pathlib import Path

import msgspec

from kedge.api.builtin.schemas import full_name


def go_type(owner: str, field: str) -> str:
    """Return the Go type of a field of a type, given by its name in OpenAPI; empty if unnamed."""
    last = _entry(owner, field).rpartition(" ")[2]
    return "" if last.endswith(".") else last


def go_path(owner: str, field: str) -> str:
    """Return a field's name, after the names of the embedded structs that it is in."""
    text = _entry(owner, field)
    way = text.partition(" ")[0] if " " in text or text.endswith(".") else ""
    return way + field


def _entry(owner: str, field: str) -> str:
    return _table().get(owner, {}).get(field, "")


@cache
def _table() -> dict[str, dict[str, str]]:
    text = Path(__file__).with_name("go_types.json").read_bytes()
    short = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    return {full_name(name): fields for name, fields in short.items()}
