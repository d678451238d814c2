"""How long it is remembered what has gone."""

from typing import Any

import pytest

from kedge.testing.local_server import LocalServer

PODS = "/apis/metrics/v1alpha1/namespaces/default/pods"


@pytest.mark.parametrize(("seconds", "told"), [(290, "DELETED"), (310, "ERROR")])
async def test_deletions_are_told_of_for_five_minutes(
    server: LocalServer, nodes: Any, seconds: int, told: str
) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1")
    await nodes.report("n1", "web")
    version = (await server.get(PODS))["metadata"]["resourceVersion"]
    await server.delete("/api/v1/namespaces/default/pods/web?gracePeriodSeconds=0")
    await server.clock.advance(seconds)
    server.app.api.metrics.sweep()
    watching = await server.watch(f"{PODS}?watch=true&resourceVersion={version}")
    (event,) = await watching.events()
    assert event["type"] == told
