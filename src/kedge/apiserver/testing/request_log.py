"""RequestLog: the last requests of a server for tests."""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from itertools import count
from typing import Final

from kedge.api.testing.fault_rule import FaultRule, matches, rule_errors
from kedge.api.testing.recorded_request import RecordedRequest, RequestPage
from kedge.apiserver.context import RequestContext
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_micro_time, parse_time
from kedge.machinery.errors import bad_request, invalid
from kedge.web.message import Query

MOST: Final = 10_000
"""Requests that are remembered."""
LONGEST: Final = 512
"""Characters of each text of a request."""
PATCH_BYTES: Final = 2048


class RequestLog:
    """A ring: the newest request takes the place of the oldest one."""

    def __init__(self) -> None:
        self._requests: deque[RecordedRequest] = deque(maxlen=MOST)
        self._numbers = count(1)
        self._next = 1

    def add(self, context: RequestContext, clock: Clock) -> None:
        """Remember a request that has its response."""
        number = next(self._numbers)
        self._next = number + 1
        self._requests.append(recorded(context, clock, number))

    def page(self, query: Query) -> RequestPage:
        """Return the requests that a query selects; 400 or 422 if it has mistakes."""
        since = query.get("since")
        chosen = selection(query)
        after = _moment(since) if since and not since.isdecimal() else None
        first = int(since[:18]) if since.isdecimal() else 0
        items = [
            each
            for each in self._requests
            if each.number >= first and matches(chosen, each.facts)
            if after is None or parse_time(each.time) >= after
        ]
        oldest = self._requests[0].number if self._requests else self._next
        forgotten = max(0, min(oldest, self._next) - first) if first else 0
        return RequestPage(items=items, next=self._next, forgotten=forgotten)


def selection(query: Query) -> FaultRule:
    """Return the fields that a query names, as those of a rule."""
    chosen = FaultRule(
        verbs=tuple(filter(None, query.get("verbs").split(","))),
        resource=query.get("resource"),
        namespace=query.get("namespace"),
        name=query.get("name"),
        user=query.get("user"),
        service_account=query.get("serviceAccount"),
        user_agent=query.get("userAgent"),
    )
    if errors := [each for each in rule_errors(chosen) if each.field != "code"]:
        raise invalid("", "RequestSelection", "", errors)
    return chosen


def _moment(text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError:
        why = "must be the number of a request, or a time such as 2030-01-01T00:00:00Z"
        raise bad_request(f"since: {why}") from None


def recorded(context: RequestContext, clock: Clock, number: int) -> RecordedRequest:
    """Return a request and its outcome as plain, short values."""
    http, target, request = context.http, context.target, context.request
    assert context.response is not None
    is_read = context.verb in ("list", "watch")
    texts = {} if target is None else _target(context)
    if request is not None and request.name:
        # A create has its name since it was stored.
        texts["name"] = request.name
    return RecordedRequest(
        number=number,
        time=format_micro_time(clock.now()),
        seconds=round(clock.monotonic() - context.started, 6),
        user=context.user.name[:LONGEST],
        verb=context.verb or http.method.lower(),
        path=http.path[:LONGEST],
        code=context.response.status,
        user_agent=http.headers.get("user-agent", "")[:LONGEST],
        resource_version=http.query.get("resourceVersion")[:LONGEST] if is_read else "",
        continues=is_read and bool(http.query.get("continue")),
        dry_run=bool(http.query.get("dryRun")),
        unchanged=request is not None and request.is_unchanged,
        patch_type=http.headers.get("content-type", "")[:LONGEST] if _is_patch(context) else "",
        patch=_patch(context),
        fault="" if context.fault is None else context.fault.id,
        **{key: value[:LONGEST] for key, value in texts.items()},
    )


def _target(context: RequestContext) -> dict[str, str]:
    target = context.target
    assert target is not None
    return {
        "group": target.group,
        "version": target.version,
        "resource": target.plural,
        "subresource": target.subresource,
        "namespace": target.namespace,
        "name": target.name,
    }


def _is_patch(context: RequestContext) -> bool:
    return context.verb == "patch" and context.target is not None


def _patch(context: RequestContext) -> str:
    target = context.target
    if context.verb != "patch" or target is None or target.plural == "secrets":
        return ""
    return context.http.body[:PATCH_BYTES].decode(errors="replace")


def record(log: RequestLog, clock: Clock, *, except_below: str) -> Callable[[RequestContext], None]:
    """Remember every request, except those for the pages of tests themselves."""

    def step(context: RequestContext) -> None:
        if not context.http.path.startswith(except_below):
            log.add(context, clock)

    return step
