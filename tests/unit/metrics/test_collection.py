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


@pytest.mark.parametrize("deleted", [False, True])
async def test_who_missed_several_changes_of_labels_is_told_that_an_object_has_left(
    server: LocalServer, nodes: Any, deleted: bool
) -> None:
    await nodes.node("n1")
    await nodes.pod("web", "n1", app="a")
    await nodes.report("n1", "web")
    version = (await server.get(PODS))["metadata"]["resourceVersion"]
    pod = "/api/v1/namespaces/default/pods/web"
    for label in ("b", "c"):
        await server.merge(pod, {"metadata": {"labels": {"app": label}}})
    if deleted:
        await server.delete(f"{pod}?gracePeriodSeconds=0")
    events = {}
    for label in ("a", "b", "c"):
        query = f"watch=true&labelSelector=app%3D{label}&resourceVersion={version}"
        events[label] = await (await server.watch(f"{PODS}?{query}")).seen()
    assert events["a"] == [("DELETED", "web")]
    assert events["b"] == []
    assert events["c"] == ([] if deleted else [("ADDED", "web")])
