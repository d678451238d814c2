"""Values of a changed object, each with the value of the old object that it corresponds to."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]


class Correlation:
    """A value and its counterpart, which has the same key in a map or in a list of type map.

    Whether both are equal is computed once per value: the answer for an object follows from those
    for its fields.
    """

    __slots__ = ("_children", "_counterparts", "_is_unchanged", "_old", "_schema", "_value")

    def __init__(self, schema: Schema, value: Any, old: Any) -> None:
        self._schema = schema
        self._value = value
        self._old = old
        self._is_unchanged: bool | None = None
        self._children: dict[str | int, Correlation] = {}
        self._counterparts: MapListItems | None = None

    def key(self, name: str) -> "Correlation | None":
        """Return the field or map value; None if the old object has none or no schema fits."""
        if name in self._children:
            return self._children[name]
        value, old = self._value, self._old
        if not (isinstance(value, dict) and isinstance(old, dict)):
            return None
        if name not in value or name not in old:
            return None
        schema = (self._schema.get("properties") or {}).get(name)
        if schema is None:
            schema = self._schema.get("additionalProperties")
        if not isinstance(schema, Mapping):
            return None
        self._children[name] = child = Correlation(schema, value[name], old[name])
        return child

    def index(self, at: int) -> "Correlation | None":
        """Return the element of a list of type map; None if it has no counterpart."""
        if at in self._children:
            return self._children[at]
        items = self._schema.get("items")
        if not (isinstance(self._value, list) and isinstance(self._old, list)):
            return None
        if self._schema.get("x-kubernetes-list-type") != "map" or not isinstance(items, Mapping):
            return None
        if self._counterparts is None:
            self._counterparts = MapListItems(self._schema, self._old)
        old = self._counterparts.like(self._value[at])
        if old is None:
            return None
        self._children[at] = child = Correlation(items, self._value[at], old)
        return child

    def is_unchanged(self) -> bool:
        """Tell whether value and counterpart are equal."""
        if self._is_unchanged is None:
            self._is_unchanged = self._compared()
        return self._is_unchanged

    def _compared(self) -> bool:
        value, old = self._value, self._old
        if isinstance(value, dict) and isinstance(old, dict):
            # A field without a schema has no counterpart, so that its object counts as changed.
            return len(value) == len(old) and all(_is_same(self.key(name)) for name in value)
        if isinstance(value, list) and isinstance(old, list):
            if len(value) != len(old):
                return False
            if self._schema.get("x-kubernetes-list-type") == "map" and old:
                return all(_is_same(self.index(i)) for i in range(len(value)))
        return same(value, old)


def _is_same(child: Correlation | None) -> bool:
    return child is not None and child.is_unchanged()


class MapListItems:
    """The elements of a list of type map, by their keys."""

    __slots__ = ("_items", "_keys")

    def __init__(self, schema: Schema, elements: Any) -> None:
        self._keys: tuple[str, ...] = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        is_map = schema.get("x-kubernetes-list-type") == "map" and self._keys
        self._items: dict[Any, Any] = {}
        for each in (elements if isinstance(elements, list) else ()) if is_map else ():
            identity = self._identity(each)
            if identity is not None:
                self._items.setdefault(identity, each)

    def like(self, element: Any) -> Any:
        """Return the element with the keys of another one; None if there is none."""
        identity = self._identity(element) if self._items else None
        return None if identity is None else self._items.get(identity)

    def _identity(self, element: Any) -> Any:
        if not isinstance(element, dict):
            return None
        found: list[tuple[type, Any]] = []
        for key in self._keys:
            value = element.get(key)
            if not isinstance(value, str | int | float):
                return None
            found.append((type(value), value))
        return tuple(found)


def same(value: Any, old: Any) -> bool:
    """Compare JSON values; true is not 1, and 1 is not 1.0."""
    return bool(value == old) and _same_types(value, old)


def _same_types(value: Any, old: Any) -> bool:
    if isinstance(value, dict):
        return all(_same_types(inner, old[name]) for name, inner in value.items())
    if isinstance(value, list):
        return all(map(_same_types, value, old))
    return type(value) is type(old)
