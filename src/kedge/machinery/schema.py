"""Schemas of documents: one tree of types for pruning, patches, apply and OpenAPI.

A tree comes from a Struct, from the table of built-in kinds or from a CRD; readers need not know.
"""

from typing import Any, Literal

import msgspec

Type = Literal[
    "object",  # named fields
    "map",  # any names, all of one type
    "list",
    "string",
    "integer",
    "number",
    "boolean",
    "any",  # any JSON value, kept as it is
    "quantity",
    "int-or-string",
    "time",  # RFC 3339, whole seconds
    "micro-time",  # RFC 3339, six digits
    "bytes",  # base64 text
]

ListType = Literal["atomic", "set", "map"]


class Schema(msgspec.Struct, kw_only=True, eq=False):
    """The type of one value. Trees may be cyclic: a node is made first and filled in later."""

    type: Type
    format: str = ""
    """OpenAPI's format of a number or string: int32, int64, double, ..."""
    name: str = ""
    """The name under which OpenAPI lists this type, for instance io.k8s.api.core.v1.Pod."""
    description: str = ""
    fields: dict[str, "Schema"] = {}
    """Of an object: its fields."""
    items: "Schema | None" = None
    """Of a list or map: the schema of its elements."""
    required: tuple[str, ...] = ()
    open: bool = False
    """Of an object: whether undeclared fields are kept (x-kubernetes-preserve-unknown-fields)."""
    embedded: bool = False
    """Whether the object is itself a whole resource with apiVersion, kind and metadata."""
    nullable: bool = False
    keep_empty: bool = False
    """Of a list or map: whether it is stored even when empty, as custom resources do."""
    atomic: bool = False
    """Of an object or map: whether server-side apply sees it as one value."""
    list_type: ListType = "atomic"
    """Of a list: how server-side apply identifies its elements."""
    list_keys: tuple[str, ...] = ()
    """Of a list of type `map`: the fields that identify an element."""
    merge: bool = False
    """Of a list: whether a strategic merge patch merges it instead of replacing it."""
    merge_key: str = ""
    """Of a merged list of objects: the field by which a strategic merge patch finds an element."""
    retain_keys: bool = False
    """Whether a strategic merge patch may carry $retainKeys for this value."""
    extension: bool = False
    """Of a field: whether only kedge has it."""
    spells: str = ""
    """Of a field: the field that it is an alternative spelling of."""
    pairs: tuple[str, str] | None = None
    """Of a list: the fields for the names and values of a mapping that kedge takes in its place."""
    default: Any = None
    """Of a CRD's field: the value it gets when absent. Built-in kinds default in code."""
    keywords: dict[str, Any] = {}
    """OpenAPI keywords that are published as they are (enum, minimum, pattern, ...)."""

    def field(self, name: str) -> "Schema | None":
        """Return the schema of a member of this object or map; None if it has no such member."""
        if self.type == "object":
            found = self.fields.get(name)
            return found if found is not None else (ANY if self.open else None)
        if self.type == "map":
            return self.items
        return ANY if self.type == "any" else None


ANY = Schema(type="any")

_ZEROS = {"string": "", "integer": 0, "number": 0, "boolean": False}


def with_zero(field: Schema) -> Schema:
    """Return the schema of a required field of a built-in type. Upstream publishes that such a
    scalar defaults to its zero value, and server-side apply uses that as the key of list items
    without one."""
    zero = _ZEROS.get(field.type)
    if zero is None or "default" in field.keywords:
        return field
    return msgspec.structs.replace(field, keywords={"default": zero} | field.keywords)
