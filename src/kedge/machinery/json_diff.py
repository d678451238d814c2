"""The JSON patch (RFC 6902) that turns one document into another."""

from collections.abc import Iterator
from typing import Any


def operations(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the operations of the patch.

    Lists of one length are compared item by item, which is short for documents whose lists keep
    their order. Other lists are replaced.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() - after.keys()):
            yield {"op": "remove", "path": _below(path, key)}
        for key in after:
            if key not in before:
                yield {"op": "add", "path": _below(path, key), "value": after[key]}
            else:
                yield from operations(before[key], after[key], _below(path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from operations(old, new, f"{path}/{i}")
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield {"op": "replace", "path": path, "value": after}


def _below(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
