"""The pages under /testing: only in clusters for tests, only for administrators."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kedge.api.testing.clock_change import ClockChange, ClockState
from kedge.apiserver.context import RequestContext
from kedge.apiserver.testing.controls import ClusterControls, change, state_of
from kedge.apiserver.testing.fault_table import FaultTable
from kedge.machinery.errors import StatusError
from kedge.machinery.travel_clock import TravelClock
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest, Response

FAULTS = "/testing/faults"


async def test_other_servers_do_not_have_the_pages() -> None:
    async with LocalServer.running() as server:
        for method in ("GET", "POST", "DELETE"):
            answer = await server.call(method, FAULTS, {"code": 500})
            assert (answer.status, answer.text) == (404, "404 page not found\n")


async def test_only_administrators_may_use_them(server: LocalServer) -> None:
    joe = {"impersonate-user": "joe"}
    refused = await server.call("POST", FAULTS, {"code": 500}, headers=joe)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert (await server.call("GET", FAULTS, token=None)).status == 403
    assert (await server.get(FAULTS)) == {"items": []}


async def test_rules_come_and_go(server: LocalServer) -> None:
    made = await server.call("POST", FAULTS, {"code": 500, "verbs": ["get"]})
    assert (made.status, made.document["id"]) == (201, "fault-1")
    assert [rule["id"] for rule in (await server.get(FAULTS))["items"]] == ["fault-1"]
    assert (await server.delete(f"{FAULTS}/fault-1"))["id"] == "fault-1"
    assert (await server.call("DELETE", f"{FAULTS}/fault-1")).status == 404


async def test_mistakes_change_nothing(server: LocalServer) -> None:
    cases = {400: {"cod": 500}, 422: {"code": 1}, 413: {"message": "x" * 70_000}}
    for code, rule in cases.items():
        assert (await server.call("POST", FAULTS, rule)).status == code
    for method, path in (("PUT", FAULTS), ("GET", f"{FAULTS}/a")):
        assert (await server.call(method, path)).status == 405
    assert (await server.call("GET", "/testing/nothing")).status == 404
    assert (await server.get(FAULTS)) == {"items": []}


def test_a_clock_is_moved_and_stopped() -> None:
    clock = TravelClock(FakeClock())
    change(clock, ClockChange(advance=3600, frozen=True))
    assert state_of(clock) == ClockState(
        now="2030-01-01T01:00:00.000000Z", offset=3600.0, frozen=True
    )
    change(clock, ClockChange(frozen=False))
    assert not state_of(clock).frozen
    late = TravelClock(FakeClock(datetime(8995, 1, 1, tzinfo=UTC)))
    with pytest.raises(StatusError, match="would pass the year 9000"):
        change(late, ClockChange(advance=10 * 365 * 86400))
    assert state_of(late).offset == 0


async def test_the_page_of_the_clock(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await server.call("GET", "/testing/clock")).status == 404
    api = server.app.api
    clock = TravelClock(server.clock)
    monkeypatch.setattr(api, "clock", clock)
    page = ClusterControls(api, FaultTable()).steps().before_work[0]

    async def ask(method: str, body: bytes = b"", path: str = "/testing/clock") -> Any:
        context = RequestContext(HttpRequest(method, path, body=body), 0.0)
        page(context)
        assert context.answer is not None
        answer = context.answer
        response = answer if isinstance(answer, Response) else await answer
        assert isinstance(response.body, bytes)
        return msgspec.json.decode(response.body)

    assert (await ask("GET"))["offset"] == 0
    assert (await ask("POST", b'{"advance":60}'))["offset"] == 60
    assert clock.heartbeats.monotonic() == clock.monotonic()
    with pytest.raises(StatusError):
        await ask("POST", b'{"advance":-1}')
    with pytest.raises(StatusError):
        await ask("DELETE")
    assert (await ask("GET"))["offset"] == 60
    course = await ask("GET", path="/testing/clock/course")
    assert [stretch[1] for stretch in course["stretches"]] == [0, 60]
    with pytest.raises(StatusError):
        await ask("POST", path="/testing/clock/course")
    # A node that does not follow the clock is not silent because time was skipped.
    await server.post("/api/v1/nodes", {"metadata": {"name": "foreign"}})
    assert (await ask("POST", b'{"advance":60}'))["behind"] == ["foreign"]
    assert clock.heartbeats.monotonic() == clock.monotonic() - 60
