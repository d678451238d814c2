"""Get and list of the scheduler's decisions, which it keeps in memory."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from kedge.api.model import ListMeta
from kedge.api.scheduling_kedge_v1alpha1.scheduling_decision import (
    DecisionSource,
    KeptDecision,
    SchedulingDecision,
)
from kedge.apiserver import render
from kedge.apiserver.api import Api, encoded_document, gone
from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.context import Answer
from kedge.apiserver.request import Request
from kedge.apiserver.verbs.read import TURN, effort_of
from kedge.apiserver.verbs.selection import selected
from kedge.apiserver.verbs.unstored import PageOptions, page, page_options
from kedge.apiserver.watchcache import Item, Selection
from kedge.machinery.errors import StatusError
from kedge.web.message import Response

Elsewhere = Callable[[Request], Awaitable[Response | None]]


async def nowhere(request: Request) -> Response | None:
    """Return nothing: there is no other server."""
    return None


class SchedulingDecisions:
    """Answers for the scheduler that runs in this process, or in that of another server."""

    def __init__(self, components: ControlPlaneComponents, elsewhere: Elsewhere = nowhere) -> None:
        """`elsewhere` returns the answer of another server, for a user who may have it."""
        self._components = components
        self._elsewhere = elsewhere

    def serve(self, api: Api, request: Request) -> Answer:
        """The response to a get or list; 503 unless a scheduler runs."""
        source = self._components.decisions
        if source is None:
            return self._of_another_server(request)
        if request.verb == "get":
            return _one(api, request, source)
        return _list(api, request, source)

    async def _of_another_server(self, request: Request) -> Response:
        answer = await self._elsewhere(request)
        if answer is None:
            raise no_scheduler()
        return answer


def no_scheduler() -> StatusError:
    why = "no scheduler is at work in this server: it has just started, or another leads"
    return StatusError(503, "ServiceUnavailable", why)


def _one(api: Api, request: Request, source: DecisionSource) -> Response:
    found = source.why(request.namespace, request.name)
    if found is None:
        raise gone(request)
    return render.one(request, _item(request, found), api.clock)


def _list(api: Api, request: Request, source: DecisionSource) -> Answer:
    """A list of the decisions in memory.

    Pods without one are not listed: a decision about each of them would have to be made now.
    """
    # Decisions have no versions, so 0 stands for the present state.
    options, selection = page_options(request, 0), selected(request)
    place = selection.namespace
    kept = [each for each in source.kept() if not place or each.namespace == place]
    if selection.everything:
        return _page(api, request, kept, options, selection)
    return _page_in_turns(api, request, kept, options, selection)


async def _page_in_turns(
    api: Api,
    request: Request,
    kept: Iterable[KeptDecision],
    options: PageOptions,
    selection: Selection,
) -> Response:
    """Match over several turns of the event loop: pods may have many labels."""
    found, effort = [], 0
    for each in kept:
        item = _item(request, each.summary())
        effort += effort_of(item)
        if effort > TURN:
            await api.clock.give_way()
            effort = 0
        if selection.matches(item):
            found.append(each)
    return _page(api, request, found, options, selection)


def _page(
    api: Api,
    request: Request,
    found: Iterable[KeptDecision],
    options: PageOptions,
    selection: Selection,
) -> Response:
    ordered = sorted(found, key=_key)
    shown, meta = page(ordered, _key, options, ListMeta(), counts_rest=selection.everything)
    return render.many(request, list(_items(request, shown)), meta, api.clock)


def _key(kept: KeptDecision) -> str:
    return f"{kept.namespace}/{kept.name}"


def _items(request: Request, kept: Sequence[KeptDecision]) -> Iterable[Item]:
    """Yield the objects one by one, when their piece of the response is written: all decisions
    together may name tens of thousands of nodes."""
    choice = render.response_form(request, render.MANY)
    # Pieces end after so many bytes. The rows of a table are short whatever the number of nodes,
    # so that one piece would hold the work of hundreds of decisions.
    if choice.form == "partial-list" or (
        choice.form == "table" and render.included(request) != "Object"
    ):
        return (_item(request, each.summary()) for each in kept)
    return (_item(request, each.whole()) for each in kept)


def _item(request: Request, decision: SchedulingDecision) -> Item:
    meta, resource = decision.metadata, request.resource
    key = resource.key(meta.namespace, meta.name)
    return Item(key, 0, encoded_document(resource, decision))
