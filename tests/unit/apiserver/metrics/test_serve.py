"""Watches that make nodes report faster, and those that do not; lists without details."""

from typing import Any

import msgspec
import pytest

from kedge.metrics.detail_windows import NONE_KNOWN, SIZE, DetailWindows
from kedge.metrics.frame import WIDTH, Frame
from kedge.metrics.frame_codec import FrameReply, encode
from kedge.testing.local_server import TOKEN, LocalServer, RecordingSink
from kedge.web.message import HttpRequest, Response


async def watch(server: LocalServer, path: str, query: str) -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "user-agent": "kube-scheduler/v1.36.4"}
    response = server.app.handle(HttpRequest("GET", path, f"watch=true{query}", headers, b""))
    assert isinstance(response, Response)
    stream = response.body
    assert callable(stream)

    async def run() -> None:
        await stream(RecordingSink())

    server.start(run())
    await server.settle()


@pytest.mark.parametrize(
    ("query", "asked"), [("", 10), ("&hurryNodes=true", 10), ("&hurryNodes=false", 0)]
)
async def test_nodes_report_each_tick_for_a_watch_that_does_not_decline(
    server: LocalServer, nodes: Any, query: str, asked: int
) -> None:
    await nodes.node("n1")
    await watch(server, "/apis/metrics/v1alpha1/nodes", query)
    answer = await nodes.send("n1", encode(nodes.frame("n1", {}, resolution=60)))
    assert msgspec.json.decode(answer.text, type=FrameReply).resolution == asked


def with_details(frame: Frame) -> Frame:
    """The frame with a detail of each row."""
    windows = DetailWindows(memoryview(bytearray(SIZE)))
    windows.put(frame.end_tick, [float(5 << 20), *NONE_KNOWN[1:]])
    return frame._replace(details=[windows.row()] * (len(frame.values) // WIDTH))


@pytest.mark.parametrize(
    ("path", "query"),
    [("nodes", ""), ("pods", ""), ("pods", "fieldSelector=spec.nodeName=n1"), ("deployments", "")],
)
async def test_a_list_without_details_has_the_same_cpu_and_memory(
    server: LocalServer, nodes: Any, path: str, query: str
) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1")
    frame = with_details(nodes.frame("n1", {"default/web": ["main", "side"]}))
    assert (await nodes.send("n1", encode(frame))).status == 200
    list_ = f"/apis/metrics/v1alpha1/{path}?{query}"
    for _ in range(2):
        whole = await server.get(list_)
        core = await server.get(f"{list_}&details=false")
        assert await server.get(f"{list_}&details=true") == whole
        assert without(whole, "ephemeral-storage") == core
        assert (whole == core) == (path == "deployments")


def without(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return [without(each, key) for each in value]
    if isinstance(value, dict):
        return {name: without(each, key) for name, each in value.items() if name != key}
    return value
