"""The steps by which requests fail on purpose."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator

from kedge.api.testing.fault_rule import FaultRule, RequestFacts, error_of
from kedge.apiserver.context import Answer, RequestContext
from kedge.apiserver.testing.fault_table import FaultTable, broken_off, dropped
from kedge.machinery.clock import Clock, machine_clock
from kedge.web.message import TEXT, Response, Sink

GONE = 410
"""A watch gets this code in an event and not as the status of its answer, as in Kubernetes."""


def facts_of(context: RequestContext) -> RequestFacts | None:
    """Return what rules compare; None for paths that name no resource, which never fail."""
    target = context.target
    if target is None:
        return None
    return RequestFacts(
        verb=context.verb,
        resource=target.plural,
        group=target.group,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name,
        user=context.user.name,
        user_agent=context.http.headers.get("user-agent", ""),
    )


def inject(table: FaultTable, clock: Clock) -> Callable[[RequestContext], None]:
    """Find the rule that a request fits, and answer as it says instead of doing the work."""

    def step(context: RequestContext) -> None:
        facts = facts_of(context)
        rule = context.fault = None if facts is None else table.take(facts)
        if facts is None or rule is None or not rule.fails or rule.stage != "before":
            return
        if isinstance(context.answer, Coroutine):
            context.answer.close()
        context.answer = _failing(rule, facts, clock) if rule.latency else _failed(rule, facts)

    return step


async def _failing(rule: FaultRule, facts: RequestFacts, clock: Clock) -> Response:
    await machine_clock(clock).sleep(rule.latency)
    return _failed(rule, facts)


def _failed(rule: FaultRule, facts: RequestFacts) -> Response:
    """Return the answer of a request that fails; raises StatusError."""
    if rule.drop:
        # A status that is never sent: the first piece of the body ends the connection.
        return Response(0, _no_answer(rule), TEXT)
    if rule.code != GONE or facts.verb != "watch":
        raise error_of(rule, facts)

    async def stream(sink: Sink) -> None:
        broken_off(sink, rule, facts, "")

    return Response(200, stream)


def _no_answer(rule: FaultRule) -> Iterator[bytes]:
    raise dropped(rule)
    yield b""


def delay(clock: Clock) -> Callable[[RequestContext], None]:
    """Let an answer come late, or get lost after the work was done, as the rule says."""

    def step(context: RequestContext) -> None:
        rule, answer = context.fault, context.answer
        if rule is None or answer is None or (rule.fails and rule.stage == "before"):
            return
        facts = facts_of(context)
        assert facts is not None
        context.answer = _late(rule, facts, answer, clock)

    return step


async def _late(rule: FaultRule, facts: RequestFacts, answer: Answer, clock: Clock) -> Response:
    if not rule.fails:
        await machine_clock(clock).sleep(rule.latency)
        return await _whole(answer)
    await _whole(answer)
    if rule.latency:
        await machine_clock(clock).sleep(rule.latency)
    return _failed(rule, facts)


async def _whole(answer: Answer) -> Response:
    return await answer if isinstance(answer, Awaitable) else answer


def follow(table: FaultTable) -> Callable[[RequestContext], None]:
    """Let rules that are added later end a watch."""

    def step(context: RequestContext) -> None:
        facts, response = facts_of(context), context.response
        if facts is None or response is None or context.verb != "watch":
            return
        if callable(response.body) and context.fault is None:
            response.body = table.followed(facts, response)

    return step
