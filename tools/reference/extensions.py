"""The fields that only kedge has."""

import re
from collections.abc import Iterator
from typing import Final

from markdown import Page, code, table

from kedge.api.catalog import BUILT_IN
from kedge.machinery.schema import Schema

INTRODUCTION: Final = """\
Fields that Kubernetes does not have. The answer to a write that uses one has a `Warning`; with
`--upstream-only` they do not exist. Values of other fields that only kedge accepts are in [the
API page](../api.md#extensions)."""
TEMPLATE: Final = re.compile(r"^(spec\.jobTemplate\.)?(spec\.)?template\.")
CONTAINERS: Final = re.compile(r"\b(initContainers|ephemeralContainers)\b")


def page() -> Page:
    kinds: dict[tuple[str, str], list[str]] = {}
    for resource in BUILT_IN:
        for path, text in found(resource.schema, "", ()):
            short = CONTAINERS.sub("containers", TEMPLATE.sub("", path))
            known = kinds.setdefault((short, text), [])
            if resource.kind not in known:
                known.append(resource.kind)
    rows = [(code(path), text, ", ".join(names)) for (path, text), names in sorted(kinds.items())]
    return Page("extensions", "Extensions", INTRODUCTION, table(("field", "meaning", "of"), rows))


def found(schema: Schema, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Yield the path and description of every extension below a schema."""
    if id(schema.fields) in above:
        return
    if schema.items is not None:
        yield from found(schema.items, f"{path}[]", above)
    for name, field in schema.fields.items():
        below = f"{path}.{name}".lstrip(".")
        if field.extension:
            spelling = f"Another spelling of `{field.spells}`." if field.spells else ""
            yield below, field.description or spelling
        else:
            yield from found(field, below, (*above, id(schema.fields)))
