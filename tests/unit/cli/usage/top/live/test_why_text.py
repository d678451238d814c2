"""The text of the key `w`."""

from typing import Any

from kedge.cli.objects.connection import ApiSession
from kedge.cli.usage.top.live.why_text import why_text
from kedge.testing.local_server import LocalServer

MAIN = {"containers": [{"name": "main", "image": "host"}]}


async def test_parts_that_cannot_be_known_are_said(there: ApiSession, usage: Any) -> None:
    await usage.pod("default/web", MAIN)
    usage.report(0.25)
    text = await why_text(there, "default", "web")
    assert text[0] == "Where it runs"
    assert "Is it slow?" in text
    assert "  Pod:       default/web" in text


async def test_a_pod_without_a_node_is_not_slow(there: ApiSession, server: LocalServer) -> None:
    body = {"metadata": {"name": "web"}, "spec": MAIN}
    await server.post("/api/v1/namespaces/default/pods", body)
    assert "Is it slow?" not in await why_text(there, "default", "web")


async def test_a_pod_that_is_gone_is_named(there: ApiSession) -> None:
    text = await why_text(there, "default", "gone")
    assert text[0] == "Where it runs"
    assert len(text) > 1
