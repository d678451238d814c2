"""The paths and operations of a kind, in OpenAPI 3 and OpenAPI 2."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from kedge.api.builtin import schemas
from kedge.api.openapi_schemas import (
    DELETE_OPTIONS,
    PATCH,
    STATUS,
    Components,
    Json,
    gvk,
    list_name,
)
from kedge.api.resource import Resource, Subresource

_BODIES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_CUSTOM_BODIES = _BODIES[:2]
_ANSWERS = ("application/json", "application/yaml")
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_PARAMETERS: dict[str, tuple[str, str]] = {
    "allowWatchBookmarks": ("boolean", "Whether a watch may send events that only carry progress."),
    "continue": ("string", "The token of an earlier page, to ask for the next one."),
    "dryRun": ("string", "All: do everything but store the result."),
    "fieldManager": ("string", "Who makes the change, as managedFields will call it."),
    "fieldSelector": ("string", "Only objects with these field values, for instance a=b,c!=d."),
    "fieldValidation": ("string", "Ignore, Warn or Strict: what to do about unknown fields."),
    "force": ("boolean", "Whether to take over fields that another manager applied."),
    "gracePeriodSeconds": ("integer", "How long the object may take to end; 0 is at once."),
    "ignoreStoreReadErrorWithClusterBreakingPotential": (
        "boolean",
        "Whether to delete an object that cannot be read from the store.",
    ),
    "labelSelector": ("string", "Only objects with these labels, for instance a=b,c notin (d)."),
    "limit": ("integer", "The most objects to send in one page."),
    "orphanDependents": ("boolean", "Superseded by propagationPolicy."),
    "pretty": ("string", "Whether to lay the answer out for people."),
    "propagationPolicy": (
        "string",
        "Foreground, Background or Orphan: what becomes of dependents.",
    ),
    "resourceVersion": ("string", "The state of the store to read or to watch from."),
    "resourceVersionMatch": ("string", "Exact or NotOlderThan: how to read resourceVersion."),
    "sendInitialEvents": ("boolean", "Whether a watch begins with the objects that exist."),
    "timeoutSeconds": ("integer", "After how long to end a list or a watch."),
    "watch": ("boolean", "Whether to stream changes instead of listing."),
    "name": ("string", "Name of the object."),
    "namespace": ("string", "Namespace of the object."),
}
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = (
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
)
_PAGE = (
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
)
_QUERY = {
    "get": (),
    "list": ("allowWatchBookmarks", *_PAGE, "watch"),
    "post": _WRITE,
    "put": _WRITE,
    "patch": (*_WRITE, "force"),
    "delete": _DELETE,
    "deletecollection": (*_PAGE, *_DELETE),
    "connect": (),
}
_METHODS = {
    "get": ("get", "read", "get"),
    "list": ("get", "list", "list"),
    "create": ("post", "create", "post"),
    "update": ("put", "replace", "put"),
    "patch": ("patch", "patch", "patch"),
    "delete": ("delete", "delete", "delete"),
    "deletecollection": ("delete", "delete", "deletecollection"),
}
"""Of each verb: the method, the first word of the operation's name, and the action."""
_ON_SEVERAL = ("list", "create", "deletecollection")
_CODES = {
    "get": ("200",),
    "list": ("200",),
    "post": ("200", "201", "202"),
    "put": ("200", "201"),
    "patch": ("200", "201"),
    "delete": ("200", "202"),
    "deletecollection": ("200",),
    "connect": ("200",),
}


class Paths:
    """The paths of kinds, in OpenAPI 3."""

    def __init__(self, components: Components) -> None:
        self.components = components
        self.written: dict[str, Json] = {}

    def add(self, resource: Resource[Any]) -> None:
        """All paths of a kind; the types they speak of go into the components."""
        kind = self.components.add_kind(resource)
        root = root_path(resource.group, resource.version)
        inside = "/namespaces/{namespace}" if resource.namespaced else ""
        collection = f"{root}{inside}/{resource.plural}"
        for verb in _METHODS:
            if verb in resource.verbs:
                path = collection if verb in _ON_SEVERAL else f"{collection}/{{name}}"
                self._operation(path, resource, verb, kind)
        if resource.namespaced and "list" in resource.verbs:
            self._operation(f"{root}/{resource.plural}", resource, "list", kind)
        for sub in resource.subresources:
            self._subresource(f"{collection}/{{name}}/{sub.name}", resource, sub, kind)

    def _subresource(
        self, path: str, resource: Resource[Any], sub: Subresource, kind: Json
    ) -> None:
        shown = self._sub_kind(resource, sub, kind)
        for verb in sub.verbs:
            self._operation(path, resource, verb, shown, sub)

    def _sub_kind(self, resource: Resource[Any], sub: Subresource, kind: Json) -> Json:
        """Return the request and response types of a subresource: objects of a kind, or text."""
        if sub.name == "log" or sub.kind.endswith("Options"):
            return {"type": "string"}
        if sub.kind in ("", resource.kind):
            return kind
        meant = _meant(resource, sub)
        package = meant["group"].partition(".")[0] or "core"
        return self.components.ref(schemas.full_name(f"{package}.{meant['version']}.{sub.kind}"))

    def _operation(
        self,
        path: str,
        resource: Resource[Any],
        verb: str,
        kind: Json,
        sub: Subresource | None = None,
    ) -> None:
        method, word, action = _METHODS[verb]
        if sub is not None and sub.kind.endswith("Options"):
            word = action = "connect"
        item = self.written.setdefault(path, {"parameters": _parameters_of(path)})
        operation: Json = {
            "operationId": _operation_id(path, resource, verb, word, sub),
            "tags": [_tag(resource)],
            "description": _description(verb, resource, sub),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _meant(resource, sub),
            "responses": self._responses(action, resource, kind),
        }
        if query := [_parameter(name, "query") for name in _QUERY[action]]:
            operation["parameters"] = query
        if body := self._body(action, resource, kind):
            operation["requestBody"] = body
        item[method] = operation

    def _responses(self, action: str, resource: Resource[Any], kind: Json) -> Json:
        status = self.components.ref(STATUS)
        shown = {
            "list": self.components.link(list_name(resource)),
            "deletecollection": status,
            "delete": {"oneOf": [kind, status]} if not self.components.v2 else status,
        }.get(action, kind)
        types = ("text/plain",) if "$ref" not in kind else _ANSWERS
        if action == "list":
            types = (*types, "application/json;stream=watch")
        answer = {"description": "OK", "content": {each: {"schema": shown} for each in types}}
        failure = {"application/json": {"schema": status}}
        return {
            **dict.fromkeys(_CODES[action], answer),
            "401": {"description": "Unauthorized", "content": failure},
            "default": {"description": "Failure", "content": failure},
        }

    def _body(self, action: str, resource: Resource[Any], kind: Json) -> Json | None:
        if action in ("post", "put"):
            types: Sequence[str] = _CUSTOM_BODIES if resource.custom else _BODIES
            return {"required": True, "content": {each: {"schema": kind} for each in types}}
        if action == "patch":
            patch = {"schema": self.components.ref(PATCH)}
            types = [each for each in _PATCHES if not (resource.custom and "strategic" in each)]
            return {"required": True, "content": dict.fromkeys(types, patch)}
        if action in ("delete", "deletecollection"):
            options = {"schema": self.components.ref(DELETE_OPTIONS)}
            return {"content": dict.fromkeys(_BODIES[:2], options)}
        return None


def root_path(group: str, version: str) -> str:
    """`/api/v1` or `/apis/apps/v1`."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def in_v2(paths: dict[str, Json]) -> dict[str, Json]:
    """The same paths in the words of version 2."""
    return {path: {k: _item_in_v2(k, v) for k, v in item.items()} for path, item in paths.items()}


def _item_in_v2(key: str, value: Any) -> Any:
    if key == "parameters":
        return [_parameter_in_v2(each) for each in value]
    operation = dict(value)
    parameters = [_parameter_in_v2(each) for each in operation.pop("parameters", ())]
    body = operation.pop("requestBody", None)
    consumes = ["*/*"]
    if body is not None:
        consumes, schema = list(body["content"]), next(iter(body["content"].values()))["schema"]
        required = {"required": True} if body.get("required") else {}
        parameters.insert(0, {"in": "body", "name": "body", "schema": schema, **required})
    responses = operation.pop("responses")
    return {
        **operation,
        "consumes": consumes,
        "produces": list(responses["200"]["content"]),
        "schemes": ["https"],
        **({"parameters": parameters} if parameters else {}),
        "responses": {code: _response_in_v2(each) for code, each in responses.items()},
    }


def _parameter_in_v2(parameter: Json) -> Json:
    rest = {key: value for key, value in parameter.items() if key != "schema"}
    return {**rest, **parameter["schema"]}


def _response_in_v2(response: Json) -> Json:
    schema = next(iter(response["content"].values()))["schema"]
    return {"description": response["description"], "schema": schema}


def _parameter(name: str, place: str) -> Json:
    kind, description = _PARAMETERS[name]
    required = {"required": True} if place == "path" else {}
    schema = {"type": kind}
    return {"name": name, "in": place, "description": description, "schema": schema, **required}


def _parameters_of(path: str) -> list[Json]:
    names = [name for name in ("name", "namespace") if f"{{{name}}}" in path]
    return [*(_parameter(name, "path") for name in names), _parameter("pretty", "query")]


def _meant(resource: Resource[Any], sub: Subresource | None) -> Json:
    if sub is None or not sub.kind:
        return gvk(resource)
    group, version = (sub.group, sub.version) if sub.version else (resource.group, resource.version)
    return {"group": group, "kind": sub.kind, "version": version}


def _operation_id(
    path: str, resource: Resource[Any], verb: str, word: str, sub: Subresource | None
) -> str:
    """`listAppsV1NamespacedDeployment`: clients name their methods after these."""
    group = _camel(resource.group.removesuffix(".k8s.io") or "core")
    collection = "Collection" if verb == "deletecollection" else ""
    namespaced = "Namespaced" if "{namespace}" in path else ""
    everywhere = "ForAllNamespaces" if resource.namespaced and not namespaced else ""
    part = _camel(sub.name) if sub else ""
    method = _METHODS[verb][0].capitalize() if word == "connect" else ""
    head = f"{word}{group}{_camel(resource.version)}{method}"
    return f"{head}{collection}{namespaced}{resource.kind}{part}{everywhere}"


def _tag(resource: Resource[Any]) -> str:
    group = _camel(resource.group.removesuffix(".k8s.io") or "core")
    return f"{group[:1].lower()}{group[1:]}_{resource.version}"


def _camel(text: str) -> str:
    return "".join(_capitalized(re.split(r"[^A-Za-z0-9]+", text)))


def _capitalized(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        yield word[:1].upper() + word[1:]


def _description(verb: str, resource: Resource[Any], sub: Subresource | None) -> str:
    part = f"{sub.name} of one {resource.kind}" if sub else f"one {resource.kind}"
    several = f"objects of kind {resource.kind}"
    return {
        "get": f"Read the {part}." if sub else f"Read {part}.",
        "list": f"List or watch {several}.",
        "create": f"Create the {part}." if sub else f"Create {part}.",
        "update": f"Replace the {part}." if sub else f"Replace {part}.",
        "patch": f"Change the {part}." if sub else f"Change {part}.",
        "delete": f"Delete the {part}." if sub else f"Delete {part}.",
        "deletecollection": f"Delete {several}.",
    }[verb]
