"""The steps of a request, each alone, and in the order in which App runs them."""

import asyncio
import json
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kedge.apiserver import steps
from kedge.apiserver.audit import AuditLog
from kedge.apiserver.authorization.authorizer import SUPERUSERS
from kedge.apiserver.context import RequestContext
from kedge.apiserver.inflight import InFlight, RequestLimit
from kedge.apiserver.request import Request, User
from kedge.apiserver.telemetry import MOST_SERIES, Telemetry
from kedge.machinery.errors import StatusError
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.web.message import HttpRequest, Response, json_response

ADMIN = User("admin", (SUPERUSERS,))
JOE = User("joe", ("system:authenticated",))
MAPS = "/api/v1/namespaces/default/configmaps"


def context(method: str, path: str, user: User = JOE, **headers: str) -> RequestContext:
    made = RequestContext(HttpRequest(method, path, "", headers), 0.0)
    steps.route(made)
    made.user = made.authenticated = user
    return made


def test_route_finds_resource_and_verb() -> None:
    made = context("GET", f"{MAPS}/a")
    assert made.target is not None
    assert (made.target.plural, made.target.name, made.verb) == ("configmaps", "a", "get")
    page = context("GET", "/version")
    assert (page.target, page.verb) == (None, "")
    with pytest.raises(StatusError, match="not allow"):
        context("TRACE", MAPS)


async def test_authorize_notes_its_decision(server: LocalServer) -> None:
    api = server.app.api
    step = steps.authorize(api.authorizer, api.metrics)
    allowed = context("GET", MAPS, ADMIN)
    step(allowed)
    assert allowed.decision is not None
    assert allowed.decision.allowed
    for path in (MAPS, "/metrics"):
        refused = context("GET", path)
        with pytest.raises(StatusError) as error:
            step(refused)
        assert error.value.code == 403
        assert refused.decision is not None
        assert not refused.decision.allowed


async def test_no_right_lets_a_user_report_for_a_node(server: LocalServer) -> None:
    api = server.app.api
    step = steps.authorize(api.authorizer, api.metrics)
    with pytest.raises(StatusError, match="only the node itself"):
        step(context("POST", "/kedge/metrics/v1/nodes/n", ADMIN))
    step(context("POST", "/kedge/metrics/v1/nodes/n", User("system:node:n", ("system:nodes",))))


async def test_impersonate_replaces_the_user(server: LocalServer) -> None:
    step = steps.impersonate(server.app.api.authorizer)
    made = context("GET", MAPS, ADMIN, **{"impersonate-user": "joe"})
    step(made)
    assert (made.authenticated.name, made.user.name) == ("admin", "joe")
    with pytest.raises(StatusError, match="cannot impersonate"):
        step(context("GET", MAPS, JOE, **{"impersonate-user": "admin"}))


# Limit.


async def answered() -> Response:
    return Response(200)


def limited(server: LocalServer, flight: InFlight, verb: str, answer: Any) -> RequestContext:
    made = context("POST", MAPS)
    resource = server.app.api.catalog.find("", "v1", "configmaps")
    assert resource is not None
    made.request = Request(made.http, JOE, resource, verb)
    made.answer = answer
    steps.limit(flight)(made)
    return made


async def test_limit_counts_answers_that_take_time(server: LocalServer) -> None:
    flight = InFlight(writes=RequestLimit(1, 0))
    first = limited(server, flight, "create", answered())
    assert flight.counts == [0, 0], "the work has not begun"
    place = flight.enter("create", JOE)
    assert flight.counts == [0, 1]
    with pytest.raises(StatusError) as error:
        await first.answer  # type: ignore[misc]
    assert (error.value.code, error.value.retry_after) == (429, 1)
    flight.leave(place)
    assert (await limited(server, flight, "create", answered()).answer).status == 200  # type: ignore[misc]
    assert flight.counts == [0, 0]


async def test_limit_leaves_complete_answers_and_watches_alone(server: LocalServer) -> None:
    flight = InFlight(reads=RequestLimit(1, 0))
    complete = Response(200)
    assert limited(server, flight, "get", complete).answer is complete
    pending = answered()
    assert limited(server, flight, "watch", pending).answer is pending
    pending.close()


async def test_a_request_that_is_cancelled_before_it_begins_takes_no_place(
    server: LocalServer,
) -> None:
    flight = InFlight(writes=RequestLimit(1, 0))
    pending = answered()
    made = limited(server, flight, "create", pending)
    assert isinstance(made.answer, Coroutine)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.answer).cancel()
    pending.close()
    assert flight.counts == [0, 0]


async def endless() -> Response:
    await asyncio.get_running_loop().create_future()
    return Response(200)


async def test_limit_ends_a_request_that_takes_too_long(server: LocalServer) -> None:
    flight = InFlight(seconds=0)
    with pytest.raises(StatusError) as error:
        await limited(server, flight, "create", endless()).answer  # type: ignore[misc]
    assert (error.value.code, error.value.reason) == (504, "Timeout")
    assert error.value.message == "Timeout: request did not complete within the allotted timeout"
    assert flight.counts == [0, 0]


async def test_limit_passes_a_timeout_of_the_handler_on(server: LocalServer) -> None:
    async def late() -> Response:
        raise TimeoutError("of something else")

    with pytest.raises(TimeoutError, match="of something else"):
        await limited(server, InFlight(seconds=60), "create", late()).answer  # type: ignore[misc]


def page(flight: InFlight, answer: Any) -> RequestContext:
    made = context("GET", "/openapi/v2")
    made.answer = answer
    steps.limit(flight)(made)
    return made


async def test_limit_ends_a_page_that_takes_too_long() -> None:
    with pytest.raises(StatusError) as error:
        await page(InFlight(seconds=0), endless()).answer  # type: ignore[misc]
    assert (error.value.code, error.value.reason) == (504, "Timeout")


async def test_pages_take_no_place() -> None:
    flight = InFlight(reads=RequestLimit(1, 0), seconds=60)
    flight.enter("get", JOE)
    assert (await page(flight, answered()).answer).status == 200  # type: ignore[misc]
    assert flight.counts == [1, 0]


async def test_limit_leaves_pages_that_are_complete_or_stream_alone() -> None:
    streams = Response(200, iter([b"a", b"b"]))
    assert page(InFlight(seconds=0), streams).answer is streams


# Count and indent.


async def test_count_names_the_resource_or_the_method(server: LocalServer) -> None:
    telemetry = Telemetry()
    step = steps.count(telemetry, FakeClock())
    page = context("GET", "/version")
    page.response = Response(200)
    step(page)
    made = limited(server, InFlight(), "create", Response(201))
    made.response = Response(201)
    step(made)
    text = b"".join(telemetry.pages()).decode()
    assert 'code="200",group="",resource="",subresource="",verb="GET"} 1' in text
    assert 'code="201",group="",resource="configmaps",subresource="",verb="CREATE"} 1' in text


@pytest.mark.parametrize(
    ("path", "query", "agent", "is_indented"),
    [
        ("/api/v1/pods", "", "curl/8", True),
        ("/api/v1/pods", "pretty=false", "curl/8", False),
        ("/api/v1/pods", "pretty=true", "kubectl/v1.36", True),
        ("/api/v1/pods", "", "kubectl/v1.36", False),
        ("/version", "", "curl/8", False),
    ],
)
def test_json_is_indented_for_people(path: str, query: str, agent: str, is_indented: bool) -> None:
    made = RequestContext(HttpRequest("GET", path, query, {"user-agent": agent}), 0.0)
    made.response = json_response({"a": 1})
    steps.indent(made)
    assert made.response.body == (b'{\n  "a": 1\n}\n' if is_indented else b'{"a":1}')


async def test_texts_of_clients_are_no_labels(server: LocalServer) -> None:
    for name in ("nope", 'x"} 1', "..", "a" * 300):
        asked = await server.call("GET", f"{MAPS}/x/{quote(name)}")
        assert asked.status in (400, 403, 404)
    text = (await server.call("GET", "/metrics")).text
    assert {*re.findall(r'subresource="([^"]*)"', text)} == {""}


def test_the_number_of_series_is_bounded() -> None:
    telemetry = Telemetry()
    for number in range(MOST_SERIES + 500):
        telemetry.count(("GET", "group", f"things{number}", ""), 200, 0.1)
    text = b"".join(telemetry.pages()).decode()
    assert text.count("apiserver_request_total{") == MOST_SERIES + 1
    assert 'resource="other",subresource="",verb=""} 500' in text
    pieces = [*telemetry.pages()]
    assert max(map(len, pieces)) < len(text) / 50, "the text is not made in one turn"


# All of them.


async def test_requests_are_refused_before_their_body_is_read(server: LocalServer) -> None:
    def screen(method: str, path: str, **headers: str) -> int:
        refusal = server.app.screen(HttpRequest(method, path, "", headers))
        return 0 if refusal is None else refusal.status

    admin = f"Bearer {TOKEN}"
    assert screen("POST", MAPS, authorization=admin) == 0
    assert screen("POST", "/version", authorization=admin) == 0
    assert screen("POST", MAPS, authorization="Bearer wrong") == 401
    assert screen("POST", MAPS) == 403
    assert screen("POST", "/metrics") == 403
    assert screen("POST", "/kedge/metrics/v1/nodes/n", authorization=admin) == 403
    assert screen("TRACE", MAPS, authorization=admin) == 405
    text = (await server.call("GET", "/metrics")).text
    assert 'code="403",group="",resource="",subresource="",verb="POST"} 3' in text


async def test_every_request_is_audited_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path)
    async with LocalServer.running(audit_log=log) as server:
        await server.post(MAPS, {"metadata": {"generateName": "a-"}})
        await server.call("GET", f"{MAPS}/none", headers={"impersonate-user": "joe"})
        await server.call("GET", "/version", token=None)
        await server.call("GET", MAPS, token="wrong")
        server.app.screen(HttpRequest("POST", MAPS))
    log.close()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(e["verb"], e["responseStatus"]["code"], _decision(e)) for e in events] == [
        ("create", 201, "allow"),
        ("get", 403, "forbid"),
        ("get", 200, "allow"),
        ("list", 401, None),
        ("create", 403, "forbid"),
    ]
    assert events[0]["objectRef"]["name"].startswith("a-")
    assert events[1]["impersonatedUser"]["username"] == "joe"
    assert events[3]["user"] == {}


def _decision(event: dict[str, Any]) -> str | None:
    decision: str | None = event.get("annotations", {}).get("authorization.k8s.io/decision")
    return decision
