"""The live view with a screen that is a list."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.cli.output.plot import UNICODE
from kedge.cli.usage.lines import TopOptions
from kedge.cli.usage.top.live import keys
from kedge.cli.usage.top.live.live_usage import LiveUsage
from kedge.cli.usage.top.live.live_view import LiveView, start_state
from kedge.cli.usage.top.live.screen_lines import ScreenLine, ScreenSize
from kedge.cli.usage.top.live.view_state import Level, Mode, Place, SortOrder, ViewState
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import LocalServer

MAIN = {"containers": [{"name": "main", "image": "host"}]}


@pytest.fixture(autouse=True)
async def pods(usage: Any, server: LocalServer) -> None:
    for name in ("shop", "ops"):
        await server.post("/api/v1/namespaces", {"metadata": {"name": name}})
    await usage.pod("default/web", MAIN)
    await usage.pod("shop/db", MAIN)
    usage.report(0.25)


class PaperScreen:
    """Keeps the last frame, and has keys to be read."""

    def __init__(self) -> None:
        self.space = ScreenSize(20, 120)
        self.lines: list[str] = []
        self.frames = 0
        self.typed: list[str] = []

    def size(self) -> ScreenSize:
        return self.space

    def draw(self, lines: Sequence[ScreenLine]) -> None:
        self.lines = [" ".join(line.text.split()) for line in lines]
        self.frames += 1

    def pressed(self) -> Iterator[str]:
        while self.typed:
            yield self.typed.pop(0)


class Viewer:
    """A view and its screen."""

    def __init__(self, view: LiveView, screen: PaperScreen, server: LocalServer) -> None:
        self.view = view
        self.screen = screen
        self.server = server

    async def press(self, *pressed: str) -> list[str]:
        """Return the frame after keys."""
        self.screen.typed += pressed
        self.view.read_keys()
        await self.server.settle()
        return self.screen.lines

    async def wait(self, seconds: float = 1) -> list[str]:
        """Return the frame after a while."""
        await self.server.clock.advance(seconds)
        await self.server.settle()
        return self.screen.lines


@asynccontextmanager
async def opened(
    there: ApiSession, server: LocalServer, state: ViewState | None = None
) -> AsyncIterator[Viewer]:
    state = state or ViewState()
    usage = LiveUsage(there.client, server.clock, namespace=state.namespace)
    screen = PaperScreen()
    view = LiveView(there, usage, screen, state, clock=server.clock, draw=UNICODE)
    async with asyncio.TaskGroup() as tasks:
        showing = tasks.create_task(view.show())
        viewer = Viewer(view, screen, server)
        await server.settle()
        await viewer.wait()
        yield viewer
        showing.cancel()


async def test_from_a_node_to_a_pod_to_its_containers_and_back(
    there: ApiSession, server: LocalServer
) -> None:
    async with opened(there, server) as viewer:
        assert viewer.screen.lines[3].startswith("n1 NotReady 2 0.25")
        pods = await viewer.press(keys.ENTER)
        assert pods[0].startswith("kedge top n1 › all namespaces")
        assert [line.split()[:2] for line in pods[3:5]] == [["default", "web"], ["shop", "db"]]
        containers = await viewer.press(keys.DOWN, keys.ENTER)
        assert containers[0].startswith("kedge top n1 › shop/db")
        assert containers[3].startswith("main Waiting")
        assert (await viewer.press(keys.ESCAPE))[0] == pods[0]
        assert (await viewer.press(keys.ESCAPE))[2].startswith("NODE")


async def test_reports_are_drawn_a_moment_later_and_together(
    there: ApiSession, server: LocalServer, usage: Any
) -> None:
    async with opened(there, server) as viewer:
        await server.clock.advance(10)
        await server.settle()
        usage.report(0.5)
        await server.settle()
        frames = viewer.screen.frames
        lines = await viewer.wait(0.3)
        assert viewer.screen.frames == frames + 1
        assert "0.50" in lines[3]
        await viewer.wait(5)
        assert viewer.screen.frames <= frames + 2


async def test_a_paused_view_keeps_its_data_until_it_goes_on(
    there: ApiSession, server: LocalServer, usage: Any
) -> None:
    async with opened(there, server) as viewer:
        await viewer.press("p")
        await server.clock.advance(10)
        usage.report(0.5)
        lines = await viewer.wait()
        assert "PAUSED" in lines[0]
        assert "0.25" in lines[3]
        assert "0.25" in (await viewer.press(keys.ENTER))[3]
        await viewer.press(keys.ESCAPE)
        assert "0.50" in (await viewer.press("p"))[3]


async def test_the_filter_works_while_it_is_typed(there: ApiSession, server: LocalServer) -> None:
    async with opened(there, server, ViewState(place=Place(Level.PODS))) as viewer:
        lines = await viewer.press("/", "s", "h", "o")
        assert lines[1] == "/sho▏"
        assert lines[3].startswith("shop db")
        assert lines[4] == ""
        assert (await viewer.press(keys.ESCAPE))[1] == "2 pods"


async def test_all_namespaces_or_one(there: ApiSession, server: LocalServer) -> None:
    state = ViewState(place=Place(Level.PODS), namespace="shop", own_namespace="shop")
    async with opened(there, server, state) as viewer:
        assert viewer.screen.lines[1] == "1 pod"
        await viewer.press("a")
        assert (await viewer.wait())[1] == "2 pods"


async def test_logs_and_why_are_shown_inside_of_the_view(
    there: ApiSession, server: LocalServer
) -> None:
    async with opened(there, server, ViewState(place=Place(Level.PODS))) as viewer:
        await viewer.press("l")
        lines = await viewer.wait()
        assert lines[0].startswith("kedge top logs default/web")
        # No agent runs in this test: the server says that it cannot reach it.
        assert lines[2] not in ("", "(no output yet)")
        await viewer.press("w")
        lines = await viewer.wait()
        assert lines[0].startswith("kedge top why default/web")
        assert lines[2] == "Where it runs"
        assert (await viewer.press("q"))[2].startswith("NAMESPACE POD")


async def test_a_pod_that_is_deleted_leaves_the_list(
    there: ApiSession, server: LocalServer
) -> None:
    async with opened(there, server, ViewState(place=Place(Level.PODS))) as viewer:
        await viewer.press(keys.END)
        await server.delete("/api/v1/namespaces/shop/pods/db?gracePeriodSeconds=0")
        lines = await viewer.wait()
        assert lines[1] == "1 pod"
        assert viewer.view.state.place.selected == "default/web"


async def test_silence_of_all_nodes_is_said(there: ApiSession, server: LocalServer) -> None:
    async with opened(there, server) as viewer:
        lines = await viewer.wait(50)
        assert lines[1].startswith("No node has reported for ")


async def test_a_request_that_the_server_rejects_ends_the_view_with_its_message(
    there: ApiSession, server: LocalServer
) -> None:
    usage = LiveUsage(there.client, server.clock, namespace="", pod_labels="!!")
    view = LiveView(there, usage, PaperScreen(), ViewState(), clock=server.clock, draw=UNICODE)
    with pytest.raises(StatusError) as raised:
        await view.show()
    assert raised.value.code == 400


async def test_keys_after_q_are_left_to_the_shell(there: ApiSession, server: LocalServer) -> None:
    async with opened(there, server) as viewer:
        viewer.screen.typed = ["q", "l", "s"]
        viewer.view.read_keys()
        assert viewer.view.state.mode is Mode.ENDED
        assert viewer.screen.typed == ["l", "s"]


async def test_a_terminal_that_is_gone_ends_the_view(
    there: ApiSession, server: LocalServer
) -> None:
    async with opened(there, server) as viewer:
        for _ in range(30):
            viewer.view.read_keys()
        assert viewer.view.state.mode is Mode.ENDED


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (TopOptions(), ViewState(own_namespace="shop")),
        (
            TopOptions(what="pods", sort_by="memory", window="1h", statistic="max"),
            ViewState(
                place=Place(Level.PODS),
                namespace="shop",
                own_namespace="shop",
                sort=SortOrder("memory", True),
                window="1h",
                statistic="max",
            ),
        ),
        (
            TopOptions(what="pods", everywhere=True, sort_by="name"),
            ViewState(place=Place(Level.PODS), own_namespace="shop", sort=SortOrder("name", False)),
        ),
        (
            TopOptions(what="node-1"),
            ViewState(place=Place(Level.PODS, node="node-1"), own_namespace="shop"),
        ),
        (
            TopOptions(what="pods", containers=True),
            ViewState(place=Place(Level.CONTAINERS), namespace="shop", own_namespace="shop"),
        ),
    ],
)
def test_flags_describe_the_first_table(look: TopOptions, expected: ViewState) -> None:
    assert start_state(look, "shop") == expected
