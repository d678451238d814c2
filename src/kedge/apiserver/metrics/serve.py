"""Get, list and watch of usage, in both metrics groups and in every form."""

from typing import Final

from kedge.api.model import ListMeta
from kedge.apiserver import render
from kedge.apiserver.api import Api, gone
from kedge.apiserver.metrics.watch import watch
from kedge.apiserver.request import Request
from kedge.apiserver.verbs.unstored import page, page_options
from kedge.apiserver.watchcache import Item
from kedge.machinery.errors import bad_request, unknown_resource
from kedge.machinery.selectors import FieldSelector, parse_fields, parse_labels
from kedge.metrics.collection import Collection
from kedge.metrics.selection import HURRY_NODES, UsageSelection
from kedge.metrics.serve import lists
from kedge.metrics.serve.lists import ListForm
from kedge.metrics.usage_object import UsageObject
from kedge.web.message import Response

PAGED_FROM: Final = 20_000
"""Lists that are longer than this come in pages, if the client asks for pages."""
_KUBERNETES: Final = "metrics.k8s.io"
_FIELDS: Final = frozenset(("metadata.name", "metadata.namespace"))


def answer(api: Api, request: Request) -> Response:
    """The response to a get, list or watch; other verbs were refused before."""
    collection = api.metrics.nodes if request.resource.plural == "nodes" else api.metrics.pods
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


def _list(api: Api, request: Request, collection: Collection, form: ListForm) -> Response:
    version = collection.versions.last
    options = page_options(request, version)
    if len(collection) <= PAGED_FROM:
        options = options._replace(limit=0)
    selected = selection(request)
    choice = render.wanted(request, render.MANY)
    meta = ListMeta(resourceVersion=str(version))
    if choice.form == "json" and selected.everything and not any(options):
        return Response(200, lists.whole(form, collection, selected, meta))
    objects, meta = page(
        collection.select(selected),
        lambda each: each.key,
        options,
        meta,
        counts_rest=selected.everything,
    )
    if choice.form == "json":
        return Response(200, lists.pieces(form, objects, meta))
    return render.many(request, [_item(form, each) for each in objects], meta, api.clock)
