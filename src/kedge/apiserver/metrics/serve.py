"""Get, list and watch of what is measured, in both groups and in every form."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from kedge.api.model import ListMeta
from kedge.apiserver import render
from kedge.apiserver.api import Api, gone
from kedge.apiserver.metrics import kubernetes
from kedge.apiserver.metrics.collection import Collection, Entry, Wanted, Writer
from kedge.apiserver.metrics.encoding import BEGINNINGS, USAGE_BEGINNING
from kedge.apiserver.metrics.watch import watch
from kedge.apiserver.request import Request, integer
from kedge.apiserver.verbs.read import check_match, initial_events_on_list, parse_revision
from kedge.apiserver.watchcache import Item
from kedge.machinery.errors import StatusError, bad_request, expired, unknown_resource
from kedge.machinery.selectors import FieldSelector, parse_fields, parse_labels
from kedge.web.message import Response

PAGED_FROM: Final = 20_000
"""Lists that are longer than this come in pages, if pages are asked for."""
KEPT_UP_TO: Final = 2_000
"""Objects in a list that is kept as it was sent."""
_TOGETHER: Final = 128
"""Objects in one piece of a list."""
_FIELDS: Final = frozenset(("metadata.name", "metadata.namespace"))


def answer(api: Api, request: Request) -> Response:
    """The answer to a read; everything else was refused before."""
    collection = api.metrics.nodes if request.resource.plural == "nodes" else api.metrics.pods
    if request.verb == "watch":
        if not request.query.flag("watch"):
            # Below /watch/, which this group was never to have.
            raise unknown_resource()
        return watch(api, request, collection, selected(request), _to_item(api))
    if request.verb == "get":
        return _one(api, request, collection)
    return _list(api, request, collection)


def selected(request: Request) -> Wanted:
    """What path and query describe; 400 if it makes no sense."""
    query = request.query
    try:
        labels = parse_labels(query.get("labelSelector"))
        fields = parse_fields(query.get("fieldSelector"))
    except ValueError as error:
        raise bad_request(str(error)) from None
    _check(request, fields)
    # The scheduler always watches: if that hurried nodes, their resolution would mean nothing.
    patient = request.http.headers.get("user-agent", "").startswith("kube-scheduler")
    return Wanted(request.namespace, labels, fields, patient)


def _check(request: Request, fields: FieldSelector) -> None:
    for term in fields.terms:
        if term.field not in _FIELDS and term.field not in request.resource.fields:
            raise bad_request(f"field label not supported: {term.field}")


def item_of(request: Request, entry: Entry, window: str) -> Item:
    """An entry as what is rendered; in metrics.k8s.io, of one window."""
    if request.resource.group == kubernetes.GROUP:
        return Item(entry.key, entry.version, kubernetes.one(request.resource, entry, window))
    return Item(entry.key, entry.version, entry.body())


def _to_item(api: Api) -> Callable[[Request, Entry], Item]:
    window = api.metrics.usage_window
    return lambda request, entry: item_of(request, entry, window)


def _one(api: Api, request: Request, collection: Collection) -> Response:
    entry = collection.get(request.namespace, request.name)
    if entry is None or (not entry.listed and request.resource.group == kubernetes.GROUP):
        raise gone(request)
    return render.one(request, _to_item(api)(request, entry), api.clock)


def _list(api: Api, request: Request, collection: Collection) -> Response:
    query = request.query
    version, window = collection.versions.last, api.metrics.usage_window
    if request.http.query_string:
        _check_options(request, version)
    wanted = selected(request)
    limit = integer(request, "limit")
    if len(collection) <= PAGED_FROM:
        limit = 0
    after = _position(query.get("continue"))
    choice = render.wanted(request, render.MANY)
    if choice.form == "json" and wanted.everything and not limit and not after:
        return Response(200, _whole(request, collection, wanted, version, window))
    entries = collection.select(wanted)
    if after:
        entries = [entry for entry in entries if entry.key > after]
    meta = ListMeta(resourceVersion=str(version))
    if limit and len(entries) > limit:
        left = len(entries) - limit
        entries = entries[:limit]
        meta = ListMeta(
            resourceVersion=str(version),
            continue_=base64.urlsafe_b64encode(entries[-1].key.encode()).decode(),
            remainingItemCount=left if wanted.everything else None,
        )
    if choice.form == "json":
        return Response(200, _pieces(request, entries, meta, window))
    items = [item_of(request, entry, window) for entry in entries]
    return render.many(request, items, meta, api.clock)


def _check_options(request: Request, version: int) -> None:
    query = request.query
    if "sendInitialEvents" in query:
        raise initial_events_on_list()
    match = query.get("resourceVersionMatch")
    check_match(query.get("resourceVersion"), match, query.get("continue"))
    asked = parse_revision(query.get("resourceVersion"))
    if match == "Exact" and asked != version:
        raise _only_now(asked)


def _only_now(asked: int) -> StatusError:
    return expired(f"The resourceVersion for the provided list is too old. ({asked})")


def _position(token: str) -> str:
    try:
        return base64.b64decode(token, b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise bad_request("continue key is not valid: encoded continue key is malformed") from None


def _whole(
    request: Request, collection: Collection, wanted: Wanted, version: int, window: str
) -> bytes | Iterable[bytes]:
    """The list of everything; those who ask before anything changes get the same bytes.

    What is long is joined while it is sent: by then the next node has reported, and two copies of
    everything would be kept for nobody.
    """
    form = (request.resource.api_version, wanted.namespace)
    pieces = collection.lists.get(form)
    if pieces is None:
        entries = collection.select(wanted)
        fresh = _pieces(request, entries, ListMeta(resourceVersion=str(version)), window)
        if len(entries) > KEPT_UP_TO:
            collection.keep_ready(request.resource.api_version, _writer(request, window))
            return fresh
        pieces = fresh if isinstance(fresh, bytes) else list(fresh)
        collection.lists[form] = pieces
    return pieces


def _pieces(
    request: Request, entries: Sequence[Entry], meta: ListMeta, window: str
) -> bytes | Iterable[bytes]:
    """The list; a short one in one piece, which is sent at once."""
    resource = request.resource
    head: dict[str, Any] = {"kind": resource.list_kind, "apiVersion": resource.api_version}
    encoded = msgspec.json.encode(head | {"metadata": meta, "items": []})
    ours = resource.group != kubernetes.GROUP
    beginning = BEGINNINGS[resource.kind] if ours else USAGE_BEGINNING
    pieces = _joined(encoded[:-2], beginning, entries, _writer(request, window))
    return next(pieces) if len(entries) <= _TOGETHER else pieces


def _writer(request: Request, window: str) -> Writer:
    return partial(_usages, window) if request.resource.group == kubernetes.GROUP else _bodies


def _joined(
    head: bytes, beginning: bytes, entries: Sequence[Entry], write: Writer
) -> Iterator[bytes]:
    """The list, in pieces: what nobody has asked for yet is written only when its piece is due,
    so that others are served in between."""
    last = max(0, len(entries) - 1) // _TOGETHER * _TOGETHER
    for at in range(0, last, _TOGETHER):
        yield head + _items(beginning, *write(entries[at : at + _TOGETHER]))
        head = b","
    yield head + _items(beginning, *write(entries[last:])) + b"]}\n"


def _items(beginning: bytes, metadata: list[bytes], rests: list[bytes]) -> bytes:
    """Objects one after the other."""
    pieces = [b"," + beginning] * (3 * len(rests))
    pieces[:1] = [beginning] if rests else []
    pieces[1::3] = metadata
    pieces[2::3] = rests
    return b"".join(pieces)


def _usages(window: str, entries: Sequence[Entry]) -> tuple[list[bytes], list[bytes]]:
    rests = [entry.kept_usage or entry.usage_rest(window) for entry in entries]
    return _metadata(entries), rests


def _bodies(entries: Sequence[Entry]) -> tuple[list[bytes], list[bytes]]:
    return _metadata(entries), [entry.kept_rest or entry.rest() for entry in entries]


def _metadata(entries: Sequence[Entry]) -> list[bytes]:
    return [entry.kept_metadata or entry.metadata() for entry in entries]
