"""Get and list: from the watch cache, or from the store's history for a past revision."""

import base64
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from kedge.api.model import ListMeta
from kedge.apiserver import render
from kedge.apiserver.api import Api, gone
from kedge.apiserver.long_work import LONG
from kedge.apiserver.request import Request, list_numbers
from kedge.apiserver.verbs.selection import selected
from kedge.apiserver.watchcache import Item, ResourceCache, Selection
from kedge.machinery.errors import (
    FieldError,
    StatusCause,
    StatusError,
    bad_request,
    expired,
    invalid_options,
    quoted,
    timeout,
)
from kedge.storage.store import RevisionCompacted, UndecryptableValue, UnreadableValue
from kedge.web.message import Query, Response, Sink

WAIT_FOR_REVISION = 3.0
"""Seconds that a read waits for a state that the server has not reached yet."""
_LARGEST_REVISION = (1 << 64) - 1
_REVISION_DIGITS = 20


def get(api: Api, request: Request) -> Response | Coroutine[Any, Any, Response]:
    """Return the object as it is now: every acknowledged write is in the cache already."""
    if request.http.query_string and (version := request.query.get("resourceVersion")):
        is_cached = not request.resource.strategy.ttl
        parse = parse_own_revision if is_cached else parse_revision
        _check_reached(api, parse(version))
    item = api.find(request)
    if item is None:
        raise gone(request)
    if item.size < LONG and request.resource.conversion is None:
        return render.one(request, item, api.clock)
    return shown_object(api, request, item)


async def shown_object(api: Api, request: Request, item: Item, status: int = 200) -> Response:
    """Return one object; a large one is shown in a thread."""
    item = await api.own_version(request.resource, item)
    return await api.long_work.run(item.size, render.one, request, item, api.clock, status)


def _check_reached(api: Api, revision: int) -> None:
    """Refuse a revision of the future; the cache is not older than any other."""
    if revision > api.cache.revision:
        raise too_new(revision, api.cache.revision)


class ListSnapshot(msgspec.Struct, frozen=True):
    """The state of the store that a list shows."""

    exact: int = 0
    """That very revision; 0 means the latest."""
    after: str = ""
    """Keys up to this one were sent in earlier pages."""


class ContinueToken(msgspec.Struct):
    """The content of a continue token."""

    rv: int
    start: str = ""
    v: str = "meta.k8s.io/v1"


def list_(api: Api, request: Request) -> Response | Awaitable[Response]:
    """Return the objects of a selection."""
    query = request.query
    if "sendInitialEvents" in query:
        raise initial_events_on_list(query)
    limit = list_numbers(query).limit if request.http.query_string else 0
    is_plain = query.get("resourceVersion") in ("", "0") and not limit
    is_plain = is_plain and request.resource.conversion is None
    if is_plain and not query.get("continue") and not query.get("resourceVersionMatch"):
        return _list_latest(api, request)
    return _list_snapshot(api, request)


def initial_events_on_list(query: Query) -> StatusError:
    """Return the errors of a list that asks for initial events."""
    names = ("resourceVersion", "resourceVersionMatch", "continue")
    errors = list(_match_errors(*map(query.get, names)))
    why = "sendInitialEvents is forbidden for list"
    return invalid_options("ListOptions", [*errors, FieldError.forbidden("sendInitialEvents", why)])


class ListPage(msgspec.Struct, frozen=True):
    """The objects of a list, or of a page of it."""

    items: Sequence[Item]
    meta: ListMeta


async def _list_snapshot(api: Api, request: Request) -> Response:
    page = await read_page(api, request)
    return shown_objects(api, request, page.items, page.meta)


async def read_page(api: Api, request: Request) -> ListPage:
    """Return the objects as they were at one moment, in pages if asked."""
    selection = selected(request)
    cache = api.cache_of(request.resource)
    limit = list_numbers(request.query).limit
    snapshot = await _snapshot(api, request, selection, limit)
    if snapshot.exact > api.cache.revision:
        # A token from a store that got further than this one, which began anew.
        raise _expired(snapshot, selection)
    if snapshot.exact and snapshot.after:
        await _check_kept(api, snapshot, selection)
    if snapshot.exact and snapshot.exact < cache.changed:
        return await _past(api, request, selection, snapshot, limit)
    revision = snapshot.exact or api.cache.revision
    last = cache.last_key(selection) if limit else ""
    count = cache.count(selection, snapshot.after)
    items = await chosen(api, cache, selection, snapshot.after, limit)
    return await _own_page(selection, _page(selection, items, limit, revision, last, count))


async def _own_page(selection: Selection, page: ListPage) -> ListPage:
    """Return a page in the version of the request. Only a page is converted if every object is
    selected; otherwise selectors were asked about converted objects."""
    if not selection.everything:
        return page
    return msgspec.structs.replace(page, items=await own_versions(selection, page.items))


async def own_versions(selection: Selection, items: Sequence[Item]) -> Sequence[Item]:
    """Return items in the version that a selection is about, if a webhook converts them."""
    resource = selection.resource
    if resource.conversion is None:
        return items
    return await resource.conversion.items(items, resource.api_version)


def _list_latest(api: Api, request: Request) -> Response | Awaitable[Response]:
    """Return everything there is, from the cache."""
    selection = selected(request)
    items = api.cache_of(request.resource).candidates(selection)
    meta = ListMeta(resourceVersion=str(api.cache.revision))
    if not selection.everything:
        if sum(map(effort_of, items)) > MUCH:
            return _list_in_turns(api, request, selection, items, meta)
        items = [item for item in items if selection.matches(item)]
    return shown_objects(api, request, items, meta)


def shown_objects(api: Api, request: Request, items: Sequence[Item], meta: ListMeta) -> Response:
    """Return a list. Rows, YAML and protobuf of large objects are made in a thread: an object is
    decoded for it as a whole, which takes a tenth of a second for the largest."""
    response = render.many(request, items, meta, api.clock)
    if not render.decodes_objects(request) or all(item.size < LONG for item in items):
        return response
    assert not isinstance(response.body, bytes)
    pieces = iter(response.body)  # type: ignore[arg-type]

    async def send(sink: Sink) -> None:
        while (piece := await api.long_work.run(LONG, next, pieces, None)) is not None:
            sink.write(piece)
            await sink.drain()

    response.body = send
    return response


async def _list_in_turns(
    api: Api, request: Request, selection: Selection, items: Sequence[Item], meta: ListMeta
) -> Response:
    return shown_objects(api, request, await _matching(api, selection, items), meta)


MUCH = 1 << 20
"""Bytes of objects that are matched with a selector before other tasks get a turn. Decoding that
much for the first time takes about ten milliseconds."""
TURN = MUCH // 16
"""Bytes that are matched in one turn of the event loop."""


def effort_of(item: Item) -> int:
    """Return how many bytes a match with a selector is worth."""
    return item.size + 500


async def chosen(
    api: Api, cache: ResourceCache, selection: Selection, after: str = "", most: int = 0
) -> Sequence[Item]:
    """Return the objects that are selected at this moment and have keys after one, over many turns
    of the event loop: the first ones if there are more than `most`, which is not 0.

    A page costs as much as its objects, however many others there are; with selectors as much as
    those that are looked at until it is full.
    """
    if selection.everything:
        return cache.candidates(selection, after, most)
    return await _matching(api, selection, cache.candidates(selection, after), most)


async def _matching(
    api: Api, selection: Selection, items: Sequence[Item], most: int = 0
) -> Sequence[Item]:
    if selection.everything:
        return items
    items = await own_versions(selection, items)
    kept, effort = [], 0
    for item in items:
        effort += effort_of(item)
        if effort > TURN:
            await api.clock.give_way()
            effort = 0
        if selection.matches(item):
            kept.append(item)
            if len(kept) == most:
                break
    return kept


def _last_key(items: Sequence[Item]) -> str:
    return items[-1].key if items else ""


def _page(
    selection: Selection, items: Sequence[Item], limit: int, revision: int, last: str, count: int
) -> ListPage:
    """Return the first objects of a list; without selectors it has `count` objects. A full page has
    a token if there are more objects up to the last one, selected or not, as upstream does not look
    at them."""
    if not limit or len(items) < limit or (len(items) == limit and items[-1].key >= last):
        return ListPage(items, ListMeta(resourceVersion=str(revision)))
    meta = ListMeta(
        resourceVersion=str(revision),
        continue_=token(revision, items[limit - 1].key, selection),
        remainingItemCount=count - limit if selection.everything else None,
    )
    return ListPage(items[:limit], meta)


async def _check_kept(api: Api, snapshot: ListSnapshot, selection: Selection) -> None:
    """Refuse to continue a list whose revision the store no longer keeps."""
    try:
        # The state that history was cut at is still readable, but what a client was shown before
        # it is not: the state just before tells whether the cut has come that far.
        await api.store.list(selection.prefix, at=snapshot.exact - 1, after=snapshot.after, limit=1)
    except RevisionCompacted:
        raise _expired(snapshot, selection) from None


async def _past(
    api: Api, request: Request, selection: Selection, snapshot: ListSnapshot, limit: int
) -> ListPage:
    """Return a list as it was, from the history of the store."""
    # Without selectors every entry counts, so that no more than a page need be read.
    most = limit if selection.everything else 0
    try:
        page = await api.store.list(
            selection.prefix, at=snapshot.exact, after=snapshot.after, limit=most
        )
    except RevisionCompacted:
        raise _expired(snapshot, selection) from None
    cache: ResourceCache = api.cache_of(request.resource)
    items = []
    for entry in page.entries:
        await api.clock.give_way()
        with suppress(UnreadableValue, UndecryptableValue):  # of another program; it is logged
            items.append(cache.item(entry))
    if not page.more:
        kept = await _matching(api, selection, items)
        last = _last_key(items)
        page_shown = _page(selection, kept, limit, snapshot.exact, last, len(kept))
        return await _own_page(selection, page_shown)
    meta = ListMeta(
        resourceVersion=str(snapshot.exact),
        continue_=token(snapshot.exact, page.entries[-1].key, selection),
        remainingItemCount=page.remaining,
    )
    return await _own_page(selection, ListPage(items, meta))


async def _snapshot(api: Api, request: Request, selection: Selection, limit: int) -> ListSnapshot:
    """Return the state that resourceVersion, resourceVersionMatch, limit and continue describe."""
    query = request.query
    version, match = query.get("resourceVersion"), query.get("resourceVersionMatch")
    check_match(version, match, query.get("continue"))
    if query.get("continue"):
        return _continued(query.get("continue"), version, selection)
    revision = parse_revision(version)
    if revision > api.cache.revision:
        await wait_for(api, revision)
    exact = match == "Exact" or (not match and limit > 0 and revision > 0)
    return ListSnapshot(exact=revision if exact else 0)


def check_match(version: str, match: str, continue_: str) -> None:
    """Refuse combinations of parameters that contradict each other."""
    if errors := list(_match_errors(version, match, continue_)):
        raise invalid_options("ListOptions", errors)


def _match_errors(version: str, match: str, continue_: str) -> Iterator[FieldError]:
    path = "resourceVersionMatch"
    if not match:
        return
    if not version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        yield FieldError.forbidden(path, why)
    if continue_:
        yield FieldError.forbidden(path, CONTINUED)
    if match not in ("Exact", "NotOlderThan"):
        yield FieldError.not_supported(path, match, ["Exact", "NotOlderThan", ""])
    if match == "Exact" and version == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        yield FieldError.forbidden(path, why)


CONTINUED: Final = "resourceVersionMatch is forbidden when continue is provided"


def parse_revision(text: str) -> int:
    """Return the resourceVersion of a list; 400 if it is malformed."""
    if why := _not_a_revision(text):
        raise bad_request(f"invalid resource version: {_unreadable_version(text, why)}")
    return int(text.lstrip("0") or 0)


def parse_own_revision(text: str) -> int:
    """Return the resourceVersion of a get or watch; 500 if it is malformed: kube-apiserver
    does not translate the error of its storage."""
    if why := _not_a_revision(text):
        raise StatusError(500, "", str(_unreadable_version(text, why)))
    return int(text.lstrip("0") or 0)


def _not_a_revision(text: str) -> str:
    """Return why a text is not a number of 64 bits; empty if it is, or is empty."""
    digits = text.lstrip("0")
    if text and not (text.isascii() and text.isdecimal()):
        return "invalid syntax"
    if len(digits) > _REVISION_DIGITS or int(digits or 0) > _LARGEST_REVISION:
        return "value out of range"
    return ""


def _unreadable_version(text: str, why: str) -> FieldError:
    told = f"strconv.ParseUint: parsing {quoted(text)}: {why}"
    return FieldError.invalid("resourceVersion", text, told)


async def wait_for(api: Api, revision: int) -> None:
    """Wait a moment for a revision that the server has not reached."""
    step = 0.05
    waited = 0.0
    while api.cache.revision < revision and waited < WAIT_FOR_REVISION:
        await api.clock.sleep(step)
        waited += step
    if api.cache.revision < revision:
        raise too_new(revision, api.cache.revision)


def too_new(revision: int, current: int) -> StatusError:
    message = f"Timeout: Too large resource version: {revision}, current: {current}"
    cause = StatusCause("ResourceVersionTooLarge", "Too large resource version")
    return timeout(message, causes=[cause], retry_after=1)


# Continue tokens.


def token(revision: int, last_key: str, selection: Selection) -> str:
    start = last_key.removeprefix(selection.prefix)
    return _encode_token(ContinueToken(rv=revision, start=start))


def _encode_token(value: ContinueToken) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def _continued(text: str, version: str, selection: Selection) -> ListSnapshot:
    if version and version != "0":
        raise bad_request("specifying resource version is not allowed when using continue")
    try:
        padded = text + "=" * (-len(text) % 4)
        value = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=ContinueToken)
    except (ValueError, msgspec.MsgspecError):
        why = "continue key is not valid: illegal base64 data at input byte 0"
        raise bad_request(f"invalid continue token: {why}") from None
    if not value.start:
        why = f"continue key is not valid: encoded start key empty (version {value.v})"
        raise bad_request(f"invalid continue token: {why}")
    if value.rv < -1 or ".." in value.start:
        raise bad_request("continue key is not valid: it does not name a position")
    # -1 stands for "wherever we are now": the token that an expired one is exchanged for.
    return ListSnapshot(exact=max(value.rv, 0), after=selection.prefix + value.start)


def _expired(snapshot: ListSnapshot, selection: Selection) -> StatusError:
    if not snapshot.after:
        return expired(f"The resourceVersion for the provided list is too old. ({snapshot.exact})")
    fresh = _encode_token(ContinueToken(rv=-1, start=snapshot.after.removeprefix(selection.prefix)))
    return expired(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response to retrieve the remainder of the results. Continuing with the provided token "
        "results in an inconsistent list - objects that were created, modified, or deleted between "
        "the time the first chunk was returned and now may show up in the list.",
        fresh,
    )
