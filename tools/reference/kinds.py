"""The kinds that are served, with their names, verbs, subresources and field selectors."""

from typing import Any, Final

from markdown import Page, codes, table

from kedge.api.catalog import BUILT_IN, HAND_WRITTEN
from kedge.api.resource import ALL_VERBS, Resource

INTRODUCTION: Final = """\
**Bold** kinds are types in kedge's code, with the defaults and the validation of Kubernetes. The
others come from a table of the published fields and types. *Slanted* kinds are not stored: nodes
report their usage, and the scheduler remembers its decisions. Fields of `metadata.name` and, for
namespaced kinds, `metadata.namespace` can be selected for every kind; custom resources add their
`selectableFields`."""
HEAD: Final = (
    "kind",
    "resource",
    "short",
    "scope",
    "verbs",
    "subresources",
    "field selectors",
)


def page() -> Page:
    groups: dict[str, list[Resource[Any]]] = {}
    for each in BUILT_IN:
        groups.setdefault(each.api_version, []).append(each)
    body = "\n".join(
        f"## {name}\n\n{table(HEAD, map(row, sorted(found, key=lambda each: each.kind)))}"
        for name, found in sorted(groups.items(), key=lambda item: ("/" in item[0], item[0]))
    )
    return Page("kinds", "Kinds and field selectors", INTRODUCTION, body)


def row(resource: Resource[Any]) -> tuple[str, ...]:
    return (
        emphasis(resource),
        f"`{resource.plural}`",
        codes(resource.presentation.short_names),
        "namespace" if resource.namespaced else "cluster",
        "all" if resource.verbs == ALL_VERBS else ", ".join(resource.verbs),
        codes(each.name for each in resource.subresources),
        codes(resource.presentation.fields),
    )


def emphasis(resource: Resource[Any]) -> str:
    if resource in HAND_WRITTEN:
        return f"**{resource.kind}**"
    return resource.kind if resource.is_stored else f"*{resource.kind}*"
