"""The steps that a request passes before a handler works on it, and after.

A step takes the RequestContext, adds what it finds out, and raises StatusError to refuse the
request. The functions here return steps; App puts them in order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from itertools import islice
from typing import Final

import msgspec

from kedge.apiserver import render
from kedge.apiserver import route as routes
from kedge.apiserver.aggregation.aggregator import Aggregator
from kedge.apiserver.api import Api
from kedge.apiserver.audit import AuditLog, event_of
from kedge.apiserver.authentication import impersonation
from kedge.apiserver.authentication.authenticator import Authenticator
from kedge.apiserver.authorization.attributes import denied
from kedge.apiserver.authorization.authorizer import ALLOWED, SUPERUSERS, Authorizer
from kedge.apiserver.context import Answer, RequestContext
from kedge.apiserver.fairness.flow_controller import FlowController, RequestClass
from kedge.apiserver.fairness.flow_rules import RequestDigest
from kedge.apiserver.fairness.work_estimate import ONE_SEAT, WorkEstimate, of_list, of_write
from kedge.apiserver.handlers import Handler, Handlers
from kedge.apiserver.inflight import STREAMED, InFlight, counted, too_late
from kedge.apiserver.long_work import LONG
from kedge.apiserver.metrics import ingest
from kedge.apiserver.object_lists import INDENTED_BYTES, indented_pieces
from kedge.apiserver.pages import Pages
from kedge.apiserver.request import ANONYMOUS, Request, stored
from kedge.apiserver.telemetry import Telemetry
from kedge.apiserver.ui.paths import is_open, is_page
from kedge.apiserver.watchcache import WatchCache
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_duration
from kedge.machinery.errors import StatusError, bad_request
from kedge.machinery.tenant import tenant
from kedge.metrics.frame_codec import PREFIX
from kedge.metrics.reports import UsageReports
from kedge.web.message import JSON, HttpRequest, Response, warning_headers

Step = Callable[[RequestContext], None]

HUMAN_CLIENTS = ("curl/", "Wget/", "Mozilla/5.0")
"""Prefixes of the User-Agent of programs that show people the JSON as it came."""


SAMPLE: Final = 16
"""Objects of a kind whose sizes are averaged."""


# Steps that need only the head of the request.


def route(context: RequestContext) -> None:
    """Split the path, and find the verb that the method stands for."""
    http = context.http
    target = context.target = routes.parse(http.path)
    if target is not None:
        context.verb = routes.verb(http.method, target, http.query)
    if "timeout" in http.query and context.verb != "watch":
        _check_timeout(http.query.get("timeout"))


def _check_timeout(text: str) -> None:
    try:
        if text:
            parse_duration(text)
    except ValueError as error:
        raise bad_request(f"invalid timeout specified in the request URL - {error}") from None


def authenticate(authenticator: Authenticator) -> Step:
    """Find the user whose credentials the request carries; 401 if they are wrong."""

    def step(context: RequestContext) -> None:
        http = context.http
        is_public = context.target is None and is_open(http.path)
        user = ANONYMOUS if is_public else authenticator.user(http)
        context.authenticated = context.user = user
        http.identified(user)
        if authenticator.proxy_headers is not None:
            http.headers = authenticator.proxy_headers.stripped(http.headers)

    return step


def impersonate(authorizer: Authorizer) -> Step:
    """Replace the user by the one that it asks to act as; 403 unless it may."""

    def step(context: RequestContext) -> None:
        wanted = impersonation.impersonated_user(context.http.headers)
        if wanted is not None:
            attributes = context.attributes(context.user)
            context.user = impersonation.become(wanted, attributes, authorizer.decide)

    return step


def classify(flows: FlowController) -> Step:
    """Find the flow and the priority level of the request."""
    known: Mapping[tuple[object, ...], RequestClass] = flows.known

    def step(context: RequestContext) -> None:
        target, user = context.target, context.user
        # A plain tuple equals the RequestDigest of its values, and is made in less time.
        if target is None:
            http = context.http
            key = user.name, user.groups, http.method.lower(), "", "", "", http.path
        else:
            part = target.subresource
            resource = f"{target.plural}/{part}" if part else target.plural
            key = user.name, user.groups, context.verb, target.group, resource, target.namespace, ""
        context.flow = known.get(key) or flows.classify(RequestDigest(*key))

    return step


def authorize(authorizer: Authorizer, metrics: UsageReports) -> Step:
    """Refuse with 403 what the user may not do."""

    def step(context: RequestContext) -> None:
        user = context.user
        if context.target is None and context.http.path.startswith(PREFIX):
            # A node reports its own usage. No role can grant this for another node, and being
            # a superuser does not help either.
            ingest.check_sender(metrics, user, context.http)
        elif context.target is None and is_page(context.http.path):
            # Dashboard.check: no role is needed to sign in.
            return
        elif SUPERUSERS in user.groups:
            # The authorizer would say the same; a get of an administrator skips the attributes.
            context.decision = ALLOWED
        else:
            attributes = context.attributes(user)
            decision = context.decision = authorizer.decide(attributes)
            if not decision.allowed:
                raise denied(attributes, decision.reason)

    return step


# Steps that need the whole request.


def delegate(aggregator: Aggregator) -> Step:
    """Forward the request if an extension server answers for its version."""

    def step(context: RequestContext) -> None:
        context.answer = aggregator.answer(context)

    return step


def dispatch(api: Api, handlers: Handlers, pages: Pages) -> Step:
    """Call the handler of the resource and verb, or make the page that the path names; unless the
    request has an answer already."""
    catalog, handler_of = api.catalog, handlers.find

    def step(context: RequestContext) -> None:
        if context.answer is not None:
            return
        http, target, verb = context.http, context.target, context.verb
        if target is None:
            context.answer = pages.answer(http)
            return
        resource = catalog.find(target.group, target.version, target.plural)
        if resource is None:
            context.answer = pages.unknown(http, target.group)
            return
        subresource = target.subresource
        request = context.request = Request(
            http, context.user, resource, verb, target.namespace, target.name, subresource
        )
        routes.check(resource, target, verb)
        routes.check_method(http.method, target)
        if http.method != "GET" or http.headers.get("accept", "") not in render.PLAIN_JSON:
            _check_form(request)
        handler = handler_of(resource, subresource, verb)
        make = _with_schema(handler) if resource.custom else handler
        answer = context.answer = make(api, request)
        if resource.presentation.deprecation:
            context.answer = _deprecated(resource.presentation.deprecation, answer)

    return step


def _check_form(request: Request) -> None:
    """Refuse a response format that the server cannot write. This must happen before anything is
    stored: a client that gets an error must find nothing changed."""
    if request.subresource in STREAMED:
        return
    render.check_accept(request)
    if request.http.method != "GET":
        many = request.verb == "deletecollection"
        render.check(request, render.MANY if many else render.ONE)


def _with_schema(handler: Handler) -> Handler:
    """Return the handler of a custom kind, which makes the schema in a thread first."""

    async def begin(api: Api, request: Request) -> Response:
        await api.long_work.run(LONG, lambda: request.resource.schema)
        answer = handler(api, request)
        return answer if isinstance(answer, Response) else await answer

    return lambda api, request: (
        handler(api, request) if request.resource.is_schema_made else begin(api, request)
    )


async def _deprecated(notice: str, answer: Answer) -> Response:
    """Add the warning of a deprecated resource to the answer."""
    response = answer if isinstance(answer, Response) else await answer
    response.headers += warning_headers([notice])
    return response


def limit(in_flight: InFlight) -> Step:
    """Bound the number of answers that are being worked on, and the time of each; 429 if there are
    too many, 504 if one takes too long. Pages get the same time but take no place: a probe of
    /readyz must be answered on a busy server.

    This comes after dispatch, because only the handler knows whether it has to wait. An answer
    that is complete already, such as a get from the watch cache, is written in this turn of the
    event loop and cannot pile up. Any other answer is a coroutine that has not begun, so that
    refusing it here leaves nothing half done.
    """

    def step(context: RequestContext) -> None:
        answer, request = context.answer, context.request
        if answer is None or isinstance(answer, Response):
            return
        if request is None:
            # Pages that stream, such as /metrics/usage, are complete answers with pieces to write.
            context.answer = _in_time(in_flight, answer)
        elif counted(request.verb, request.subresource):
            context.answer = _within_limit(in_flight, request, answer)

    return step


async def _within_limit(
    in_flight: InFlight, request: Request, pending: Awaitable[Response]
) -> Response:
    # The place is taken here and not in the step: if the task is cancelled before its first turn,
    # no code of this coroutine runs, and a place that was taken earlier would never be given back.
    try:
        place = in_flight.enter(request.verb, request.user)
    except StatusError:
        if isinstance(pending, Coroutine):
            pending.close()
        raise
    try:
        with tenant(request.user.name):
            return await _in_time(in_flight, pending)
    finally:
        in_flight.leave(place)


async def _in_time(in_flight: InFlight, pending: Awaitable[Response]) -> Response:
    try:
        # Work in a thread goes on, because a thread cannot be stopped; work that waits for a thread
        # is dropped. A write may still be stored: as upstream, a client does not know after a 504.
        async with asyncio.timeout(in_flight.seconds) as deadline:
            return await pending
    except TimeoutError:
        if deadline.expired():
            raise too_late() from None
        raise


def share(flows: FlowController, cache: WatchCache) -> Step:
    """Let requests wait for seats of their priority level; 429 if its queues are full.

    Requests of exempt levels, watches and streams take no seats. An answer that is complete already
    waits only while other requests of its flow wait, or if its level has no seats.
    """

    def step(context: RequestContext) -> None:
        answer, request, place = context.answer, context.request, context.flow
        if place is None or answer is None:
            return
        level = place.level
        if (
            request is None
            or level.settings.is_exempt
            or (isinstance(answer, Response) and level.queues.has_turn(place.flow))
            or not counted(request.verb, request.subresource)
        ):
            place.counts.dispatched += 1
            return
        estimate = _estimate(request, cache, level.most_seats)
        on_queued = context.http.on_queued
        context.answer = flows.serve(place, answer, estimate, _details(context), on_queued)

    return step


def _details(context: RequestContext) -> tuple[str, ...]:
    """Return what a dump of requests shows."""
    target = context.target
    assert target is not None
    version = f"{target.group}/{target.version}" if target.group else target.version
    return (
        context.user.name,
        context.verb,
        context.http.path[:256],
        target.namespace,
        target.name,
        version,
        target.plural,
        target.subresource,
    )


def _estimate(request: Request, cache: WatchCache, most: int) -> WorkEstimate:
    """Return the seats of a request: lists take them by their size, writes by their watchers."""
    if request.verb == "get" or (request.verb == "list" and request.name):
        return ONE_SEAT
    try:
        objects = cache.of(stored(request.resource))
    except KeyError:
        return ONE_SEAT  # it is not stored, or its definition was deleted just now
    if request.verb != "list":
        is_silent = request.resource.plural == "serviceaccounts" and request.subresource == "token"
        return ONE_SEAT if is_silent else of_write(len(objects.listeners), most)
    some = [len(item.body) for item in islice(objects.values(), SAMPLE)]
    limit = request.query.get("limit") or ""
    return of_list(
        len(objects),
        sum(some) / max(1, len(some)),
        int(limit) if limit.isdecimal() and len(limit) < 19 else 0,
        most,
    )


# Steps that need the response.


def audit(log: AuditLog, clock: Clock) -> Step:
    """Write the request and its outcome to the audit log, and name its event in the response."""

    def step(context: RequestContext) -> None:
        event = event_of(context, clock)
        if context.response is not None:
            context.response.headers.append(("Audit-Id", event.id))
        log.add(event)

    return step


def count(telemetry: Telemetry, clock: Clock) -> Step:
    """Count the request and the time it took."""

    def step(context: RequestContext) -> None:
        assert context.response is not None
        seconds = clock.monotonic() - context.started
        telemetry.count(context.labels(), context.response.status, seconds)

    return step


def indent(context: RequestContext) -> None:
    """Indent JSON that people read."""
    if context.response is not None and is_read_by_people(context.http):
        indented(context.response)


def indented(response: Response) -> Response:
    """Return the response with its JSON indented."""
    body = response.body
    # Without a body: the answer to an upgrade, or to HEAD.
    if response.content_type != JSON or callable(body) or body == b"":
        return response
    if not isinstance(body, bytes):
        response.body = indented_pieces(body)
    elif len(body) <= INDENTED_BYTES:
        response.body = msgspec.json.format(body, indent=2) + b"\n"
    return response


def is_read_by_people(http: HttpRequest) -> bool:
    """Whether the request asks for indented JSON; if it does not say, whether its program shows
    the JSON to people."""
    if "pretty" in http.query_string and "pretty" in http.query:
        return http.query.flag("pretty")
    agent = http.headers.get("user-agent", "")
    return agent.startswith(HUMAN_CLIENTS) and http.path.startswith("/api")
