"""The fields of the kinds that are served: type, description, and whether Kubernetes has them."""

from collections.abc import Iterator
from typing import Any, Final

from markdown import Page, codes, table

from kedge.api.catalog import BUILT_IN
from kedge.api.resource import Resource
from kedge.machinery.schema import Schema

INTRODUCTION: Final = """\
The fields of each kind, down to those of `spec` and `status`; `kubectl explain KIND.FIELD` shows
deeper ones, also of custom resources. `apiVersion`, `kind` and `metadata` are the same for all
kinds. **Bold** fields are required, *slanted* ones are [extensions](extensions.md) of kedge."""
HEAD: Final = ("field", "type", "fields below", "meaning")
COMMON: Final = ("apiVersion", "kind", "metadata")
NESTED: Final = ("spec", "status")
"""Fields whose own fields are listed too."""


def page() -> Page:
    kinds = sorted(
        BUILT_IN, key=lambda each: ("/" in each.api_version, each.api_version, each.kind)
    )
    parts = (f"## {each.kind} ({each.api_version})\n\n{describe(each)}" for each in kinds)
    return Page("fields", "Fields of the kinds", INTRODUCTION, "\n".join(parts))


def describe(resource: Resource[Any]) -> str:
    found = list(rows(resource.schema))
    lead = f"{resource.schema.description}\n\n" if resource.schema.description else ""
    return lead + (table(HEAD, found) if found else "It has no other fields.\n")


def rows(schema: Schema, prefix: str = "") -> Iterator[tuple[str, ...]]:
    """Yield a row for each field, and for each field below `spec` and `status`."""
    for name, field in schema.fields.items():
        if not prefix and name in COMMON:
            continue
        path = f"`{prefix}{name}`"
        mark = "**" if name in schema.required else "*" if field.extension else ""
        below = element(field).fields
        is_listed = not prefix and name in NESTED and bool(below)
        shown = "" if is_listed else codes(below)
        yield f"{mark}{path}{mark}", type_of(field), shown, field.description
        if is_listed:
            yield from rows(field, f"{name}.")


def element(schema: Schema) -> Schema:
    """Return the schema of the elements of a list or map, or the schema itself."""
    return schema if schema.items is None else element(schema.items)


def type_of(schema: Schema) -> str:
    if schema.items is not None:
        inner = type_of(schema.items)
        return f"list of {inner}" if schema.type == "list" else f"map of {inner}"
    if schema.name:
        return schema.name.rpartition(".")[2]
    return schema.format or schema.type
