"""Watches that make nodes report faster, and those that do not."""

from typing import Any

import msgspec
import pytest

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
