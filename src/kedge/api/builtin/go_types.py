"""Names of the Go types of fields, as errors of JSON name them.

`go_types.json` maps each type to its fields whose Go type has a name of its own;
tools/derive_go_types.py writes it.
"""

from functools import cache
from pathlib import Path

import msgspec

from kedge.api.builtin.schemas import full_name


def go_type(owner: str, field: str) -> str:
    """Return the Go type of a field of a type, given by its name in OpenAPI; empty if unnamed."""
    return _table().get(owner, {}).get(field, "")


@cache
def _table() -> dict[str, dict[str, str]]:
    text = Path(__file__).with_name("go_types.json").read_bytes()
    short = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    return {full_name(name): fields for name, fields in short.items()}
