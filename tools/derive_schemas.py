"""Derive the table of built-in types from a published OpenAPI v2 file.

    derive_schemas.py SWAGGER OUT

Only facts are taken over: names, types, formats, required fields, list and merge keys.
kedge/api/builtin/schemas.py reads the table and describes its format.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOTS = (
    "io.k8s.api.",
    "io.k8s.apiextensions-apiserver.pkg.apis.",
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.apimachinery.pkg.",
    "io.k8s.kube-aggregator.pkg.apis.",
)
SCALARS = {
    "api.resource.Quantity": "quantity",
    "util.intstr.IntOrString": "int-or-string",
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "micro-time",
}
ANYTHING = {
    "apiextensions.v1.JSON",
    "apiextensions.v1.JSONSchemaPropsOrArray",
    "apiextensions.v1.JSONSchemaPropsOrBool",
    "apiextensions.v1.JSONSchemaPropsOrStringArray",
    "meta.v1.FieldsV1",
    "meta.v1.Patch",
    "runtime.RawExtension",
}
STABLE = re.compile(r"v[0-9]+")


def main(swagger: str, out: str) -> None:
    definitions = json.loads(Path(swagger).read_text())["definitions"]
    table = {short(name): definitions[name] for name in sorted(reachable(definitions))}
    lines = [
        f"{json.dumps(name)}: {json.dumps(fields(name, node), separators=(',', ':'))}"
        for name, node in table.items()
        if name not in SCALARS
    ]
    Path(out).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def reachable(definitions: dict[str, Any]) -> set[str]:
    """The kinds of all stable versions except lists, and the types of their fields."""
    waiting = [name for name, node in definitions.items() if is_root(name, node)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += references(definitions[name])
    return found


def is_root(name: str, node: dict[str, Any]) -> bool:
    kinds = node.get("x-kubernetes-group-version-kind", ())
    return any(STABLE.fullmatch(gvk["version"]) for gvk in kinds) and not is_list(name, node)


def is_list(name: str, node: dict[str, Any]) -> bool:
    # Lists are all alike; OpenAPI documents make them from the kind.
    return name.endswith("List") and "items" in node.get("properties", {})


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):  # JSONSchemaProps has a field of this name
            yield target(node)
        for value in node.values():
            yield from references(value)


def target(node: dict[str, Any]) -> str:
    return str(node["$ref"]).removeprefix("#/definitions/")


def fields(name: str, definition: dict[str, Any]) -> dict[str, str]:
    if name in ANYTHING:
        return {"": "any"}
    required = definition.get("required", ())
    table = {
        field: " ".join([written(node), *(["required"] if field in required else []), *marks(node)])
        for field, node in definition.get("properties", {}).items()
    }
    if definition.get("x-kubernetes-map-type") == "atomic":
        table = {"": "atomic"} | table
    return table


def written(node: dict[str, Any]) -> str:
    if "$ref" in node:
        name = short(target(node))
        return SCALARS.get(name, name)
    match node.get("type"):
        case "array":
            return f"[{written(node['items'])}]"
        case "object" if "additionalProperties" in node:
            return f"{{{written(node['additionalProperties'])}}}"
        case "integer" | "number":
            return str(node["format"])
        case "string" if node.get("format") == "byte":
            return "bytes"
        case "string" | "boolean" as plain:
            return str(plain)
    raise ValueError(f"no way to write {node}")


def marks(node: dict[str, Any]) -> Iterator[str]:
    """Yield the properties of a field besides its type."""
    if node.get("x-kubernetes-map-type"):
        yield str(node["x-kubernetes-map-type"])
    if node.get("x-kubernetes-list-type") == "set":
        yield "set"
    if keys := node.get("x-kubernetes-list-map-keys"):
        yield f"keys={','.join(keys)}"
    strategies = node.get("x-kubernetes-patch-strategy", "").split(",")
    if "merge" in strategies:
        key = node.get("x-kubernetes-patch-merge-key", "")
        yield f"merge={key}" if key else "merge"
    if "retainKeys" in strategies:
        yield "retain"
    if "replace" in strategies:
        yield "replace"


def short(name: str) -> str:
    """`core.v1.Pod` for io.k8s.api.core.v1.Pod."""
    root = next(root for root in ROOTS if name.startswith(root))
    return name.removeprefix(root)


if __name__ == "__main__":
    main(*sys.argv[1:])
