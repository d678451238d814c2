"""Lists of objects that are not stored: their options, and their pages.

These objects have no history. A list shows the present state only, and a page begins after the last
key of the page before.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from kedge.api.model import ListMeta
from kedge.apiserver.request import Request, list_numbers
from kedge.apiserver.verbs.read import check_match, initial_events_on_list, parse_revision
from kedge.machinery.errors import StatusError, bad_request, expired

Entry = TypeVar("Entry")


class PageOptions(NamedTuple):
    """The part of a list that a request asks for."""

    limit: int
    """The most objects of a page; 0 for all."""
    after: str
    """Keys up to this one were sent in earlier pages."""


def page_options(request: Request, version: int) -> PageOptions:
    """Return the options of a list whose present state has this version; 410 if the request asks
    for another state."""
    if request.http.query_string:
        _check(request, version)
    return PageOptions(list_numbers(request.query).limit, _position(request.query.get("continue")))


def page(
    entries: Sequence[Entry],
    key: Callable[[Entry], str],
    options: PageOptions,
    meta: ListMeta,
    *,
    counts_rest: bool,
) -> tuple[Sequence[Entry], ListMeta]:
    """Return a page of entries that are sorted by key, and its metadata; `counts_rest` says
    whether the metadata may hold the number of further entries."""
    limit, after = options
    if after:
        entries = [each for each in entries if key(each) > after]
    if not limit or len(entries) <= limit:
        return entries, meta
    token = base64.urlsafe_b64encode(key(entries[limit - 1]).encode()).decode()
    left = len(entries) - limit if counts_rest else None
    more = ListMeta(resourceVersion=meta.resourceVersion, continue_=token, remainingItemCount=left)
    return entries[:limit], more


def _check(request: Request, version: int) -> None:
    query = request.query
    if "sendInitialEvents" in query:
        raise initial_events_on_list(query)
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
