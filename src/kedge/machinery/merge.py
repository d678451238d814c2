"""One document merged into another by their schema, as server-side apply does it."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kedge.machinery import fields
from kedge.machinery.patch import printed
from kedge.machinery.schema import ANY, Schema


def merge(schema: Schema, live: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """The live document with every field that the config sets, also to null or to nothing: another
    manager's value that a null clears is a conflict like any other. Neither is changed."""
    result = dict(live)
    for name, value in config.items():
        result[name] = _merged(schema.field(name) or ANY, result.get(name), value)
    return result


def faults(schema: Schema, config: Any, *, allow_duplicates: bool = False) -> list[str]:
    """Why a document cannot be applied: undeclared fields, wrong types, items without a key."""
    found = [fault.removeprefix(": ") for fault in _faults(schema, config)]
    return [each for each in found if _DUPLICATE not in each] if allow_duplicates else found


def _merged(schema: Schema, live: Any, config: Any) -> Any:
    if schema.atomic:
        return config
    # A null for a map or list says nothing of what the live one holds.
    either = live if config is None else config
    if isinstance(either, dict):
        return merge(schema, live if isinstance(live, dict) else {}, config or {})
    if isinstance(either, list) and schema.list_type != "atomic":
        return _merged_items(schema, live if isinstance(live, list) else [], config or [])
    return config


def _merged_items(schema: Schema, live: list[Any], config: list[Any]) -> list[Any]:
    """The config's items in its order; between them what only the live list has, where it was."""
    names = [fields.element_of(schema, item) for item in live]
    wanted = {fields.element_of(schema, item): item for item in config}
    # An item that occurs twice cannot be merged: the config's item replaces it.
    once = {name for name, count in Counter(names).items() if count == 1}
    present = {name: item for name, item in zip(names, live, strict=True) if name in once}
    child = schema.items or ANY
    ahead = iter(wanted)
    shared = iter(list(filter(set(names).__contains__, wanted)))
    expected = next(shared, None)
    result: list[Any] = []

    def take(name: str) -> None:
        result.append(_merged(child, present.get(name), wanted[name]))

    for name, item in zip(names, live, strict=True):
        if name not in wanted:
            result.append(item)
        elif name == expected:
            for coming in ahead:
                take(coming)
                if coming == name:
                    break
            expected = next(shared, None)
    for coming in ahead:
        take(coming)
    return result


def _faults(schema: Schema, config: Any) -> Sequence[str]:
    """The same, each fault opening with a path or a colon."""
    kind = schema.type
    fitting = _FITTING.get(kind)
    if config is None or kind == "any" or (fitting and type(config) in fitting):
        return ()
    match kind:
        case "object" | "map" if isinstance(config, dict):
            return _faults_of_members(schema, config)
        case "object" | "map":
            return [f": expected map, got &{{{printed(config)}}}"]
        case "list" if isinstance(config, list):
            return _faults_of_items(schema, config)
        case "list":
            return [f": expected list, got &{{{printed(config)}}}"]
        case _:
            return [f": {_scalar_fault(kind, config)}"]


def _faults_of_members(schema: Schema, config: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in config.items():
        child = schema.field(name)
        if child is None:
            # Upstream stops looking at an object's fields here.
            return [*found, f".{name}: field not declared in schema"]
        found += [f".{name}{fault}" for fault in _faults(child, value)]
    return found


def _faults_of_items(schema: Schema, config: list[Any]) -> list[str]:
    found: list[str] = []
    seen = set()
    child = schema.items or ANY
    for index, item in enumerate(config):
        element = f"i:{index}"
        if schema.list_type != "atomic":
            try:
                element = fields.element_of(schema, item)
            except ValueError as e:
                return [*found, f": element {index}: {e}"]
        if element in seen:
            found.append(f": {_DUPLICATE} {fields.shown(element)}")
        seen.add(element)
        found += [fields.shown(element) + fault for fault in _faults(child, item)]
    return found


_DUPLICATE: Final = "duplicate entries for key"
_FITTING: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    **dict.fromkeys(("quantity", "int-or-string", "time", "micro-time"), (str, int, float, bool)),
}


def _scalar_fault(kind: str, value: Any) -> str:
    match kind:
        case "integer" | "number":
            return f"expected numeric (int or float), got {_go_type(value)}"
        case "boolean":
            return f"expected boolean, got &{{{printed(value)}}}"
        case "string" | "bytes":
            return f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
        case _:
            return f"expected any scalar, got &{{{printed(value)}}}"


def _go_syntax(value: Any) -> str:
    """A value as Go's %#v prints it."""
    match value:
        case dict():
            members = ", ".join(f"{_quoted(key)}:{_go_syntax(value[key])}" for key in sorted(value))
            return f"map[string]interface {{}}{{{members}}}"
        case list():
            return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
        case str():
            return _quoted(value)
        case None:
            return "interface {}(nil)"
        case _:
            return printed(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _go_type(value: Any) -> str:
    names = {dict: "map[string]interface {}", list: "[]interface {}", bool: "bool", str: "string"}
    return names[type(value)]
