"""Schemas of the built-in types, from the published table or, where kedge has a Struct, from that.

`schemas.json` maps each type to its fields, one type per line; tools/derive_schemas.py writes it.
Names leave out what all share: `core.v1.Pod` is io.k8s.api.core.v1.Pod. The type of a field is

    string boolean int32 int64 double bytes quantity int-or-string time micro-time   a scalar
    core.v1.Container                                                               a named type
    [T]                                                                             a list of T
    {T}                                                                             a map to T

and may be followed by marks:

    required           OpenAPI calls the field required
    atomic, granular   server-side apply owns the value as a whole, or field by field
    set                a list in which each value occurs once
    keys=a,b           a list whose elements server-side apply tells apart by these fields
    merge, merge=a     a list that strategic merge patches merge (by this field)
    retain             strategic merge patches may carry $retainKeys
    replace            strategic merge patches replace the value as a whole

The field "" holds marks of the type itself: `atomic`, or `any` for a type that holds any JSON, as
one value.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kedge.api import structs
from kedge.machinery.schema import Schema, with_zero

_ROOTS = {
    "meta": "io.k8s.apimachinery.pkg.apis.",
    "runtime": "io.k8s.apimachinery.pkg.",
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.",
    "apiregistration": "io.k8s.kube-aggregator.pkg.apis.",
}
_SCALARS = {
    "string": Schema(type="string"),
    "boolean": Schema(type="boolean"),
    "int32": Schema(type="integer", format="int32"),
    "int64": Schema(type="integer", format="int64"),
    "double": Schema(type="number", format="double"),
    "bytes": Schema(type="bytes", format="byte"),
    "quantity": Schema(type="quantity"),
    "int-or-string": Schema(type="int-or-string"),
    "time": Schema(type="time", format="date-time"),
    "micro-time": Schema(type="micro-time", format="date-time"),
}


def schema(name: str) -> Schema:
    """The schema of a built-in type, by its name in OpenAPI."""
    return _served().schema(name)


def prepare() -> None:
    """Do what the first schema needs. It takes a tenth of a second, and may be done in a thread."""
    table()
    _served()


def known(name: str) -> Schema | None:
    """The schema of a built-in type, or None if there is no such type."""
    served = _served()
    return served.schema(name) if name in served else None


class PublishedTypes:
    """The table as a source of schemas; a Struct replaces the table's entry of the same type."""

    def __init__(self, described: Mapping[str, type[msgspec.Struct]]) -> None:
        self._described = described
        self._made: dict[str, Schema] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._described or name in table()

    def schema(self, name: str) -> Schema:
        """The schema of the type of this name; the same name always gives the same node."""
        if name in self._described:
            return structs.schema_of(self._described[name])
        if name not in self._made:
            self._make(name, table()[name])
        return self._made[name]

    def _make(self, name: str, fields: Mapping[str, str]) -> None:
        own = fields.get("", "").split()
        anything = "any" in own
        node = self._made[name] = Schema(
            type="any" if anything else "object",
            name=name,
            required=tuple(sorted(f for f, text in fields.items() if "required" in text.split())),
            atomic=anything or "atomic" in own,
            fields={},
        )
        for field, text in fields.items():
            if field:
                member = self._field(text)
                node.fields[field] = with_zero(member) if field in node.required else member

    def _field(self, text: str) -> Schema:
        written, *marks = text.split()
        extra: dict[str, Any] = {}
        for mark in marks:
            extra |= _mark(mark)
        node = self._type(written)
        return msgspec.structs.replace(node, **extra) if extra else node

    def _type(self, written: str) -> Schema:
        match written[0]:
            case "[":
                return Schema(type="list", items=self._type(written[1:-1]))
            case "{":
                return Schema(type="map", items=self._type(written[1:-1]))
            case _:
                return _SCALARS.get(written) or self.schema(full_name(written))


def _mark(mark: str) -> dict[str, Any]:
    word, _, value = mark.partition("=")
    match word:
        case "keys":
            return {"list_type": "map", "list_keys": tuple(value.split(","))}
        case "set":
            return {"list_type": "set"}
        case "merge":
            return {"merge": True, "merge_key": value}
        case "retain":
            return {"retain_keys": True}
        case "replace":
            return {"keywords": {"x-kubernetes-patch-strategy": "replace"}}
        case "atomic" | "granular":
            return {"atomic": word == "atomic"}
        case _:  # `required` is a matter of the type around the field
            return {}


@cache
def table() -> dict[str, dict[str, str]]:
    """The published types, by full name."""
    text = Path(__file__).with_name("schemas.json").read_bytes()
    short = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    return {full_name(name): fields for name, fields in short.items()}


def full_name(short: str) -> str:
    """`io.k8s.api.core.v1.Pod` for core.v1.Pod."""
    return _ROOTS.get(short.partition(".")[0], "io.k8s.api.") + short


@cache
def _served() -> PublishedTypes:
    # The catalog lists the kinds of this package too, so it cannot be imported before them.
    from kedge.api import catalog

    kinds = (*catalog.HAND_WRITTEN, *catalog.NOT_STORED)
    return PublishedTypes(described(resource.type for resource in kinds))


def described(kinds: Iterable[type[msgspec.Struct]]) -> dict[str, type[msgspec.Struct]]:
    """The given Structs and all they are made of, by name in OpenAPI."""
    found: dict[str, type[msgspec.Struct]] = {}
    waiting = list(kinds)
    while waiting:
        struct = waiting.pop()
        name = structs.component_name(struct)
        if name not in found:
            found[name] = struct
            waiting.extend(structs.parts_of(struct))
    return found
