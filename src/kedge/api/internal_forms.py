"""Parts of objects as the messages of Kubernetes quote them: in the form of its internal types.

`internal_types.json` maps each internal type to its fields, in the order of Go;
tools/derive_internal_types.py writes it. A field is `NAME WIRE-NAME TYPE`. The type is

    s b i                string, boolean, number: an absent one is zero
    q o t y              quantity, anything, time, bytes
    core.Container       a named type: an absent one has all its fields
    *T [T {T             a pointer, list or map: an absent one is null

after a `?` if a zero value is left out.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kedge.machinery.errors import go_json
from kedge.machinery.quantity import Quantity

_ZEROS: Final[Mapping[str, Any]] = {"s": "", "b": False, "i": 0, "q": "0", "o": 0}
_MOST_LINES: Final = 2_000
"""Longer texts are not compared: the comparison may take time in proportion to the square."""


_FILE_NAMES: Final = 2
"""Lines at the beginning of a diff that name files."""


class InternalField(NamedTuple):
    """One field of an internal type."""

    name: str
    wire_name: str
    type: str
    omits_zero: bool


def internal_form(value: Any, kind: str) -> Any:
    """Return a document, or an object, in the form of an internal type such as `core.PodSpec`."""
    return _form(_document(value), kind)


def _document(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value, enc_hook=_plain)
    return value


def _without_empty_lists(value: Any) -> Any:
    """Return a document as Kubernetes reads it from its store, which does not know empty lists."""
    if isinstance(value, Mapping):
        return {key: _without_empty_lists(item) for key, item in value.items() if item != []}
    if isinstance(value, list):
        return [_without_empty_lists(item) for item in value]
    return value


def internal_diff(old: Any, new: Any, kind: str) -> str:
    """Return the difference of two values as a unified diff; empty if they are very long."""
    forms = _form(_without_empty_lists(_document(old)), kind), _form(_document(new), kind)
    texts = [go_json(form, indent=1).split("\n") for form in forms]
    if sum(map(len, texts)) > _MOST_LINES:
        return ""
    # Not above: only messages about forbidden changes need it.
    import difflib

    before, after = ([f"{line}\n" for line in lines] for lines in texts)
    return "".join([*difflib.unified_diff(before, after)][_FILE_NAMES:])


def _form(value: Any, kind: str) -> Any:
    match kind[0]:
        case "*":
            return None if value is None else _form(value, kind[1:])
        case "[":
            return None if value is None else [_form(item, kind[1:]) for item in value]
        case "{":
            if value is None:
                return None
            return {key: _form(value[key], kind[1:]) for key in sorted(value)}
    if "." in kind:
        return _struct(value or {}, kind)
    if value is None or (kind == "t" and not value):
        return _ZEROS.get(kind)
    return str(Quantity.of(value)) if kind == "q" else value


def _struct(value: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if kind == "core.PodSpec":
        value = _with_host_namespaces(value)
    fields = internal_types()[kind]
    if "metadata" in value and all(field.wire_name != "metadata" for field in fields):
        # The internal type embeds the metadata.
        value = {**(value["metadata"] or {}), **value}
    shown: dict[str, Any] = {}
    for field in fields:
        given = value.get(field.wire_name)
        if given or not field.omits_zero:
            shown[field.name] = _form(given, field.type)
    return shown


_HOST_NAMESPACES: Final = (
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "hostUsers",
)


def _with_host_namespaces(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod whose security context has the fields that it has internally."""
    moved = {name: spec[name] for name in _HOST_NAMESPACES if name in spec}
    return {**spec, "securityContext": {**(spec.get("securityContext") or {}), **moved}}


@cache
def internal_types() -> dict[str, Sequence[InternalField]]:
    """Return the fields of the internal types."""
    text = Path(__file__).with_name("internal_types.json").read_bytes()
    table = msgspec.json.decode(text, type=dict[str, list[str]])
    return {kind: [_field(line) for line in lines] for kind, lines in table.items()}


def _field(line: str) -> InternalField:
    name, wire_name, kind = line.split(" ")
    return InternalField(name, wire_name, kind.removeprefix("?"), kind.startswith("?"))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Quantity) else value
