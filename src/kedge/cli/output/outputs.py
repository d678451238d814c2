"""Objects as YAML, as JSON, by their names or through a template, as kubectl prints them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api.resource import Resource
from kedge.cli.objects.targets import kind_of
from kedge.cli.output.templates import OutputTemplate
from kedge.machinery import yaml_text as yaml_writer

JSON: Final = "application/json"

Found = tuple[Resource[Any], dict[str, Any]]
"""An object and what it is one of."""


def yaml_text(document: object) -> str:
    return yaml_writer.write(document).rstrip("\n")


def json_text(document: object) -> str:
    ordered = msgspec.json.encode(document, order="sorted")
    return msgspec.json.format(ordered, indent=4).decode()


def name_text(found: Found) -> str:
    resource, document = found
    return f"{kind_of(resource)}/{document['metadata']['name']}"


def text_of(objects: Sequence[Found], output: str, *, alone: bool) -> str:
    """The objects in the form asked for, to the last byte; one that is not `alone` is a list."""
    if output == "name":
        return "".join(f"{name_text(found)}\n" for found in objects)
    shown = [without_managers(document) for _, document in objects]
    whole = shown[0] if alone and len(shown) == 1 else _list(shown)
    if output == "yaml":
        return f"{yaml_text(whole)}\n"
    if output == "json":
        return f"{json_text(whole)}\n"
    return OutputTemplate(output.removeprefix("jsonpath=")).fill(whole)


def without_managers(document: Mapping[str, Any]) -> dict[str, Any]:
    """The object without the record of who set which field, which is long and rarely wanted."""
    metadata = dict(document.get("metadata") or {})
    metadata.pop("managedFields", None)
    return {**document, "metadata": metadata}


def _list(items: Sequence[object]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}
