"""From the resources that an extension server lists to the same in aggregated discovery."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

Json = dict[str, Any]

RESOURCES: Final = 500
"""Resources and subresources of one version; further ones are left out."""
_LONGEST: Final = 253
"""Characters of a name."""
_WORDS: Final = 50
"""Verbs, short names and categories of one resource, each."""


class _ListedResource(msgspec.Struct, rename="camel"):
    """A resource of an APIResourceList."""

    name: str
    singular_name: str = ""
    namespaced: bool = False
    kind: str = ""
    group: str = ""
    version: str = ""
    verbs: list[str] | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _ResourceList(msgspec.Struct):
    resources: list[_ListedResource] | None = None
    kind: str = ""


def parse(body: bytes) -> list[Json]:
    """Return the resources for aggregated discovery; ValueError if the body is no list of
    resources."""
    try:
        found = msgspec.json.decode(body, type=_ResourceList)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a list of resources: {error}") from None
    if found.kind != "APIResourceList":
        raise ValueError(f"not a list of resources but {found.kind[:_LONGEST]!r}")
    listed = [each for each in (found.resources or ())[:RESOURCES] if _is_usable(each)]
    resources = {each.name: _resource(each) for each in listed if "/" not in each.name}
    for each in listed:
        parent, _, name = each.name.partition("/")
        if name:
            # As upstream, a subresource may stand for a resource that is not listed itself.
            whole = resources.setdefault(parent, _parent(parent, each))
            whole.setdefault("subresources", []).append(
                {"subresource": name, "responseKind": _kind(each), "verbs": _words(each.verbs)}
            )
    return list(resources.values())


def _is_usable(each: _ListedResource) -> bool:
    texts = (each.name, each.singular_name, each.kind, each.group, each.version)
    return bool(each.name) and all(len(text) <= _LONGEST for text in texts)


def _resource(each: _ListedResource) -> Json:
    entry: Json = {
        "resource": each.name,
        "responseKind": _kind(each),
        "scope": _scope(each),
        "singularResource": each.singular_name,
        "verbs": _words(each.verbs),
    }
    if each.short_names:
        entry["shortNames"] = _words(each.short_names)
    if each.categories:
        entry["categories"] = _words(each.categories)
    return entry


def _parent(name: str, sub: _ListedResource) -> Json:
    return {"resource": name, "scope": _scope(sub), "singularResource": "", "verbs": []}


def _scope(each: _ListedResource) -> str:
    return "Namespaced" if each.namespaced else "Cluster"


def _kind(each: _ListedResource) -> Json:
    return {"group": each.group, "version": each.version, "kind": each.kind}


def _words(words: Iterable[str] | None) -> list[str]:
    return [word for word in [*(words or ())][:_WORDS] if len(word) <= _LONGEST]
