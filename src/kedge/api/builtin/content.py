"""Reading and filling in plain documents, which have no attributes to reach for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from kedge.api.model import Document


def reach(value: Any, path: str, default: Any = None) -> Any:
    """Return the value at a dotted path, or the default."""
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return default
        value = value[name]
    return value


def text(value: Any, path: str) -> str:
    """The text at a path, empty if there is none."""
    found = reach(value, path)
    return found if isinstance(found, str) else ""


def listed(value: Any, path: str) -> Sequence[Any]:
    """The list at a path, empty if there is none."""
    return reach(value, path) or ()


def numbered(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The elements of the list at a path, each with its own path."""
    for i, element in enumerate(listed(value, path)):
        yield f"{path}[{i}]", element


def replaced(obj: Document, content: Mapping[str, Any]) -> Document:
    """The object with these top-level fields instead of its own."""
    return msgspec.structs.replace(obj, content=dict(content))


def with_spec(obj: Document, spec: Mapping[str, Any]) -> Document:
    return replaced(obj, obj.content | {"spec": dict(spec)})


T = TypeVar("T")


def typed(value: Any, kind: type[T]) -> T:
    """Return a part of a document as a Struct, or a list of them; nulls are absent fields."""
    return msgspec.convert(_without_nulls(value), kind)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
