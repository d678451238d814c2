"""The text of a patched object, as an error of Kubernetes quotes it.

Upstream parses only those objects that a patch touches. It writes their members in the order of
their names. All other parts keep the order that they were sent in, and numbers their spelling.
"""

import json
from typing import Any

from kedge.machinery import patch
from kedge.machinery.errors import go_json


class _NumberText(str):
    """A number as it was sent."""


def after_merge(live: dict[str, Any], data: bytes) -> str:
    """Return the text of an object after the merge patch in a body."""
    return _written(_merged(live, _read(data)))


def after_json(live: dict[str, Any], data: bytes) -> str:
    """Return the text of an object after the JSON patch in a body."""
    operations = _read(data) or []
    # Tests have passed, and would not with numbers as text.
    changes = [each for each in operations if each["op"] != "test"]
    changed: Any = patch.apply_json(live, changes)
    for operation in operations:
        for name in ("path", "from"):
            if isinstance(pointer := operation.get(name, ""), str):
                changed = _opened(changed, pointer.split("/")[1:-1])
    return _written(changed)


def _read(data: bytes) -> Any:
    return json.loads(data, parse_int=_NumberText, parse_float=_NumberText)


def _in_order(members: dict[str, Any]) -> dict[str, Any]:
    return {name: members[name] for name in sorted(members)}


def _merged(live: Any, sent: Any) -> Any:
    if not isinstance(live, dict):
        return _pruned(sent)
    if not isinstance(sent, dict):
        return sent
    result = dict(live)
    for name, value in sent.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return _in_order(result)


def _pruned(value: Any) -> Any:
    """Return a value without the nulls in its objects."""
    if isinstance(value, dict):
        return _in_order({name: _pruned(each) for name, each in value.items() if each is not None})
    return list(map(_pruned, value)) if isinstance(value, list) else value


def _opened(value: Any, tokens: list[str]) -> Any:
    """Return a value with the members of all objects on a path in order."""
    if isinstance(value, list):
        opened: Any = list(value)
        at: Any = int(tokens[0]) if tokens and tokens[0].lstrip("-").isdecimal() else None
        is_there = at is not None and -len(value) <= at < len(value)
    elif isinstance(value, dict):
        opened = _in_order(value)
        at = tokens[0].replace("~1", "/").replace("~0", "~") if tokens else None
        is_there = at in opened
    else:
        return value
    if is_there:
        opened[at] = _opened(opened[at], tokens[1:])
    return opened


def _written(value: Any) -> str:
    match value:
        case _NumberText():
            return value
        case str():
            return go_json(value)
        case dict():
            return "{" + ",".join(f"{_written(k)}:{_written(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case _:
            return json.dumps(value)
