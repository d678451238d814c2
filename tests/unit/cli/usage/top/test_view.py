"""`kedge top`, in front of a server in this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.cli.objects.connection import ApiSession
from kedge.cli.usage.lines import TopOptions
from kedge.cli.usage.top.view import TopView, show
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport, Unreachable
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.web.message import HttpRequest, Response

MAIN = {"containers": [{"name": "main", "image": "host"}]}
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
async def pods(usage: Any) -> None:
    await usage.pod("default/web", MAIN)
    await usage.pod("kube-system/dns", MAIN)
    usage.report(0.25)


class Line:
    """A connection that can be cut."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self.cut = False

    @property
    def client(self) -> Client:
        return Client(LocalTransport(self._handle), user_agent="kedge-test")

    def _handle(self, call: Call) -> Response | Awaitable[Response]:
        if self.cut:
            raise Unreachable("nobody answers")
        headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
        return self._server.app.handle(
            HttpRequest(call.method, call.path, call.query, headers, call.body)
        )


@asynccontextmanager
async def followed(
    there: ApiSession, server: LocalServer, look: TopOptions
) -> AsyncIterator[TopView]:
    scene = TopView(there, look)
    scene.clock = server.clock
    await scene.fetch()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(scene.follow())
        await server.settle()
        yield scene
        following.cancel()


def shown(scene: TopView) -> list[str]:
    return [" ".join(line.split()) for line in scene.table(trends=False)]


async def test_33_the_table_of_a_node_follows_what_it_reports(
    there: ApiSession, server: LocalServer, usage: Any
) -> None:
    async with followed(there, server, TopOptions(what="n1")) as scene:
        assert shown(scene) == ["POD CPU MEM", "web 0.25 cores 67 MB", "dns 0.25 cores 67 MB"]
        await server.clock.advance(10)
        usage.report(0.5)
        await server.settle()
        assert scene.changed.is_set()
        assert shown(scene)[1:] == ["web 0.50 cores 67 MB", "dns 0.50 cores 67 MB"]
        await server.delete("/api/v1/namespaces/default/pods/web?gracePeriodSeconds=0")
        await server.settle()
        assert shown(scene)[1:] == ["dns 0.50 cores 67 MB"]


async def test_what_pods_ask_for_is_looked_at_again(
    there: ApiSession, server: LocalServer, usage: Any
) -> None:
    main = {"name": "main", "image": "host", "resources": {"requests": {"cpu": "1"}}}
    await usage.pod("default/sized", {"containers": [main]})
    await server.clock.advance(10)
    usage.report(0.5)
    async with followed(there, server, TopOptions(what="pods", headings=False)) as scene:
        assert "sized 0.50 cores 67 MB 50% - - -" in shown(scene)
        larger = {**main, "resources": {"requests": {"cpu": "2"}}}
        path = "/api/v1/namespaces/default/pods/sized/resize"
        await server.merge(path, {"spec": {"containers": [larger]}})
        for _ in range(7):
            await server.clock.advance(10)
            usage.report(0.5)
            await server.settle()
        assert "sized 0.50 cores 67 MB 25% - - -" in shown(scene)


async def test_a_node_has_pods_of_all_namespaces_unless_one_is_named(
    there: ApiSession, capsys: Captured
) -> None:
    there = replace(there, given_namespace="kube-system")
    assert await show(there, TopOptions(what="n1", headings=False), live=False, as_json=False) == 0
    assert capsys.readouterr().out.split()[0] == "dns"


async def test_a_server_that_goes_away_is_waited_for(
    there: ApiSession, server: LocalServer, usage: Any
) -> None:
    line = Line(server)
    there = replace(there, client=line.client)
    scene = TopView(there, TopOptions(what="n1"))
    scene.clock = server.clock
    await scene.fetch()
    line.cut = True
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(scene.follow())
        await server.settle()
        assert shown(scene)[:2] == ["(nobody answers)", "POD CPU MEM"]
        line.cut = False
        await server.clock.advance(1)
        assert shown(scene)[0] == "POD CPU MEM"
        await server.clock.advance(10)
        usage.report(0.5)
        await server.settle()
        assert shown(scene)[1] == "web 0.50 cores 67 MB"
        following.cancel()


async def test_who_watched_too_long_ago_begins_anew(
    there: ApiSession, server: LocalServer, usage: Any
) -> None:
    scene = TopView(there, TopOptions(what="pods"))
    scene.clock = server.clock
    await scene.fetch()
    await server.delete("/api/v1/namespaces/default/pods/web?gracePeriodSeconds=0")
    await server.clock.advance(400)
    server.app.api.metrics.sweep()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(scene.follow())
        await server.settle()
        assert shown(scene) == ["Nothing has been reported lately in default namespace."]
        following.cancel()


async def test_a_node_that_is_not_there_is_named(there: ApiSession) -> None:
    with pytest.raises(StatusError, match='nodes "n2" not found'):
        await show(there, TopOptions(what="n2"), live=False, as_json=False)
