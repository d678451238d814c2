"""Kedge compared with itself: on SQLite and in memory, over TLS and inside the process."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.differential import probes, report, schemas, sequences
from tests.differential.cases import Answer, Case, Kind, Memory, Request
from tests.differential.comparison import Figures, compare
from tests.differential.differences import Outcome, difference, shape
from tests.differential.normal_form import normal

from kedge.apiserver.config import UPSTREAM_ADMISSION, ServerConfig
from kedge.apiserver.server import ApiServer, serve
from kedge.client.http import HttpTransport
from kedge.client.transport import Call, LocalTransport, Transport
from kedge.machinery.clock import SystemClock
from kedge.web.message import HttpRequest, Response

KINDS = ("ConfigMap", "Pod", "Deployment.apps", "Lease.coordination.k8s.io")
STATUS = {"kind": "Status", "reason": "Invalid", "message": "m"}


@asynccontextmanager
async def _server(state: Path, store: str) -> AsyncIterator[ApiServer]:
    config = ServerConfig(state=state, port=0, store=store, admission=UPSTREAM_ADMISSION)
    async with serve(config, SystemClock()) as running:
        yield running


def _inside(running: ApiServer) -> Transport:
    def handle(call: Call) -> Response | Awaitable[Response]:
        headers = {**call.headers, "authorization": f"Bearer {running.token}"}
        return running.app.handle(
            HttpRequest(call.method, call.path, call.query, headers, call.body)
        )

    return LocalTransport(handle)


def _over_tls(running: ApiServer) -> Transport:
    return HttpTransport(running.url, ca_pem=running.ca_pem, token=running.token)


async def _compared(
    reference: Transport, candidate: Transport, actions: tuple[str, ...]
) -> Figures:
    found = await schemas.kinds(reference)
    kinds = [kind for kind in found if kind.label in KINDS]
    assert len(kinds) == len(KINDS)
    cases = [case for case in sequences.sequences(kinds) if case.action in actions]
    cases += [_unhurried(case) for case in sequences.sequences(kinds) if case.action == "churn"]
    return await compare(reference, candidate, kinds, [*cases, *probes.probes(kinds, 120, seed=3)])


def _unhurried(case: Case) -> Case:
    """Watch longer than by hand, so that a busy machine gets all changes done meanwhile."""
    assert case.watch is not None
    query = case.watch.query.replace("timeoutSeconds=2", "timeoutSeconds=5")
    assert query != case.watch.query
    return replace(case, watch=replace(case.watch, query=query))


@pytest.mark.parametrize("way", ["memory over TLS", "SQLite inside the process"])
async def test_answers_do_not_depend_on_the_store_or_the_transport(
    tmp_path: Path, way: str
) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(_server(tmp_path / "one", "sqlite"))
        reference = _over_tls(one)
        stack.push_async_callback(reference.close)
        store = "memory" if way.startswith("memory") else "sqlite"
        two = await stack.enter_async_context(_server(tmp_path / "two", store))
        candidate = _over_tls(two) if store == "memory" else _inside(two)
        stack.push_async_callback(candidate.close)
        figures = await _compared(reference, candidate, ("life", "patches", "applies"))
    assert "\n".join(report.causes(figures)) == ""
    assert figures.total[Outcome.IDENTICAL] > 300


def _refused(*causes: str, code: int = 422) -> Answer:
    listed = [{"field": name, "message": "m", "reason": "r"} for name in causes]
    return Answer(code, STATUS | {"details": {"causes": listed}})


@pytest.mark.parametrize(
    ("reference", "candidate", "outcome"),
    [
        (_refused("a"), _refused("a"), Outcome.IDENTICAL),
        (_refused("a", "b"), _refused("b", "a"), Outcome.ORDER),
        (_refused("a", "a"), _refused("a"), Outcome.WORDING),
        (_refused("a"), _refused("a", code=400), Outcome.REASON),
        (Answer(200, {"a": 1}), Answer(200, {"a": 2}), Outcome.OBJECT),
        (Answer(200, {}, ("w",)), Answer(200, {}), Outcome.WARNINGS),
    ],
)
def test_outcomes_tell_how_answers_differ(
    reference: Answer, candidate: Answer, outcome: Outcome
) -> None:
    assert difference(reference, candidate).outcome is outcome


def test_differences_of_one_cause_have_one_shape() -> None:
    one = shape('spec.template.spec.containers[0].image: Invalid value: "a": at 5')
    two = shape('spec.containers[3].image: Invalid value: "b": at 6')
    assert one == two


def test_values_of_chance_are_replaced_and_given_ones_are_kept() -> None:
    metadata = {
        "uid": "0f9f3a52-7d52-4c59-8f4b-0a4d5f0a8a11",
        "resourceVersion": "77",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    given = {"at": "2001-02-03T04:05:06Z"}
    found = normal(Answer(200, {"metadata": metadata, "spec": given})).document
    named = {"uid": "UID", "resourceVersion": "VERSION", "creationTimestamp": "TIME"}
    assert found == {"metadata": named, "spec": given}


def test_requests_refer_to_earlier_answers() -> None:
    memory = Memory()
    memory.keep({"kind": "Pod", "metadata": {"resourceVersion": "5", "uid": "u"}})
    assert memory.fill({"a": ["<version>", "<uid>"], "b": 1}) == {"a": ["5", "u"], "b": 1}


def test_the_page_shows_figures_by_kind() -> None:
    figures = Figures()
    kind = Kind("Pod", "v1", "pods", "/pods", True, {})
    case = Case(kind.label, "", "create", (Request("POST", "/pods"),))
    figures.by_kind[case.kind][Outcome.IDENTICAL] = 3
    figures.by_kind[case.kind][Outcome.REASON] = 1
    page = report.page(figures, "A and B")
    assert "A and B: 4 answers. 75.00 % are identical in code and reason" in page
    assert "| Pod | 4 | 3 | 0 | 0 | 0 | 0 | 1 |" in page
