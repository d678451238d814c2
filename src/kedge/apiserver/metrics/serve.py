"""Get, list and watch of usage, in both metrics groups and in every form."""

from collections.abc import Sequence
from typing import Final

from kedge.api.model import ListMeta
from kedge.api.resource import ObjectSource
from kedge.apiserver import render
from kedge.apiserver.api import Api, gone
from kedge.apiserver.context import Answer
from kedge.apiserver.metrics import percentiles
from kedge.apiserver.metrics.watch import watch
from kedge.apiserver.request import Request
from kedge.apiserver.verbs.unstored import page, page_options
from kedge.apiserver.watchcache import Item
from kedge.machinery.errors import bad_request, unknown_resource
from kedge.machinery.selectors import FieldSelector, parse_fields, parse_labels
from kedge.metrics.collection import Collection
from kedge.metrics.selection import DETAILS, HURRY_NODES, UsageSelection
from kedge.metrics.serve import lists
from kedge.metrics.serve.lists import ListForm
from kedge.metrics.usage_object import UsageObject
from kedge.web.message import Response, warning_headers

PAGED_FROM: Final = 20_000
"""Lists that are longer than this come in pages, if the client asks for pages."""
_KUBERNETES: Final = "metrics.k8s.io"
_FIELDS: Final = frozenset(("metadata.name", "metadata.namespace"))


def answer(api: Api, request: Request) -> Answer:
    """The response to a get, list or watch; other verbs were refused before."""
    collection = _collection(api, request)
    if wanted := percentiles.requested(request):
        return _with_percentiles(api, request, collection, wanted)
    form = _form(api, request)
    if request.verb == "watch":
        if not request.query.flag("watch"):
            # The old form of the path, below /watch/, does not exist in these groups.
            raise unknown_resource()
        return watch(api, request, collection, selection(request), lambda each: _item(form, each))
    if request.verb == "get":
        return _one(api, request, collection, form)
    return _list(api, request, collection, form)


def selection(request: Request) -> UsageSelection:
    """The objects that path and query select; 400 if a selector is malformed."""
    query = request.query
    try:
        labels = parse_labels(query.get("labelSelector"))
        fields = parse_fields(query.get("fieldSelector"))
    except ValueError as error:
        raise bad_request(str(error)) from None
    _check_fields(request, fields)
    # A person who watches wants every tick. The scheduler always watches: if that made nodes
    # report each tick, the resolution of a node would have no effect.
    hurries = HURRY_NODES not in query or query.flag(HURRY_NODES)
    return UsageSelection(request.namespace, labels, fields, hurries)


def _collection(api: Api, request: Request) -> Collection:
    resource = request.resource
    if resource.source is ObjectSource.USAGE_AGGREGATES:
        return api.metrics.aggregates.current(resource.plural)
    reports = api.metrics
    by_plural = {"nodes": reports.nodes, "persistentvolumeclaims": reports.claims}
    return by_plural.get(resource.plural, reports.pods)


def _check_fields(request: Request, fields: FieldSelector) -> None:
    for term in fields.terms:
        if term.field not in _FIELDS and term.field not in request.resource.presentation.fields:
            raise bad_request(f"field label not supported: {term.field}")


def _form(api: Api, request: Request) -> ListForm:
    resource = request.resource
    window = api.metrics.usage_window if resource.group == _KUBERNETES else ""
    return ListForm(resource.kind, resource.list_kind, resource.api_version, window)


def _item(form: ListForm, found: UsageObject) -> Item:
    return Item(found.key, found.version, lists.one(form, found))


def _one(api: Api, request: Request, collection: Collection, form: ListForm) -> Response:
    found = collection.get(request.namespace, request.name)
    if found is None or (not found.listed and request.resource.group == _KUBERNETES):
        raise gone(request)
    return render.one(request, _item(form, found), api.clock)


async def _with_percentiles(
    api: Api, request: Request, collection: Collection, wanted: str
) -> Response:
    if request.verb == "get":
        found = collection.get(request.namespace, request.name)
        if found is None:
            raise gone(request)
        (body,) = await percentiles.extended(api, request, [found], wanted)
        return render.one(request, Item(found.key, found.version, body), api.clock)
    objects = collection.select(selection(request))
    meta = ListMeta(resourceVersion=str(collection.versions.last))
    bodies = await percentiles.extended(api, request, objects, wanted)
    items = [Item(each.key, each.version, body) for each, body in zip(objects, bodies, strict=True)]
    response = render.many(request, items, meta, api.clock)
    response.headers.extend(warning_headers(request.warnings))
    return response


def _list(api: Api, request: Request, collection: Collection, form: ListForm) -> Answer:
    version = collection.versions.last
    options = page_options(request, version)
    if len(collection) <= PAGED_FROM:
        options = options._replace(limit=0)
    selected = selection(request)
    choice = render.response_form(request, render.MANY)
    meta = ListMeta(resourceVersion=str(version))
    query = request.query
    form = form._replace(has_details=DETAILS not in query or query.flag(DETAILS))
    is_whole = selected.everything and not any(options) and form.has_details
    if choice.form == "json" and is_whole:
        return Response(200, lists.whole(form, collection, selected, meta))
    objects, meta = page(
        collection.select(selected),
        lambda each: each.key,
        options,
        meta,
        counts_rest=selected.everything,
    )
    if choice.form == "json":
        body = lists.pieces(form, objects, meta, collection.at_once)
        if selected.node is not None:
            # The scheduler reads each node once.
            collection.read_once(objects)
        return Response(200, body)
    return _shown(api, request, objects, form, meta)


async def _shown(
    api: Api, request: Request, objects: Sequence[UsageObject], form: ListForm, meta: ListMeta
) -> Response:
    """A list in another form than JSON, which needs all objects first."""
    items = []
    for each in objects:
        items.append(_item(form, each))
        await api.clock.give_way()
    return render.many(request, items, meta, api.clock)
