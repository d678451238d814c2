"""Who reads, and what that means for nodes."""

from typing import Any

import msgspec
import pytest

from kedge.metrics import frame as wire
from kedge.testing.local_server import TOKEN, LocalServer, RecordingSink
from kedge.web.message import HttpRequest, Response


async def watch(server: LocalServer, path: str, agent: str) -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "user-agent": agent}
    response = server.app.handle(HttpRequest("GET", path, "watch=true", headers, b""))
    assert isinstance(response, Response)
    stream = response.body
    assert callable(stream)

    async def run() -> None:
        await stream(RecordingSink())

    server.start(run())
    await server.settle()


@pytest.mark.parametrize(
    ("agent", "asked"), [("kubectl/v1.36.4", 10), ("kube-scheduler/v1.36.4", 0)]
)
async def test_nodes_hurry_for_all_who_watch_but_the_scheduler(
    server: LocalServer, nodes: Any, agent: str, asked: int
) -> None:
    await nodes.node("n1")
    await watch(server, "/apis/metrics/v1alpha1/nodes", agent)
    answer = await nodes.send("n1", wire.encode(nodes.frame("n1", {}, resolution=60)))
    assert msgspec.json.decode(answer.text, type=wire.Answer).resolution == asked
