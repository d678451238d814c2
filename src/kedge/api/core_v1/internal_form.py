"""Formats a part of an object as upstream's messages quote it: with its Go field names."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_IRREGULAR = {
    "seLinuxOptions": "SELinuxOptions",
    "apiGroup": "APIGroup",
    "cel": "CEL",
    "uid": "UID",
}


def internal_form(value: object) -> Any:
    """`{"Type": "Localhost", "LocalhostProfile": null}` for a profile without a file."""
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        return {_go_name(name): internal_form(getattr(value, name)) for name in fields}
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return [internal_form(item) for item in value] or None
    if isinstance(value, Mapping):
        return {key: internal_form(item) for key, item in value.items()} or None
    return value


def _go_name(name: str) -> str:
    return _IRREGULAR.get(name) or name[0].upper() + name[1:]
