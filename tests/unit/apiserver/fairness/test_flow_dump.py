"""Dumps of priority levels, queues and requests."""

import asyncio

from kedge.apiserver.fairness.flow_rules import RequestDigest
from kedge.apiserver.fairness.work_estimate import WorkEstimate
from kedge.testing.local_server import LocalServer
from kedge.web.message import Response

DUMPS = "/debug/api_priority_and_fairness"


async def rows(server: LocalServer, path: str) -> list[list[str]]:
    answer = await server.call("GET", f"{DUMPS}/{path}")
    assert answer.status == 200
    return [[cell.strip() for cell in line.split(",")] for line in answer.text.splitlines()]


async def test_levels(server: LocalServer) -> None:
    header, *levels = await rows(server, "dump_priority_levels")
    assert header[:3] == ["PriorityLevelName", "ActiveQueues", "IsIdle"]
    assert [row[0] for row in levels][:3] == ["catch-all", "exempt", "global-default"]
    assert levels[0] == ["catch-all", "0", "true", "false", *["0"] * 6]


async def test_columns_are_aligned(server: LocalServer) -> None:
    text = (await server.call("GET", f"{DUMPS}/dump_queues")).text
    lines = text.splitlines()
    assert lines[0].startswith("PriorityLevelName, Index,  PendingRequests, ")
    assert "global-default,    0,      0,               0, " in text


async def test_requests_that_run(server: LocalServer) -> None:
    flows = server.app.flows
    place = flows.classify(RequestDigest("ann", (), "get", "", "pods", "default", ""))
    held: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    details = ("ann", "get", "/x", "default", "p", "v1", "pods", "")
    running = asyncio.ensure_future(flows.serve(place, held, WorkEstimate(2), details))
    await server.settle()
    header, *requests = await rows(server, "dump_requests?includeRequestDetails=1")
    assert header[-2:] == ["Resource", "SubResource"]
    (mine,) = (row for row in requests if row[0] == place.counts.level)
    assert mine[1] == place.counts.schema
    assert mine[3:5] == ["-1", "ann"]
    assert mine[6:9] == ["2", "0", "0s"]
    assert mine[-8:] == list(details)
    assert len((await rows(server, "dump_requests"))[0]) == 10
    held.set_result(Response())
    await running


async def test_other_names_are_not_found(server: LocalServer) -> None:
    assert (await server.call("GET", f"{DUMPS}/dump_everything")).status == 404
