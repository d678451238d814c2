"""Usage that is followed, in front of a server in this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kedge.cli.usage.top.live.live_usage import LiveUsage
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport, Unreachable
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.web.message import HttpRequest, Response

MAIN = {"containers": [{"name": "main", "image": "host"}]}
BOTH = {"containers": [{"name": "main", "image": "host"}, {"name": "side", "image": "host"}]}


@pytest.fixture(autouse=True)
async def pods(usage: Any, server: LocalServer) -> None:
    for name in ("shop", "ops"):
        await server.post("/api/v1/namespaces", {"metadata": {"name": name}})
    await usage.pod("default/web", MAIN)
    await usage.pod("shop/db", BOTH)
    usage.report(0.25)


class Line:
    """A connection that can be cut, and on which some paths are refused or answered otherwise."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self.cut = False
        self.refused: tuple[str, ...] = ()
        self.refuses_watches = False
        self.histories: dict[str, Any] = {}
        self.asked: list[str] = []

    @property
    def client(self) -> Client:
        return Client(LocalTransport(self._handle), user_agent="kedge-test")

    def _handle(self, call: Call) -> Response | Awaitable[Response]:
        if self.cut:
            raise Unreachable("nobody answers")
        if call.path in self.refused or (self.refuses_watches and "watch=" in call.query):
            status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not yours"}
            return Response(403, msgspec.json.encode(status))
        if "history" in call.query:
            self.asked.append(call.path)
            return Response(200, msgspec.json.encode(self.histories.get(call.path, {})))
        headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
        return self._server.app.handle(
            HttpRequest(call.method, call.path, call.query, headers, call.body)
        )


@pytest.fixture
def line(server: LocalServer) -> Line:
    return Line(server)


@asynccontextmanager
async def followed(
    line: Line, server: LocalServer, namespace: str = ""
) -> AsyncIterator[LiveUsage]:
    found = LiveUsage(line.client, server.clock, namespace=namespace)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(found.follow())
        await server.settle()
        yield found
        following.cancel()


async def test_nodes_and_pods_are_known_with_their_usage(line: Line, server: LocalServer) -> None:
    async with followed(line, server) as found:
        objects = found.objects()
        assert [*objects.nodes] == [*objects.node_usage] == ["n1"]
        assert {*objects.pods} == {*objects.pod_usage} == {"default/web", "shop/db"}
        assert found.end == int(server.clock.now().timestamp()) // 10 * 10
        assert found.trouble == ""
        assert not found.nodes_refused
        assert not found.pods_refused


async def test_changes_are_followed(line: Line, server: LocalServer, usage: Any) -> None:
    async with followed(line, server) as found:
        found.changed.clear()
        version = found.version
        await server.clock.advance(10)
        usage.report(0.5)
        await server.delete("/api/v1/namespaces/default/pods/web?gracePeriodSeconds=0")
        await server.settle()
        assert found.changed.is_set()
        assert found.version > version
        assert [*found.objects().pods] == ["shop/db"]
        assert found.courses["shop/db"].hour("cpu", found.end)[-2:] == [0.25, 0.5]
        found.forget()
        assert {*found.courses} == {"n1", "shop/db", "shop/db/main", "shop/db/side"}


async def test_the_pods_of_another_namespace_can_be_followed(
    line: Line, server: LocalServer, usage: Any
) -> None:
    async with followed(line, server, "default") as found:
        assert [*found.objects().pods] == ["default/web"]
        found.rescope("shop")
        await server.settle()
        assert [*found.objects().pods] == [*found.objects().pod_usage] == ["shop/db"]
        found.rescope("")
        await server.settle()
        assert {*found.objects().pods} == {"default/web", "shop/db"}
        await usage.pod("ops/new", MAIN)
        await server.settle()
        assert "ops/new" in found.objects().pods


async def test_a_server_that_goes_away_is_waited_for_and_its_data_are_kept(
    line: Line, server: LocalServer
) -> None:
    async with followed(line, server) as found:
        line.cut = True
        found.rescope("shop")
        await server.settle()
        assert found.trouble == "nobody answers"
        assert [*found.objects().nodes] == ["n1"]
        line.cut = False
        await server.clock.advance(1)
        await server.settle()
        assert found.trouble == ""
        assert [*found.objects().pods] == ["shop/db"]


async def test_missing_rights_are_remembered_and_tried_again(
    line: Line, server: LocalServer
) -> None:
    line.refused = ("/api/v1/nodes", "/apis/metrics/v1alpha1/nodes", "/api/v1/pods")
    async with followed(line, server) as found:
        assert found.nodes_refused
        assert not found.pods_refused
        assert found.nodes.refusal == "not yours"
        assert {*found.objects().pods} == {"default/web", "shop/db"}
        line.refused = ()
        await server.clock.advance(30)
        await server.settle()
        assert not found.nodes_refused
        assert [*found.objects().nodes] == ["n1"]


async def test_somebody_who_may_not_watch_gets_lists(
    line: Line, server: LocalServer, usage: Any
) -> None:
    line.refuses_watches = True
    async with followed(line, server) as found:
        assert {*found.objects().pods} == {"default/web", "shop/db"}
        await usage.pod("ops/new", MAIN)
        await server.clock.advance(10)
        await server.settle()
        assert "ops/new" in found.objects().pods


def points(start: str, step: str, *cpu: float) -> dict[str, Any]:
    amounts = {"mean": [*cpu]}
    return {"starttime": start, "step": step, "cpu": amounts, "memory": amounts}


async def test_the_node_is_asked_for_the_points_of_lines_on_the_screen(
    line: Line, server: LocalServer
) -> None:
    path = "/apis/metrics/v1alpha1/namespaces/default/pods/web"
    async with followed(line, server) as found:
        start = server.clock.now().isoformat()[:19] + "Z"
        history = {"1d": points(start, "300s", 0.5)}
        line.histories[path] = {"containers": [{"metadata": {"name": "main"}, "history": history}]}
        found.want(["default/web", "n1"])
        await server.clock.advance(1)
        await server.clock.advance(1)
        assert line.asked == [path, "/apis/metrics/v1alpha1/nodes/n1"]
        assert found.courses["default/web"].day("cpu") == [0.5]
        assert found.courses["default/web/main"].day("cpu") == [0.5]


async def test_an_object_may_be_gone_before_its_node_answers(
    line: Line, server: LocalServer
) -> None:
    line.histories["/apis/metrics/v1alpha1/namespaces/default/pods/gone"] = {"containers": []}
    async with followed(line, server) as found:
        await found.ask_history("default/gone")
        assert "default/gone" not in found.courses


async def test_the_selected_line_is_asked_for_most_often(line: Line, server: LocalServer) -> None:
    histories = {"history": {"1d": points("2026-11-15T18:20:00Z", "300s", 0.5)}}
    line.histories = {
        "/apis/metrics/v1alpha1/namespaces/shop/pods/db": histories,
        "/apis/metrics/v1alpha1/nodes/n1": histories,
    }
    async with followed(line, server) as found:
        found.want(["shop/db", "n1", "default/web"])
        for _ in range(120):
            await server.clock.advance(0.5)
        counts = {each.rpartition("/")[2]: line.asked.count(each) for each in line.asked}
        assert counts["db"] in (5, 6, 7)
        assert counts["n1"] in (1, 2)
        # Its node keeps no points.
        assert counts["web"] == 1


async def test_a_container_of_several_has_points_of_its_own(
    line: Line, server: LocalServer
) -> None:
    async with followed(line, server) as found:
        assert found.courses["default/web/main"] is found.courses["default/web"]
        assert found.courses["shop/db/main"] is not found.courses["shop/db"]
