"""Comparison: sends cases to two servers and collects how their answers differ."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from tests.differential import samples
from tests.differential.cases import JSON, NAMESPACE, Answer, Case, Kind, Memory, Request
from tests.differential.differences import Difference, Outcome, difference
from tests.differential.normal_form import normal, parsed

from kedge.client.transport import Call, Transport, Unreachable

AT_ONCE: Final = 8
EXAMPLES: Final = 3
_USER_AGENT: Final = "differential"


@dataclass(frozen=True)
class Example:
    """A request whose answers differ."""

    case: Case
    request: Request
    reference: Answer
    candidate: Answer


@dataclass
class Figures:
    """Outcomes by kind, and differences by cause."""

    by_kind: defaultdict[str, Counter[Outcome]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    by_cause: Counter[tuple[Outcome, str]] = field(default_factory=Counter)
    examples: defaultdict[tuple[Outcome, str], list[Example]] = field(
        default_factory=lambda: defaultdict(list)
    )
    failures: Counter[str] = field(default_factory=Counter)
    """Answers with a code of 5xx of one server only, and broken connections."""
    destructive: list[tuple[Example, Example]] = field(default_factory=list)
    """Writes that changed or deleted an object of the candidate only, and the look after each."""

    def add(self, found: Difference, example: Example) -> None:
        self.by_kind[example.case.kind][found.outcome] += 1
        codes = (example.reference.code, example.candidate.code)
        if codes[1] >= 500 > codes[0]:
            self.failures[f"{codes[1]} instead of {codes[0]}: {found.shape}"] += 1
        if found.outcome is not Outcome.IDENTICAL:
            cause = (found.outcome, found.shape)
            self.by_cause[cause] += 1
            if len(self.examples[cause]) < EXAMPLES:
                self.examples[cause].append(example)

    @property
    def total(self) -> Counter[Outcome]:
        return sum(self.by_kind.values(), Counter())


def is_unfit(reference: Answer) -> bool:
    """Whether the reference was too busy to answer: its watch cache was behind its store."""
    return "ResourceVersionTooLarge" in json.dumps(reference.document)


def destroyed(exchanges: Sequence[Example]) -> Iterator[tuple[Example, Example]]:
    """Yield the writes after which the object of the candidate is gone or changed, while that of
    the reference is as before. Each write is followed by a look at the object."""
    before: Example | None = None
    for write, look in pairwise(exchanges):
        if look.request.method != "GET" or look.request.query or look.request.accept != JSON:
            continue
        if write.request.method != "GET" and before is not None:
            stays = _content(before.reference) == _content(look.reference)
            if stays and _content(before.candidate) != _content(look.candidate):
                yield write, look
        before = look


def _content(answer: Answer) -> Any:
    """Return what a client wrote into an object: neither its status nor the owners of fields."""
    document = answer.document
    if answer.code != 200 or not isinstance(document, dict):
        return answer.code
    hidden = ("managedFields", "generation")
    meta = {k: v for k, v in (document.get("metadata") or {}).items() if k not in hidden}
    return {k: v for k, v in document.items() if k != "status"} | {"metadata": meta}


async def compare(
    reference: Transport, candidate: Transport, kinds: Sequence[Kind], cases: Iterable[Case]
) -> Figures:
    """Send each case to both servers, several cases at a time, and compare the answers."""
    for server in (reference, candidate):
        await _prepare(server, kinds)
    figures = Figures()
    waiting = iter(list(cases))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(_work(reference, candidate, waiting, figures))
    return figures


async def _prepare(server: Transport, kinds: Sequence[Kind]) -> None:
    """Create the objects that the cases refer to; those that exist are kept."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await answer(server, Request("POST", "/api/v1/namespaces", "", space))
    await answer(
        server, Request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", "", account)
    )
    for kind in kinds:
        if samples.has_sample(kind):
            await answer(server, Request("POST", kind.path, "", samples.sample(kind)))


async def _work(
    reference: Transport, candidate: Transport, waiting: Iterator[Case], figures: Figures
) -> None:
    for case in waiting:
        try:
            one, two = await asyncio.gather(answers(reference, case), answers(candidate, case))
        except Unreachable as error:
            figures.failures[f"{case.kind}: {error}"] += 1
            continue
        requests = (*((case.watch,) if case.watch else ()), *case.requests)
        exchanges = [
            Example(case, request, left, right)
            for request, left, right in zip(
                requests, map(normal, one), map(normal, two), strict=True
            )
        ]
        for each in exchanges:
            if not is_unfit(each.reference):
                figures.add(difference(each.reference, each.candidate), each)
        for write, look in destroyed(exchanges):
            figures.destructive.append((write, look))


async def answers(server: Transport, case: Case) -> list[Answer]:
    """Return the answers of a server to the requests of a case; first that to its watch."""
    if case.watch is None:
        return await _in_order(server, case)
    call = _call(case.watch, Memory())
    async with server.stream(call) as stream:
        later = await _in_order(server, case)
        events = [parsed(line) for line in (await stream.whole()).splitlines()]
        return [Answer(stream.status, events), *later]


async def _in_order(server: Transport, case: Case) -> list[Answer]:
    memory, found = Memory(), []
    for request in case.requests:
        found.append(await answer(server, request, memory))
        memory.keep(found[-1].document)
    return found


async def answer(server: Transport, request: Request, memory: Memory | None = None) -> Answer:
    reply = await server.send(_call(request, memory or Memory()))
    warnings = reply.headers.get("warning", "")
    form = reply.headers.get("content-type", "")
    return Answer(reply.status, parsed(reply.body), tuple(_warnings(warnings)), form)


def _call(request: Request, memory: Memory) -> Call:
    headers = {"accept": request.accept, "user-agent": _USER_AGENT}
    body: Any = memory.fill(request.body)
    if body is None:
        sent = b""
    else:
        sent = body.encode() if isinstance(body, str) else _compact(body).encode()
        headers["content-type"] = request.content_type
    return Call(request.method, request.path, memory.fill(request.query), headers, sent)


def _compact(body: Any) -> str:
    """Return JSON without blanks, as clients send it: upstream compares a ControllerRevision's data
    by its bytes."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def _warnings(header: str) -> list[str]:
    return [each for each in header.split("299 - ") if each]
