"""The fieldPath of a CEL rule: `.spec.replicas`, `.labels['a.b']`."""

import re
from collections.abc import Mapping
from typing import Any, Final

_STEP: Final = re.compile(r"\.([^.\[\]']+)|\['((?:[^'\\]|\\.)*)'\]")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "'": "'", "\\": "\\",
}  # fmt: skip


def field_path(written: str, schema: Mapping[str, Any]) -> str:
    """Return the path as errors show it: `labels[a.b]`; ValueError if the schema has no such."""
    shown, at = "", 0
    while at < len(written):
        step = _STEP.match(written, at)
        if step is None:
            raise ValueError(written)
        name = step[1] if step[1] is not None else _unescaped(step[2])
        schema, part = _below(schema, name)
        shown = f"{shown}.{part}" if shown and not part.startswith("[") else f"{shown}{part}"
        at = step.end()
    return shown


def _below(schema: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], str]:
    properties = schema.get("properties")
    if properties:
        if name not in properties:
            raise ValueError(name)
        return properties[name], name
    values = schema.get("additionalProperties")
    if not isinstance(values, Mapping):
        raise ValueError(name)
    return values, f"[{name}]"


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise ValueError(text)
        return _ESCAPES[match[1]]

    return _ESCAPE.sub(one, text)
