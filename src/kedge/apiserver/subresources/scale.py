"""scale: how many replicas a workload has and should have, the same for every kind of workload."""

from typing import Any

import msgspec

from kedge.api.autoscaling_v1.scale import COLUMNS, Scale
from kedge.api.model import Document, Object, ObjectMeta
from kedge.api.presentation import Presentation
from kedge.api.resource import Resource, ScalePaths
from kedge.apiserver import prepare, render
from kedge.apiserver.api import Api, gone, live_document
from kedge.apiserver.request import Request
from kedge.apiserver.verbs import decode, write
from kedge.apiserver.verbs.patches import DesiredDocument, PatchScope, read_patch
from kedge.apiserver.verbs.write import ObjectPart
from kedge.apiserver.watchcache import Item
from kedge.machinery.errors import FieldError, invalid
from kedge.machinery.jsonpath import parse_path
from kedge.machinery.selectors import labels_from_map, labels_from_object
from kedge.web.message import Response

SCALE = Resource(
    type=Scale,
    group="autoscaling",
    plural="scales",
    presentation=Presentation(columns=COLUMNS),
)
"""The Scale, which is read and shown but never stored."""


async def get(api: Api, request: Request) -> Response:
    """Show the replicas of a workload."""
    item = api.find(request)
    if item is None:
        raise gone(request)
    return await _answer(api, request, item)


async def update(api: Api, request: Request) -> Response:
    """Set the replicas of a workload."""
    posted = decode.posted_small(_view(request), "UpdateOptions")
    _check_name(request, posted)
    return await _answer(api, request, await _set(api, request, lambda scale: posted))


async def patch(api: Api, request: Request) -> Response:
    """Apply a patch to the Scale, and its replicas to the workload."""
    write.check_patchable(api, request)
    change = await api.long_work.run(len(request.http.body), read_patch, _view(request))

    def patched(scale: dict[str, Any]) -> dict[str, Any]:
        scope = PatchScope("scale", write.MAIN.ignored, api.timestamp())
        return change.produce(scale, scope).document

    return await _answer(api, request, await _set(api, request, patched))


async def _answer(api: Api, request: Request, item: Item) -> Response:
    item = await api.own_version(request.resource, item)
    shown = scale_of(request.resource, live_document(request.resource, item))
    scale = Item(item.key, item.revision, msgspec.json.encode(shown))
    return render.one(_view(request), scale, api.clock)


def _view(request: Request) -> Request:
    """Return the same request, about the Scale instead of the workload."""
    return Request(
        request.http,
        request.user,
        SCALE,
        request.verb,
        request.namespace,
        request.name,
        request.subresource,
        request.warnings,
    )


async def _set(api: Api, request: Request, change: Any) -> Item:
    def scaled(live: dict[str, Any]) -> DesiredDocument:
        scale = change(scale_of(request.resource, live))
        return DesiredDocument(_with_replicas(request, live, scale))

    part = ObjectPart("scale", write.MAIN.take, write.MAIN.validate, write.MAIN.ignored, _shown)
    return await write.modify(api, request, scaled, part, "UpdateOptions")


def _shown(resource: Resource[Any], obj: Object) -> Object:
    scale = scale_of(resource, resource.to_document(obj))
    return Document(
        apiVersion=scale["apiVersion"],
        kind=scale["kind"],
        metadata=msgspec.convert(scale["metadata"], ObjectMeta),
        content={"spec": scale["spec"], "status": scale["status"]},
    )


def _with_replicas(request: Request, live: dict[str, Any], scale: dict[str, Any]) -> dict[str, Any]:
    _check_name(request, scale)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        error = FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", request.name, [error])
    meta = live["metadata"]
    sent = scale.get("metadata") or {}
    for name in ("uid", "resourceVersion"):
        if sent.get(name):
            meta = meta | {name: sent[name]}
    return _put(live | {"metadata": meta}, _paths(request.resource).replicas, replicas)


def _check_name(request: Request, scale: dict[str, Any]) -> None:
    sent = scale.get("metadata") or {}
    named = ObjectMeta(name=sent.get("name", ""), namespace=sent.get("namespace", ""))
    prepare.place(request, named)


def scale_of(resource: Resource[Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return the Scale of a workload."""
    paths = _paths(resource)
    meta = document["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": _find(document, paths.observed) or 0}
    if paths.selector and (selector := _selector(_find(document, paths.selector))):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in kept if name in meta},
        "spec": {"replicas": _find(document, paths.replicas) or 0},
        "status": status,
    }


def _selector(found: Any) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, dict):
        if "matchLabels" in found or "matchExpressions" in found or not found:
            return str(labels_from_object(found))
        return str(labels_from_map(found))
    return ""


def _paths(resource: Resource[Any]) -> ScalePaths:
    return resource.scale or ScalePaths()


def _find(document: dict[str, Any], path: str) -> Any:
    found = parse_path(path).find(document)
    return found[0] if found else None


def _put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of the document with one value set."""
    head, _, rest = path.lstrip(".").partition(".")
    if not rest:
        return document | {head: value}
    inner = document.get(head)
    return document | {head: _put(inner if isinstance(inner, dict) else {}, rest, value)}
