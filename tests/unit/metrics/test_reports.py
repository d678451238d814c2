"""How long what was reported counts."""

from typing import Any

import pytest

from kedge.machinery.quantity import Quantity
from kedge.metrics.detail_windows import NONE_KNOWN, SIZE, DetailWindows
from kedge.metrics.frame import WIDTH
from kedge.metrics.frame_codec import encode
from kedge.metrics.serve import lists
from kedge.testing.local_server import LocalServer

PODS = "/apis/metrics/v1alpha1/namespaces/default/pods"
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.fixture
async def one(nodes: Any) -> Any:
    await nodes.node("n1")
    await nodes.pod("a", "n1", app="a")
    await nodes.pod("job", "n1")
    await nodes.report("n1", "a", "job")
    return nodes


async def test_one_lost_report_hides_nothing(server: LocalServer, one: Any) -> None:
    await server.clock.advance(50)
    server.app.api.metrics.sweep()
    listed = await server.get(PODS)
    assert names(listed) == ["a", "job"]
    assert listed["items"][0]["containers"][0]["metrics"]["10s"]["endtime"].endswith("00:00:00Z")


async def test_a_silent_node_is_no_longer_listed_but_its_last_word_can_be_read(
    server: LocalServer, one: Any
) -> None:
    watching = await server.watch(f"{PODS}?watch=true")
    await server.clock.advance(70)
    server.app.api.metrics.sweep()
    assert names(await server.get(PODS)) == []
    assert names(await server.get("/apis/metrics/v1alpha1/nodes")) == []
    assert names(await server.get(USAGE)) == []
    assert (await server.get(f"{PODS}/a"))["metadata"]["name"] == "a"
    assert (await server.call("GET", f"{USAGE}/a")).status == 404
    assert (await watching.seen())[2:] == [("DELETED", "a"), ("DELETED", "job")]
    await one.report("n1", "a")
    assert names(await server.get(PODS)) == ["a"]
    assert (await watching.seen())[-1] == ("ADDED", "a")


async def test_a_slow_node_is_given_three_of_its_reports(server: LocalServer, one: Any) -> None:
    await server.clock.advance(10)
    await one.report("n1", "a", resolution=60)
    await server.clock.advance(170)
    server.app.api.metrics.sweep()
    assert names(await server.get(PODS)) == ["a", "job"]
    await server.clock.advance(20)
    server.app.api.metrics.sweep()
    assert names(await server.get(PODS)) == []


async def test_the_last_word_of_a_finished_pod_stays_until_the_pod_is_deleted(
    server: LocalServer, one: Any
) -> None:
    ended = {"default/job": one.tick}
    for _ in range(7):
        await server.clock.advance(10)
        await one.report("n1", "a", "job", ended=ended)
    assert names(await server.get(PODS)) == ["a"]
    job = await server.get(f"{PODS}/job")
    assert job["containers"][0]["metrics"]["1d"]["endtime"] == "2030-01-01T00:00:00Z"
    await server.delete("/api/v1/namespaces/default/pods/job", {"gracePeriodSeconds": 0})
    assert (await server.call("GET", f"{PODS}/job")).status == 404


async def test_a_pod_that_its_node_no_longer_mentions_fades(server: LocalServer, one: Any) -> None:
    for _ in range(7):
        await server.clock.advance(10)
        await one.report("n1", "a")
    assert names(await server.get(PODS)) == ["a"]


async def test_a_deleted_node_takes_its_documents_along(server: LocalServer, one: Any) -> None:
    await server.delete("/api/v1/nodes/n1")
    assert names(await server.get("/apis/metrics/v1alpha1/nodes")) == []
    assert names(await server.get(PODS)) == []


async def test_labels_follow_the_pod_at_once(server: LocalServer, one: Any) -> None:
    watching = await server.watch(f"{PODS}?watch=true&labelSelector=app%3Da")
    await server.merge("/api/v1/namespaces/default/pods/a", {"metadata": {"labels": {"app": "b"}}})
    assert names(await server.get(f"{PODS}?labelSelector=app%3Da")) == []
    assert names(await server.get(f"{PODS}?labelSelector=app%3Db")) == ["a"]
    assert await watching.seen() == [("ADDED", "a"), ("DELETED", "a")]
    await server.merge("/api/v1/namespaces/default/pods/a", {"metadata": {"labels": {"app": "a"}}})
    assert (await watching.seen())[-1] == ("ADDED", "a")


async def test_the_same_bytes_serve_all_who_ask_before_anything_changes(
    server: LocalServer, one: Any
) -> None:
    pods = server.app.api.metrics.pods
    await server.get(PODS)
    (first,) = pods.lists.values()
    await server.get(PODS)
    assert next(iter(pods.lists.values())) is first
    await server.clock.advance(10)
    await one.report("n1", "a")
    assert pods.lists == {}


async def test_a_finished_pod_keeps_only_its_own_rows(server: LocalServer, one: Any) -> None:
    await server.clock.advance(10)
    live = one.frame("n1", {"default/a": ["main"], "default/job": ["main", "side"]})
    await one.send("n1", encode(live))
    before = await server.get(f"{PODS}/job")
    await server.clock.advance(10)
    await one.report("n1", "a")
    entry = server.app.api.metrics.pods.get("default", "job")
    assert entry is not None
    assert len(entry.frame.values) == 3 * WIDTH
    entry.stamp(entry.version)
    assert await server.get(f"{PODS}/job") == before


async def test_reports_about_the_same_pods_change_only_what_was_measured(
    server: LocalServer, one: Any
) -> None:
    """Also of those that the API has dropped meanwhile, and of those that come again."""

    def frame(cpu: float) -> bytes:
        made = one.frame("n1", {"default/a": ["main"], "default/job": ["main"]}, since=1, cpu=cpu)
        return encode(made._replace(pods=[p._replace(end_tick=0) for p in made.pods]))

    shown = []
    for cpu in (0.1, 0.2, 0.3):
        await server.clock.advance(10)
        assert (await one.send("n1", frame(cpu))).status == 200
        items = (await server.get(USAGE))["items"]
        shown.append([item["containers"][0]["usage"]["cpu"] for item in items])
    assert [[each[:4] for each in both] for both in shown] == [
        ["1000", "1000"],
        ["2000", "2000"],
        ["3000", "3000"],
    ]
    await server.delete("/api/v1/namespaces/default/pods/job", {"gracePeriodSeconds": 0})
    await server.clock.advance(10)
    assert (await one.send("n1", frame(0.4))).status == 200
    assert names(await server.get(PODS)) == ["a"]
    assert server.app.api.metrics.counts["foreign-pods"] == 1
    await server.clock.advance(70)
    server.app.api.metrics.sweep()
    assert names(await server.get(PODS)) == []
    assert (await one.send("n1", frame(0.5))).status == 200
    assert names(await server.get(PODS)) == ["a"]


async def test_objects_of_long_lists_are_written_before_they_are_asked_for_again(
    server: LocalServer, one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "KEPT_UP_TO", 1)

    async def written() -> list[bool]:
        live = one.frame("n1", {"default/a": ["main"]})
        pods = [pod._replace(end_tick=0) for pod in live.pods]
        await one.send("n1", encode(live._replace(pods=pods)))
        entry = server.app.api.metrics.pods.get("default", "a")
        assert entry is not None
        return [entry.kept_rest is not None, entry.kept_usage is not None]

    await server.clock.advance(10)
    assert await written() == [False, False]
    await server.get(USAGE)
    await server.clock.advance(10)
    assert await written() == [False, True]
    await server.get(PODS)
    await server.clock.advance(10)
    assert await written() == [True, True]
    await server.clock.advance(40)
    assert await written() == [False, False]


async def test_what_was_written_of_long_lists_is_let_go_when_nobody_asks_again(
    server: LocalServer, one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "KEPT_UP_TO", 1)
    await server.clock.advance(10)
    await one.report("n1", "a", "job")
    metrics = server.app.api.metrics
    entry = metrics.pods.get("default", "a")
    assert entry is not None
    listed = await server.get(PODS)
    metrics.sweep()
    assert entry.kept_rest is not None, "somebody may ask again"
    await server.clock.advance(30)
    metrics.sweep()
    assert entry.kept_rest is None
    assert (await server.get(PODS))["items"] == listed["items"]


async def test_what_was_written_of_the_pods_of_one_node_is_not_kept(
    server: LocalServer, one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.clock.advance(10)
    await one.report("n1", "a", "job")
    entry = server.app.api.metrics.pods.get("default", "a")
    assert entry is not None
    listed = await server.get(f"{PODS}?fieldSelector=spec.nodeName%3Dn1")
    assert "a" in names(listed)
    assert (entry.kept_rest, entry.kept_metadata) == (None, None)
    # While lists of all objects are kept ready, what they need is not dropped.
    monkeypatch.setattr(lists, "KEPT_UP_TO", 1)
    await server.get(PODS)
    await server.get(f"{PODS}?fieldSelector=spec.nodeName%3Dn1")
    assert entry.kept_rest is not None


CLAIMS = "/apis/metrics/v1alpha1/namespaces/default/persistentvolumeclaims"


async def claiming_pod(nodes: Any, name: str, node: str, claim: str) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    spec = {"containers": [{"name": "main", "image": "i"}], "volumes": [volume], "nodeName": node}
    body = {"metadata": {"name": name}, "spec": spec}
    made = await nodes.server.post("/api/v1/namespaces/default/pods", body)
    nodes.uids[f"default/{name}"] = made["metadata"]["uid"]


async def report_claims(nodes: Any, node: str, pod: str, *claims: str) -> None:
    """Report a pod, and claims: pods without containers, with bytes and inodes."""
    named: dict[str, list[str]] = {f"default/{pod}": ["main"]}
    frame = nodes.frame(node, named | {f"default/{each}": [] for each in claims})
    memory = memoryview(bytearray(SIZE))
    windows = DetailWindows(memory)
    values = list(NONE_KNOWN)
    values[0], values[1] = float(5 << 20), 7.0
    windows.put(frame.end_tick, values)
    rows = len(frame.values) // WIDTH
    details = [windows.row()] * rows
    answer = await nodes.send(node, encode(frame._replace(details=details)))
    assert answer.status == 200, answer.text


async def test_a_claim_is_reported_by_the_node_of_its_pod(server: LocalServer, nodes: Any) -> None:
    await nodes.node("n1")
    await claiming_pod(nodes, "a", "n1", "data")
    await report_claims(nodes, "n1", "a", "data", "foreign")
    assert names(await server.get(CLAIMS)) == ["data"]
    assert names(await server.get(PODS)) == ["a"]
    found = await server.get(f"{CLAIMS}/data")
    assert found["kind"] == "PersistentVolumeClaim"
    for window in ("10s", "1m", "1h", "1d"):
        for statistic in ("mean", "max", "95th"):
            usage = found["usage"][window][statistic]
            assert Quantity.parse(usage["storage"]).value() == pytest.approx(5 << 20, rel=0.01)
            assert usage["inodes"] == "7"
    assert server.app.api.metrics.counts["foreign-pods"] == 1


async def test_a_claim_that_is_not_mounted_any_more_is_gone(
    server: LocalServer, nodes: Any
) -> None:
    await nodes.node("n1")
    await claiming_pod(nodes, "a", "n1", "data")
    await report_claims(nodes, "n1", "a", "data")
    watching = await server.watch(f"{CLAIMS}?watch=true")
    await server.clock.advance(10)
    await report_claims(nodes, "n1", "a")
    assert names(await server.get(CLAIMS)) == []
    assert (await watching.seen())[-1] == ("DELETED", "data")


def reporter_of(server: LocalServer, claim: str) -> str:
    found = server.app.api.metrics.claims.get("default", claim)
    return found.node if found is not None else ""


async def test_a_shared_claim_is_reported_by_one_node_at_a_time(
    server: LocalServer, nodes: Any
) -> None:
    for node in ("n1", "n2"):
        await nodes.node(node)
        await claiming_pod(nodes, f"on-{node}", node, "data")
        await report_claims(nodes, node, f"on-{node}", "data")
    assert reporter_of(server, "data") == "n1"
    await server.clock.advance(10)
    await report_claims(nodes, "n1", "on-n1")
    await report_claims(nodes, "n2", "on-n2", "data")
    assert reporter_of(server, "data") == "n2"


async def test_claims_have_no_further_percentiles(server: LocalServer) -> None:
    answer = await server.call("GET", f"{CLAIMS}?percentiles=50")
    assert answer.status == 400
