"""FaultTable: the fault rules of a server, and the watches that they can end."""

import asyncio
from itertools import count
from typing import Final

import msgspec
from msgspec.structs import replace

from kedge.api.testing.fault_rule import FaultRule, RequestFacts, error_of, matches
from kedge.apiserver import protobuf_answers
from kedge.apiserver.watchcache import event_line
from kedge.client.transport import Unreachable
from kedge.machinery.errors import StatusError, not_found
from kedge.web.message import Response, Sink, Stream

MOST_RULES: Final = 64


class OpenWatch(msgspec.Struct, frozen=True, eq=False):
    """A watch that a rule can end."""

    request: RequestFacts
    interrupted: "asyncio.Future[FaultRule]"


class FaultTable:
    """Holds rules in the order in which they were added; the first one that fits counts."""

    def __init__(self) -> None:
        self._rules: dict[str, FaultRule] = {}
        self._numbers = count(1)
        self._watches: dict[OpenWatch, None] = {}

    def rules(self) -> list[FaultRule]:
        return [*self._rules.values()]

    def add(self, rule: FaultRule) -> FaultRule:
        """Add a rule under a new name; watches that are open and fit it end now."""
        if len(self._rules) >= MOST_RULES:
            self._rules = {name: kept for name, kept in self._rules.items() if not kept.is_spent}
        if len(self._rules) >= MOST_RULES:
            why = f"there are {MOST_RULES} fault rules already: remove some"
            raise StatusError(403, "Forbidden", why)
        named = replace(rule, id=f"fault-{next(self._numbers)}", hits=0)
        self._rules[named.id] = named
        if named.fails and named.stage == "before":
            self._interrupt(named)
        return self._rules[named.id]

    def remove(self, name: str) -> FaultRule:
        """Remove a rule; 404 if there is none of that name."""
        found = self._rules.pop(name, None)
        if found is None:
            raise not_found("", "faults", name)
        return found

    def clear(self) -> list[FaultRule]:
        """Remove all rules."""
        removed = self.rules()
        self._rules.clear()
        return removed

    def take(self, request: RequestFacts) -> FaultRule | None:
        """Return the rule that a request fits, and count it; None if there is none."""
        for rule in self._rules.values():
            if not rule.is_spent and matches(rule, request):
                return self._counted(rule)
        return None

    def _counted(self, rule: FaultRule) -> FaultRule:
        counted = self._rules[rule.id] = replace(rule, hits=rule.hits + 1)
        return counted

    def _interrupt(self, rule: FaultRule) -> None:
        for watch in [*self._watches]:
            if rule.is_spent:
                return
            if not watch.interrupted.done() and matches(rule, watch.request):
                rule = self._counted(rule)
                watch.interrupted.set_result(rule)

    def followed(self, request: RequestFacts, response: Response) -> Stream:
        """Return the body of a watch, which ends when a rule is added that it fits."""
        body = response.body
        assert callable(body)

        async def stream(sink: Sink) -> None:
            watch = OpenWatch(request, asyncio.get_running_loop().create_future())
            self._watches[watch] = None
            try:
                rule = await _unless_interrupted(body, sink, watch.interrupted)
            finally:
                del self._watches[watch]
            if rule is not None:
                broken_off(sink, rule, request, response.content_type)

        return stream


async def _unless_interrupted(
    body: Stream, sink: Sink, interrupted: "asyncio.Future[FaultRule]"
) -> FaultRule | None:
    """Stream a body to its end, or until a rule ends it, which is returned."""
    async with asyncio.TaskGroup() as group:
        work = group.create_task(_error_of(body, sink))
        await asyncio.wait((work, interrupted), return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
    if interrupted.done():
        return interrupted.result()
    if error := work.result():
        raise error
    return None


async def _error_of(body: Stream, sink: Sink) -> Exception | None:
    """Stream a body to its end; returns its error, which a TaskGroup would wrap in a group."""
    try:
        await body(sink)
    except Exception as error:
        return error
    return None


def broken_off(sink: Sink, rule: FaultRule, request: RequestFacts, content_type: str) -> None:
    """End a watch as a rule says: with an ERROR event, or by closing the connection."""
    if rule.drop:
        raise dropped(rule)
    status = error_of(rule, request).status()
    if content_type == protobuf_answers.WATCH_TYPE:
        sink.write(protobuf_answers.event("ERROR", protobuf_answers.status(status)))
    else:
        sink.write(event_line("ERROR", msgspec.json.encode(status)))


def dropped(rule: FaultRule) -> Unreachable:
    """Return the error of a connection that a rule closes."""
    return Unreachable(f"the fault rule {rule.id} closed the connection")
