"""Workloads whose pods would be refused hear of it, and only those."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.client.client import Client
from kedge.controllers import limit_ranges
from kedge.controllers.limit_ranges import REMINDER, LimitRangeController
from kedge.testing.local_server import LocalServer
from kedge.testing.workloads import workload_document

HERE = "/api/v1/namespaces/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SMALL = {"type": "Container", "max": {"cpu": "1"}}


class Cluster:
    """A server whose workloads are looked at."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.controller = LimitRangeController(server.client, server.clock)
        server.start(self.controller.run())

    async def limits(self, *items: dict[str, Any], name: str = "limits") -> None:
        body = {"metadata": {"name": name}, "spec": {"limits": list(items)}}
        await self.server.post(f"{HERE}/limitranges", body)

    async def deployment(self, cpu: str, name: str = "web", **meta: Any) -> None:
        container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": cpu}}}
        change = {"metadata": {"name": name, **meta}}
        change["spec"] = {"template": {"spec": {"containers": [container]}}}
        await self.server.post(DEPLOYMENTS, workload_document(change))

    async def events(self) -> list[tuple[str, str, int]]:
        for _ in range(3):
            await self.server.settle()
        items = (await self.server.get(f"{HERE}/events"))["items"]
        assert {(item["type"], item["reason"]) for item in items} <= {
            ("Warning", "LimitRangeViolation")
        }
        return sorted(
            (item["involvedObject"]["name"], item["message"], item["count"]) for item in items
        )


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with LocalServer.running() as server:
        cluster = Cluster(server)
        await server.settle()
        yield cluster


def told(name: str = "web", count: int = 1, limit: str = "2", most: str = "1") -> tuple[Any, ...]:
    why = f"maximum cpu usage per Container is {most}, but limit is {limit}"
    return name, f'Pods will be refused by LimitRange "limits": {why}', count


async def test_a_new_workload_is_looked_at(cluster: Cluster) -> None:
    await cluster.limits(SMALL)
    await cluster.deployment("2")
    await cluster.deployment("1", "good")
    assert await cluster.events() == [told()]


async def test_a_new_limit_range_has_all_workloads_looked_at(cluster: Cluster) -> None:
    await cluster.deployment("2")
    assert await cluster.events() == []
    await cluster.limits(SMALL)
    assert await cluster.events() == [told()]


async def test_workloads_are_listed_in_small_portions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_ranges, "PAGE", 2)
    for i in range(5):
        await cluster.deployment("2", f"web-{i}")
    asked = []
    listed = Client.list_encoded

    async def list_encoded(self: Client, *arguments: Any, **options: Any) -> Any:
        page = await listed(self, *arguments, **options)
        if options.get("limit"):
            asked.append(len(page.items))
        return page

    monkeypatch.setattr(Client, "list_encoded", list_encoded)
    await cluster.limits(SMALL)
    assert await cluster.events() == [told(f"web-{i}") for i in range(5)]
    assert [count for count in asked if count] == [2, 2, 1]


async def test_the_same_is_counted_when_it_happens_again(cluster: Cluster) -> None:
    await cluster.limits(SMALL)
    await cluster.deployment("2")
    await cluster.events()
    await cluster.server.merge(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 5}})
    assert await cluster.events() == [told(count=2)]


async def test_a_status_is_nothing_new(cluster: Cluster) -> None:
    await cluster.limits(SMALL)
    await cluster.deployment("2")
    await cluster.events()
    await cluster.server.merge(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 1}})
    await cluster.server.merge(f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "b"}}})
    assert await cluster.events() == [told()]


async def test_what_is_still_wrong_is_told_again_before_events_are_forgotten(
    cluster: Cluster,
) -> None:
    await cluster.limits(SMALL)
    await cluster.deployment("2")
    await cluster.deployment("2", "mended")
    await cluster.events()
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    mended = {"spec": {"template": {"spec": {"containers": [container]}}}}
    await cluster.server.merge(f"{DEPLOYMENTS}/mended", mended)
    await cluster.server.clock.advance(REMINDER)
    assert await cluster.events() == [told("mended"), told(count=2)]


async def test_what_another_workload_manages_is_told_of_that_one(cluster: Cluster) -> None:
    await cluster.limits(SMALL)
    owner = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": True}
    await cluster.deployment("2", ownerReferences=[owner])
    assert await cluster.events() == []


async def test_nothing_is_followed_where_there_are_no_limit_ranges(cluster: Cluster) -> None:
    def watchers() -> int:
        caches = cluster.server.app.api.cache.all()
        return sum(len(c.listeners) for c in caches if c.resource.plural == "deployments")

    before = watchers()
    await cluster.limits(SMALL)
    await cluster.events()
    assert watchers() == before + 1
    await cluster.server.delete(f"{HERE}/limitranges/limits")
    await cluster.deployment("2")
    assert await cluster.events() == []
    assert watchers() == before


async def test_other_namespaces_are_passed_over(cluster: Cluster) -> None:
    await cluster.server.post("/api/v1/namespaces", {"metadata": {"name": "strict"}})
    body = {"metadata": {"name": "limits"}, "spec": {"limits": [SMALL]}}
    await cluster.server.post("/api/v1/namespaces/strict/limitranges", body)
    await cluster.deployment("2")
    assert await cluster.events() == []


async def test_every_kind_of_workload_is_looked_at(cluster: Cluster) -> None:
    await cluster.limits(SMALL)
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"template": template}
    cron = {"schedule": "@hourly", "jobTemplate": {"spec": job}}
    batch = "/apis/batch/v1/namespaces/default"
    await cluster.server.post(f"{batch}/jobs", {"metadata": {"name": "job"}, "spec": job})
    await cluster.server.post(f"{batch}/cronjobs", {"metadata": {"name": "cron"}, "spec": cron})
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    for plural in ("statefulsets", "daemonsets", "replicasets"):
        url = f"/apis/apps/v1/namespaces/default/{plural}"
        await cluster.server.post(url, workload_document(change | {"metadata": {"name": plural}}))
    assert [name for name, _, _ in await cluster.events()] == [
        "cron",
        "daemonsets",
        "job",
        "replicasets",
        "statefulsets",
    ]
