"""Stock kubelets are read, and what they use is served as if they had reported it."""

import asyncio
import ssl
from typing import Any

import pytest

from kedge.apiserver.metrics import kubelets
from kedge.metrics.scrape import scraper
from kedge.metrics.window_file import TrackKey
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest, Response, text_response

PODS = "/apis/metrics/v1alpha1/namespaces/default/pods"
NODES = "/apis/metrics/v1alpha1/nodes"


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def test_windows_of_a_stock_kubelet_are_served_in_both_groups(
    server: LocalServer, stage: Any
) -> None:
    await stage.node("n1")
    uid = await stage.pod("n1", "web", 0.25)
    await stage.rounds(3)
    web = await server.get(f"{PODS}/web")
    assert web["metadata"]["uid"] == uid
    assert web["metadata"]["labels"] == {"app": "web"}
    (main,) = web["containers"]
    assert main["metrics"]["10s"]["mean"] == {"cpu": "250m", "memory": "64Mi"}
    assert main["metrics"]["1d"]["starttime"] == "2030-01-01T00:00:00Z"
    node = await server.get(f"{NODES}/n1")
    assert node["machine"]["1m"]["95th"] == {"cpu": "1500m", "memory": "3Gi"}
    assert node["systemContainers"] == []
    usage = await server.get("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/web")
    assert usage["containers"] == [{"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}]


async def test_a_new_pod_is_told_of_one_tick_after_its_start(
    server: LocalServer, stage: Any
) -> None:
    await stage.node("n1")
    await stage.rounds(3)
    await stage.pod("n1", "new", 1.0)
    await stage.rounds(1)
    assert names(await server.get(PODS)) == ["new"]


async def test_several_containers_have_a_total_of_their_own(
    server: LocalServer, stage: Any
) -> None:
    await stage.node("n1")
    await stage.pod("n1", "web", 0.25, "main", "side")
    await stage.rounds(4)
    web = await server.get(f"{PODS}/web")
    assert [each["metadata"]["name"] for each in web["containers"]] == ["main", "side"]
    assert web["total"]["10s"]["mean"] == {"cpu": "500m", "memory": "128Mi"}


async def test_a_container_that_died_holds_nothing_up(server: LocalServer, stage: Any) -> None:
    kubelet = await stage.node("n1")
    await stage.pod("n1", "web", 0.25, "main", "side")
    await stage.rounds(3)
    del kubelet.uses["default", "web", "side"]
    await stage.rounds(2)
    web = await server.get(f"{PODS}/web")
    assert web["containers"][0]["metrics"]["10s"]["endtime"] == "2030-01-01T00:00:50Z"
    await stage.rounds(6)
    web = await server.get(f"{PODS}/web")
    assert [each["metadata"]["name"] for each in web["containers"]] == ["main"]


async def test_a_restarted_container_keeps_its_windows(server: LocalServer, stage: Any) -> None:
    kubelet = await stage.node("n1")
    await stage.pod("n1", "web", 2.0)
    await stage.rounds(3)
    kubelet.run("default", "web", "main", 0.5, 64 << 20)
    await stage.rounds(2)
    (main,) = (await server.get(f"{PODS}/web"))["containers"]
    assert main["metrics"]["10s"]["max"]["cpu"] == "500m"
    assert main["metrics"]["1m"]["max"]["cpu"] == "2"


async def test_31_a_collector_that_was_restarted_knows_what_was_before(
    server: LocalServer, stage: Any
) -> None:
    await stage.node("n1")
    await stage.pod("n1", "web", 2.0)
    await stage.rounds(3)
    stage.kubelets["n1"].run("default", "web", "main", 0.5, 64 << 20)
    stage.scraper = stage.another()
    await stage.rounds(3)
    (main,) = (await server.get(f"{PODS}/web"))["containers"]
    assert main["metrics"]["1h"]["max"]["cpu"] == "2"
    assert main["metrics"]["1h"]["starttime"] == "2030-01-01T00:00:00Z"


async def test_a_pod_that_is_deleted_is_forgotten_with_its_memory(
    server: LocalServer, stage: Any
) -> None:
    await stage.node("n1")
    uid = await stage.pod("n1", "web")
    await stage.rounds(3)
    assert stage.store.get(TrackKey(uid, "main")) is not None
    await server.delete("/api/v1/namespaces/default/pods/web", {"gracePeriodSeconds": 0})
    assert (await server.get(PODS))["items"] == []
    await stage.rounds(1)
    assert stage.store.get(TrackKey(uid, "main")) is None


async def test_only_the_node_s_own_pods_and_containers_count(
    server: LocalServer, stage: Any
) -> None:
    liar = await stage.node("n1")
    await stage.node("n2")
    await stage.pod("n1", "mine")
    await stage.pod("n2", "other")
    liar.run("default", "other", "main", 99.0, 1 << 40)
    liar.run("default", "nobody", "main", 99.0, 1 << 40)
    liar.run("default", "mine", "invented", 99.0, 1 << 40)
    await stage.rounds(3)
    assert names(await server.get(PODS)) == ["mine", "other"]
    (only,) = (await server.get(f"{PODS}/mine"))["containers"]
    assert only["metadata"]["name"] == "main"
    (main,) = (await server.get(f"{PODS}/other"))["containers"]
    assert main["metrics"]["10s"]["mean"]["cpu"] == "250m"
    assert stage.scraper.counts["foreign"] == 9


async def test_a_node_that_reports_by_itself_is_left_alone(
    server: LocalServer, stage: Any, nodes: Any
) -> None:
    kubelet = await stage.node("n1")
    await nodes.report("n1")
    await stage.scraper.scrape("n1")
    assert kubelet.asked == 0
    assert stage.scraper.counts["left-alone"] == 1


async def test_one_lost_reading_hides_nothing(server: LocalServer, stage: Any) -> None:
    kubelet = await stage.node("n1")
    await stage.pod("n1", "web")
    await stage.rounds(3)
    kubelet.broken = text_response("no", 500)
    await stage.rounds(2)
    assert names(await server.get(PODS)) == ["web"]
    assert (await server.get(f"{PODS}/web"))["containers"][0]["metrics"]["10s"]["endtime"] == (
        "2030-01-01T00:00:30Z"
    )
    kubelet.broken = None
    await stage.rounds(1)
    (main,) = (await server.get(f"{PODS}/web"))["containers"]
    assert main["metrics"]["1m"]["mean"]["cpu"] == "250m"
    assert stage.scraper.counts["failed"] == 2


async def test_a_kubelet_that_never_answers_holds_up_nobody(
    server: LocalServer, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scraper, "PATIENCE", 0.3)

    async def never(http: HttpRequest) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    await stage.node("n1", never)
    await stage.node("n2")
    await stage.scraper.scrape("n2")
    await server.clock.advance(10)
    slow = asyncio.get_running_loop().create_task(stage.scraper.scrape("n1"))
    await stage.scraper.scrape("n2")
    assert not slow.done()
    await server.clock.advance(10)
    await stage.scraper.scrape("n2")
    assert names(await server.get(NODES)) == ["n2"]
    await slow
    assert stage.scraper.counts["failed"] == 1


async def test_a_page_without_end_is_not_read_to_its_end(
    server: LocalServer, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelets, "MOST_BYTES", 10_000)
    kubelet = await stage.node("n1")
    kubelet.broken = Response(200, b"x" * 20_000)
    await stage.rounds(1)
    assert stage.scraper.counts == {
        "read": 0,
        "failed": 1,
        "refused": 0,
        "left-alone": 0,
        "foreign": 0,
    }


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html>",
        b"node_cpu_usage_seconds_total 1 2000000000000\n",
        b'pod_cpu_usage_seconds_total{namespace="a",pod="b"} 1\n',
    ],
    ids=["empty", "another", "future", "no-node"],
)
async def test_a_page_that_cannot_be_is_refused(stage: Any, page: bytes) -> None:
    kubelet = await stage.node("n1")
    kubelet.broken = Response(200, page)
    await stage.rounds(2)
    assert stage.scraper.counts["failed"] == 2


async def test_a_kubelet_that_another_authority_signed_is_not_believed(
    server: LocalServer, stage: Any
) -> None:
    kubelet = await stage.node("n1")
    stage.trusted = ssl.create_default_context()
    await stage.rounds(1)
    assert kubelet.asked == 0
    assert stage.scraper.counts["failed"] == 1


async def test_nodes_come_and_go_while_it_runs(server: LocalServer, stage: Any) -> None:
    await stage.node("n1")
    running = server.start(stage.scraper.run())
    await server.settle()
    kubelet = stage.kubelets["n1"]
    while not kubelet.asked:
        await server.settle()
    await server.delete("/api/v1/nodes/n1")
    await server.clock.advance(4)
    asked = kubelet.asked
    await server.clock.advance(60)
    assert kubelet.asked == asked
    running.cancel()
