import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.apiserver.fairness import flow_controller
from kedge.apiserver.fairness.flow_controller import LEVEL_HEADER, SCHEMA_HEADER
from kedge.apiserver.fairness.flow_rules import RequestDigest
from kedge.apiserver.fairness.work_estimate import WorkEstimate
from kedge.machinery.errors import StatusError
from kedge.machinery.turns import next_turn
from kedge.testing.local_server import LocalAnswer, LocalServer
from kedge.web.message import Response

API = "/apis/flowcontrol.apiserver.k8s.io/v1"
EVERYBODY = ("system:authenticated",)
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


async def grant(server: LocalServer) -> None:
    """Let the user ann do everything; administrators are exempt."""
    body = {
        "metadata": {"name": "ann"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}],
    }
    await server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)


async def get(server: LocalServer, path: str) -> LocalAnswer:
    return await server.call("GET", path, headers={"impersonate-user": "ann"})


async def small_level(server: LocalServer, **limited: Any) -> dict[str, Any]:
    """A level, and the schema of requests for config maps in the namespace default."""
    await grant(server)
    given = {"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}} | limited
    level = {"type": "Limited", "limited": given}
    body = {"metadata": {"name": "small"}, "spec": level}
    made = await server.post(f"{API}/prioritylevelconfigurations", body)
    rule = {
        "verbs": ["*"],
        "apiGroups": [""],
        "resources": ["configmaps"],
        "namespaces": ["default"],
    }
    subject = {"kind": "Group", "group": {"name": "system:authenticated"}}
    spec = {
        "matchingPrecedence": 2,
        "priorityLevelConfiguration": {"name": "small"},
        "rules": [{"subjects": [subject], "resourceRules": [rule]}],
    }
    schema = {"metadata": {"name": "a-small"}, "spec": spec}
    await server.post(f"{API}/flowschemas", schema)
    return made  # type: ignore[no-any-return]


async def test_every_answer_names_schema_and_level(server: LocalServer) -> None:
    level = await small_level(server)
    answer = await get(server, f"{MAPS}/none")
    assert answer.status == 404
    assert answer.headers[LEVEL_HEADER] == level["metadata"]["uid"]
    schema = await server.get(f"{API}/flowschemas/a-small")
    assert answer.headers[SCHEMA_HEADER] == schema["metadata"]["uid"]


async def test_a_schema_without_its_level_is_skipped(server: LocalServer) -> None:
    level = await small_level(server)
    await server.delete(f"{API}/prioritylevelconfigurations/small")
    answer = await get(server, f"{MAPS}/none")
    assert answer.headers.get(LEVEL_HEADER) != level["metadata"]["uid"]


async def test_a_level_without_seats_lets_requests_wait_in_its_queues(server: LocalServer) -> None:
    queuing = {"queues": 4, "handSize": 2, "queueLengthLimit": 1}
    await small_level(server, limitResponse={"type": "Queue", "queuing": queuing})
    waiting = [asyncio.ensure_future(get(server, MAPS)) for _ in range(3)]
    for _ in range(5):
        await server.settle()
    assert [each.done() for each in waiting] == [False, False, True]
    refused = waiting[2].result()
    assert refused.status == 429
    assert refused.headers["Retry-After"] == "1"
    assert refused.message == "Too many requests, please try again later."
    for each in waiting[:2]:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_others_are_served_meanwhile(server: LocalServer) -> None:
    queuing = {"queues": 4, "handSize": 2, "queueLengthLimit": 9}
    await small_level(server, limitResponse={"type": "Queue", "queuing": queuing})
    waiting = asyncio.ensure_future(get(server, MAPS))
    await server.settle()
    assert (await get(server, PODS)).status == 200
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_request_tells_when_it_waits_for_seats(server: LocalServer) -> None:
    queuing = {"queues": 4, "handSize": 2, "queueLengthLimit": 9}
    limits = {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Queue", "queuing": queuing}}
    await small_level(server, **limits)
    flows = server.app.flows
    place = flows.classify(RequestDigest("ann", EVERYBODY, "get", "", "configmaps", "default", ""))
    place.level.queues.resize(1, 0.0)
    held: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    told: list[bool] = []
    first = asyncio.ensure_future(flows.serve(place, held, on_queued=told.append))
    await server.settle()
    assert told == []
    second = asyncio.ensure_future(flows.serve(place, Response(), on_queued=told.append))
    await server.settle()
    assert told == [True]
    held.set_result(Response())
    await asyncio.gather(first, second)
    assert told == [True, False]


async def test_a_request_that_is_refused_never_begins(server: LocalServer) -> None:
    await small_level(server, limitResponse={"type": "Reject"})
    flows = server.app.flows
    place = flows.classify(RequestDigest("ann", EVERYBODY, "get", "", "configmaps", "default", ""))
    held: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    begun = []

    async def work() -> Response:
        begun.append("second")
        return Response()

    first = asyncio.ensure_future(flows.serve(place, held))
    await server.settle()
    with pytest.raises(StatusError) as refused:
        await flows.serve(place, work())
    assert refused.value.code == 429
    assert (begun, place.counts.rejected) == ([], {"concurrency-limit": 1})
    held.set_result(Response())
    assert (await first).status == 200
    await flows.serve(place, work())
    assert begun == ["second"]


async def test_retry_after_grows_while_a_level_rejects(server: LocalServer) -> None:
    await small_level(server, limitResponse={"type": "Reject"})
    flows = server.app.flows
    digest = RequestDigest("ann", EVERYBODY, "get", "", "configmaps", "default", "")
    held: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    first = asyncio.ensure_future(flows.serve(flows.classify(digest), held))
    await server.settle()

    async def refused() -> int:
        with pytest.raises(StatusError) as error:
            await flows.serve(flows.classify(digest), Response())
        return error.value.retry_after

    seconds = []
    for _ in range(4):
        seconds.append([await refused() for _ in range(3)])
        await server.clock.advance(1)
    assert seconds == [[1, 1, 1], [2, 2, 2], [2, 2, 2], [4, 4, 4]]
    held.set_result(Response())
    await first


async def test_seats_for_watchers_are_given_back_later(server: LocalServer) -> None:
    await small_level(server, limitResponse={"type": "Reject"})
    flows = server.app.flows
    place = flows.classify(RequestDigest("ann", EVERYBODY, "get", "", "configmaps", "default", ""))
    await flows.serve(place, Response(), WorkEstimate(1, 2, 0.001))
    assert place.level.queues.running == 2
    while place.level.queues.running:
        await next_turn()


async def test_seats_of_idle_levels_are_lent(server: LocalServer) -> None:
    flows = server.app.flows
    flows.adjust()
    level = flows.levels["global-default"]
    level.queues.use.wanted(300, level.bounds.nominal, 10.0)
    assert level.queues.seats < 300
    flows.adjust()
    assert level.queues.seats >= 300
    assert level.bounds.nominal == 49


async def test_seats_that_come_with_the_end_of_the_wait_are_given_back(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    queuing = {"queues": 1, "handSize": 1, "queueLengthLimit": 9}
    await small_level(server, limitResponse={"type": "Queue", "queuing": queuing})
    flows, loop = server.app.flows, asyncio.get_running_loop()
    place = flows.classify(RequestDigest("ann", EVERYBODY, "get", "", "configmaps", "default", ""))
    monkeypatch.setattr(flow_controller, "LONGEST_WAIT_SECONDS", 0)
    waiting = asyncio.ensure_future(flows.serve(place, Response()))
    # In one turn of the loop the request begins to wait; in the next its time is over, and then
    # the seats come.
    loop.call_soon(lambda: loop.call_soon(place.level.queues.resize, 1, 0.0))
    with pytest.raises(StatusError) as refused:
        await waiting
    assert refused.value.code == 429
    assert (place.level.queues.running, place.level.queues.waiting) == (0, 0)


@pytest.mark.parametrize("field", ["verb", "group", "resource", "namespace", "path"])
async def test_requests_with_long_texts_are_not_remembered(server: LocalServer, field: str) -> None:
    flows = server.app.flows
    usual = RequestDigest("ann", EVERYBODY, "get", "", "configmaps", "default", "")
    long = RequestDigest(**usual._asdict() | {field: "x" * 256})
    flows.classify(usual)
    flows.classify(long)
    assert usual in flows.known
    assert long not in flows.known
