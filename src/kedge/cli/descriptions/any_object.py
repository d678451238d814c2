"""Any object: who it is, then all of its fields as an indented outline, then its events."""

import re
from collections.abc import Iterator
from typing import Any, Final

from kedge.cli.descriptions import parts
from kedge.cli.descriptions.parts import Fields, RelatedObjects, fact

_TOLD_ALREADY: Final = ("name", "namespace", "labels", "annotations", "managedFields")
_SELECTOR: Final = {"matchLabels", "matchExpressions"}
_MAPS: Final = frozenset(
    (
        "data",
        "stringData",
        "binaryData",
        "labels",
        "annotations",
        "matchLabels",
        "selector",
        "nodeSelector",
        "limits",
        "requests",
        "min",
        "max",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
        "hard",
        "used",
        "capacity",
        "allocatable",
        "overhead",
        "parameters",
    )
)
"""Fields whose keys are the user's own words, which are shown as they are written."""
_WORD: Final = re.compile(r"[A-Z]{2,}s?(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_ABBREVIATIONS: Final = frozenset(("api", "dns", "http", "id", "ip", "tcp", "tls", "uid", "url"))


def describe(document: Fields, about: RelatedObjects) -> str:
    return parts.text(_lines(document, about))


def _lines(document: Fields, about: RelatedObjects) -> Iterator[str]:
    metadata = document["metadata"]
    yield fact("Name", metadata["name"])
    if "namespace" in metadata:
        yield fact("Namespace", metadata["namespace"])
    yield from parts.labels("Labels", metadata.get("labels"))
    yield from parts.annotations(metadata.get("annotations"))
    yield fact("API Version", document["apiVersion"])
    yield fact("Kind", document["kind"])
    rest = {key: value for key, value in metadata.items() if key not in _TOLD_ALREADY}
    yield from outline({"metadata": rest})
    for key in sorted(document.keys() - {"apiVersion", "kind", "metadata"}, key=_spec_first):
        yield from outline({key: document[key]})
    yield from parts.events(about)


def _spec_first(key: str) -> tuple[int, str]:
    return {"spec": 0, "status": 2}.get(key, 1), key


def outline(fields: Fields, *, verbatim: bool = False) -> Iterator[str]:
    """The fields in alphabetical order, what is within others indented."""
    for key, value in sorted(fields.items()):
        name = key if verbatim else label(key)
        if isinstance(value, dict | list) and value:
            yield f"{name}:"
            yield from parts.indented(_within(key, value))
        elif isinstance(value, str) and "\n" in value.rstrip("\n"):
            yield f"{name}:"
            yield from parts.indented(lines_of(value))
        else:
            yield fact(name, _plain(value))


def _within(key: str, value: dict[str, Any] | list[Any]) -> Iterator[str]:
    if isinstance(value, dict):
        yield from outline(value, verbatim=key in _MAPS and not value.keys() <= _SELECTOR)
        return
    for item in value:
        if isinstance(item, dict) and item:
            first, *more = outline(item)
            yield f"- {first}"
            yield from parts.indented(more)
        elif isinstance(item, list):
            yield from parts.indented(_within(key, item))
        else:
            yield from lines_of(str(_plain(item)))


def lines_of(value: str) -> list[str]:
    """The lines of a text; tabs would be taken for the ends of cells."""
    return value.rstrip("\n").replace("\t", "  ").split("\n")


def _plain(value: object) -> object:
    return "<nil>" if value is None else parts.NONE if value in ({}, []) else value


def label(key: str) -> str:
    """`Pod CIDR` for `podCIDR`; a key with anything but letters and digits stays as it is."""
    if not key.isalnum():
        return key
    return " ".join(map(_capitalized, _WORD.findall(key)))


def _capitalized(word: str) -> str:
    return word.upper() if word.lower() in _ABBREVIATIONS else word[:1].upper() + word[1:]
