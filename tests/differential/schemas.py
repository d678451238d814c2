"""Kinds and schemas as a server publishes them in its OpenAPI v3 documents."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.differential.cases import NAMESPACE, Kind

from kedge.client.transport import Call, Transport

_REFERENCE: Final = "#/components/schemas/"
_NAMESPACED: Final = "/namespaces/{namespace}/"


async def kinds(server: Transport) -> list[Kind]:
    """Return every kind whose objects can be created."""
    found = []
    for path in (await _document(server, "/openapi/v3"))["paths"].values():
        address, _, query = path["serverRelativeURL"].partition("?")
        found += _kinds(await _document(server, address, query))
    return found


async def version(server: Transport) -> str:
    """Return the version of the server."""
    return str((await _document(server, "/version"))["gitVersion"])


async def _document(server: Transport, path: str, query: str = "") -> dict[str, Any]:
    reply = await server.send(Call("GET", path, query, {"accept": "application/json"}))
    document: dict[str, Any] = json.loads(reply.body)
    return document


def _kinds(document: Mapping[str, Any]) -> Iterator[Kind]:
    paths = document.get("paths", {})
    for path, operations in paths.items():
        operation = operations.get("post", {})
        if "x-kubernetes-group-version-kind" not in operation or path.endswith("}"):
            continue
        name = operation["x-kubernetes-group-version-kind"]
        plural = path.rpartition("/")[2]
        contents = operation.get("requestBody", {}).get("content", {}).values()
        body = next((content.get("schema") for content in contents), None)
        if body is None or f"{path}/{{name}}" not in paths:
            continue
        parts = [part for part in (name.get("group"), name["version"]) if part]
        yield Kind(
            name=name["kind"],
            api_version="/".join(parts),
            plural=plural,
            path=path.replace("{namespace}", NAMESPACE),
            namespaced=_NAMESPACED in path,
            schema=_Schemas(document).resolved(body),
            subresources=frozenset(
                other.rpartition("/")[2] for other in paths if other.startswith(f"{path}/{{name}}/")
            ),
        )


class _Schemas:
    """Schemas of one document, whose references are followed when a field is looked at."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._named = document.get("components", {}).get("schemas", {})

    def resolved(self, schema: Mapping[str, Any]) -> "ResolvedSchema":
        return ResolvedSchema(self._named, schema)


class ResolvedSchema(dict[str, Any]):
    """A schema without references; those of its fields are resolved when they are read."""

    def __init__(self, named: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
        self.name = ""
        inner = schema.get("allOf", [schema])[0]
        if "$ref" in inner:
            self.name = inner["$ref"].removeprefix(_REFERENCE)
            target = named.get(self.name, {})
            schema = {**target, **{key: schema[key] for key in schema if key != "allOf"}}
            schema.pop("$ref", None)
        super().__init__(schema)
        self._named = named

    def field(self, name: str) -> "ResolvedSchema":
        return ResolvedSchema(self._named, self["properties"][name])

    @property
    def element(self) -> "ResolvedSchema | None":
        """The schema of the elements of a list or map."""
        inner = self.get("items") or self.get("additionalProperties")
        return ResolvedSchema(self._named, inner) if isinstance(inner, dict) else None
