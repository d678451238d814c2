"""Extensions: fields that only kedge has, found in documents and removed from schemas."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kedge.machinery.errors import ErrorScope, FieldError
from kedge.machinery.schema import Schema
from kedge.machinery.shape import Path, spell


def warning(path: str) -> str:
    """Return the warning for a write that sets an extension; manifests without it are portable."""
    return f"{path}: kedge extension, not portable to other clusters"


def sorted_out(
    errors: Iterable[FieldError], *, upstream_only: bool
) -> tuple[list[FieldError], list[str]]:
    """The errors that count, and the paths of values that are extensions where those are taken."""
    found = list(errors)
    if upstream_only:
        tolerated = (ErrorScope.KEDGE, ErrorScope.RATCHETED)
        return [error for error in found if error.scope not in tolerated], []
    used = [error.field for error in found if error.scope is ErrorScope.EXTENSION]
    counting = [error for error in found if error.scope in (None, ErrorScope.KEDGE)]
    return counting, list(dict.fromkeys(used))


class ExtensionPaths:
    """The path from a value to the extensions below it; only these parts of a document are read."""

    __slots__ = ("below", "each", "extensions", "spellings")

    def __init__(self) -> None:
        self.extensions: tuple[str, ...] = ()
        """For an object: its fields that are extensions."""
        self.spellings: dict[str, str] = {}
        """For an object: the alternative spellings, each with the field that it stands for."""
        self.below: dict[str, ExtensionPaths] = {}
        """For an object: its fields with extensions below them."""
        self.each: ExtensionPaths | None = None
        """For a list or map: the extensions below its elements."""

    def find(self, document: dict[str, Any]) -> list[str]:
        """The paths of the extensions that a document of the right shape uses."""
        return [spell(path) for path in self._find(document, None)] if self._used(document) else []

    def settle(self, document: Any) -> None:
        """Move what is spelled otherwise to where it belongs; where both are, and differ, both
        stay, for validation to refuse. The document may be a patch, of whatever shape."""
        if self.each is not None:
            if isinstance(document, dict | list):
                for _, inner in _elements(document):
                    self.each.settle(inner)
            return
        if not isinstance(document, dict):
            return
        for spelling, name in self.spellings.items():
            if spelling in document:
                value = document[spelling]
                if document.setdefault(name, value) == value:
                    del document[spelling]
        for name, trail in self.below.items():
            if inner := document.get(name):
                trail.settle(inner)

    def _used(self, value: Any) -> bool:
        """Whether there is anything to find; asked of every write, so it keeps no paths."""
        if self.each is not None:
            below = self.each
            for inner in value.values() if type(value) is dict else value:
                if below._used(inner):
                    return True
            return False
        for name in self.extensions:
            if name in value:
                return True
        for name, trail in self.below.items():
            inner = value.get(name)
            if inner and trail._used(inner):
                return True
        return False

    def _find(self, value: Any, path: Path) -> Iterator[Path]:
        if self.each is not None:
            for part, inner in _elements(value):
                yield from self.each._find(inner, (path, part))
            return
        for name in self.extensions:
            if name in value:
                yield path, name
        for name, trail in self.below.items():
            inner = value.get(name)
            if inner:
                yield from trail._find(inner, (path, name))


def _elements(value: Any) -> Iterable[tuple[str | int, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def trail(schema: Schema) -> ExtensionPaths | None:
    """The way to all extensions of a schema; None if it has none."""
    trails: dict[int, ExtensionPaths] = {}
    _lay(schema, trails)
    leading = _leading(trails.values())
    for each in trails.values():
        each.below = {name: to for name, to in each.below.items() if to in leading}
    first = trails[_identity(schema)]
    return first if first in leading else None


def _identity(schema: Schema) -> int:
    # A field with words of its own is a copy of its type, which shares the type's fields.
    return id(schema.fields) if schema.type == "object" else id(schema)


def _lay(schema: Schema, trails: dict[int, ExtensionPaths]) -> ExtensionPaths:
    """A trail for the schema and for all that it may hold, wherever they lead."""
    known = trails.get(_identity(schema))
    if known is not None:
        return known
    made = trails[_identity(schema)] = ExtensionPaths()
    if schema.items is not None:
        made.each = _lay(schema.items, trails)
    made.extensions = tuple(name for name, field in schema.fields.items() if field.extension)
    made.spellings = {name: f.spells for name, f in schema.fields.items() if f.spells}
    made.below = {
        name: _lay(field, trails) for name, field in schema.fields.items() if not field.extension
    }
    return made


def _leading(trails: Iterable[ExtensionPaths]) -> set[ExtensionPaths]:
    """Return the types with an extension at any depth; types may be recursive."""
    before: dict[ExtensionPaths, list[ExtensionPaths]] = {}
    for each in trails:
        for to in (*each.below.values(), *((each.each,) if each.each is not None else ())):
            before.setdefault(to, []).append(each)
    reached = [each for each in trails if each.extensions]
    leading = set(reached)
    while reached:
        for each in before.get(reached.pop(), ()):
            if each not in leading:
                leading.add(each)
                reached.append(each)
    return leading


def without(schema: Schema) -> Schema:
    """The schema as other servers have it."""
    return _copied(schema, {})


def _copied(schema: Schema, fields: dict[int, dict[str, Schema]]) -> Schema:
    if schema.items is not None:
        return msgspec.structs.replace(schema, items=_copied(schema.items, fields), pairs=None)
    if not schema.fields:
        return schema
    copied = fields.get(id(schema.fields))
    if copied is None:
        copied = fields[id(schema.fields)] = {}
        for name, field in schema.fields.items():
            if not field.extension:
                copied[name] = _copied(field, fields)
    return msgspec.structs.replace(schema, fields=copied)
