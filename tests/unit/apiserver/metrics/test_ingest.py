"""What nodes may leave here, and what is refused without harm to others."""

from typing import Any

import pytest

from kedge.machinery.errors import bad_request, too_large
from kedge.metrics.frame_codec import CONTENT_TYPE, MOST_BYTES, encode, path_of
from kedge.testing.local_server import LocalServer

PODS = "/apis/metrics/v1alpha1/pods"


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.fixture
async def two(nodes: Any) -> Any:
    await nodes.node("n1")
    await nodes.node("n2")
    await nodes.pod("a", "n1")
    await nodes.pod("b", "n2")
    return nodes


def counted(server: LocalServer, what: str) -> int:
    return server.app.api.metrics.counts.get(what, 0)


async def test_a_node_reports_only_for_itself(server: LocalServer, two: Any) -> None:
    body = encode(two.frame("n1", {"default/a": ["main"]}))
    assert (await two.send("n1", body, sender="n2")).status == 403
    assert (await two.send("n2", body)).status == 403
    as_admin = await server.call("POST", path_of("n1"), body, content_type=CONTENT_TYPE)
    assert as_admin.status == 403
    nobody = await server.call("POST", path_of("n1"), body, token=None)
    assert nobody.status == 401
    assert counted(server, "not-the-node") == 3
    assert counted(server, "wrong-node") == 1
    assert (await server.get(PODS))["items"] == []


async def test_pods_of_other_nodes_are_left_out_and_counted(server: LocalServer, two: Any) -> None:
    await two.report("n2", "b", cpu=0.5)
    await two.report("n1", "a", "b", "nowhere")
    listed = await server.get(PODS)
    assert names(listed) == ["a", "b"]
    assert listed["items"][1]["containers"][0]["metrics"]["10s"]["mean"]["cpu"] == "500m"
    assert counted(server, "foreign-pods") == 2


async def test_a_pod_of_the_same_name_but_another_uid_is_not_the_pod(
    server: LocalServer, two: Any
) -> None:
    two.uids["default/a"] = "an-older-one"
    await two.report("n1", "a")
    assert (await server.get(PODS))["items"] == []


def test_a_frame_too_large_to_be_read_is_counted(server: LocalServer) -> None:
    latest = server.app.api.metrics
    latest.refused_unread(path_of("n1"), too_large(MOST_BYTES))
    latest.refused_unread(path_of("n1"), bad_request("malformed HTTP request"))
    latest.refused_unread("/api/v1/pods", too_large(MOST_BYTES))
    assert counted(server, "oversized") == 1


async def test_what_is_no_frame_is_refused(server: LocalServer, two: Any) -> None:
    good = encode(two.frame("n1", {"default/a": ["main"]}))
    for body in (b"", b"{}", good[:-1], good + b"x", b"XXXX" + good[4:]):
        assert (await two.send("n1", body)).status == 400, body[:20]
    assert (await two.send("n1", good, type_="application/json")).status == 415
    assert (await two.send("n1", b"x" * (MOST_BYTES + 1))).status == 413
    assert (counted(server, "malformed"), counted(server, "oversized")) == (6, 1)
    assert (await two.send("n1", good)).status == 200


async def test_a_replayed_frame_is_refused(server: LocalServer, two: Any) -> None:
    await server.clock.advance(60)
    body = encode(two.frame("n1", {"default/a": ["main"]}))
    assert (await two.send("n1", body)).status == 200
    version = (await server.get(PODS))["metadata"]["resourceVersion"]
    again = await two.send("n1", body)
    older = await two.send("n1", encode(two.frame("n1", {}, tick=two.tick - 1)))
    assert (again.status, older.status) == (409, 409)
    assert counted(server, "replayed") == 2
    assert (await server.get(PODS))["metadata"]["resourceVersion"] == version


async def test_frames_from_the_future_and_from_long_ago_are_refused(
    server: LocalServer, two: Any
) -> None:
    future = await two.send("n1", encode(two.frame("n1", {}, tick=two.tick + 4)))
    past = await two.send("n1", encode(two.frame("n1", {}, tick=two.tick - 7)))
    assert (future.status, past.status) == (422, 422)
    assert (counted(server, "future"), counted(server, "old")) == (1, 1)
    ahead = await two.send("n1", encode(two.frame("n1", {}, tick=two.tick + 2)))
    assert ahead.status == 200


async def test_a_node_that_is_not_registered_is_told_so(server: LocalServer, two: Any) -> None:
    answer = await two.send("n9", encode(two.frame("n9", {})))
    assert answer.status == 404


async def test_other_methods_are_refused(server: LocalServer, two: Any) -> None:
    who = {"impersonate-user": "system:node:n1", "impersonate-group": "system:nodes"}
    assert (await server.call("GET", path_of("n1"), headers=who)).status == 405


async def test_a_name_that_is_no_json_does_no_harm(server: LocalServer, two: Any) -> None:
    made = two.frame("n1", {"default/a": ['"}],"x":{"']})
    assert (await two.send("n1", encode(made))).status == 200
    (pod,) = (await server.get(PODS))["items"]
    assert pod["containers"][0]["metadata"]["name"] == '"}],"x":{"'


async def test_somebody_who_watches_makes_the_node_report_each_tick(
    server: LocalServer, two: Any
) -> None:
    async def told(node: str) -> Any:
        await server.clock.advance(10)
        answer = await two.send(node, encode(two.frame(node, {}, resolution=60)))
        return answer.document

    assert await told("n1") == {}
    await server.watch(f"{PODS}?watch=true&fieldSelector=spec.nodeName%3Dn1")
    assert await told("n1") == {"resolution": 10}
    assert await told("n2") == {}


async def test_a_pod_that_is_known_cannot_be_reported_under_another_name(
    server: LocalServer, two: Any
) -> None:
    await two.report("n1", "a")
    await server.clock.advance(10)
    two.uids["default/b"] = two.uids["default/a"]
    await two.report("n1", "b", cpu=2.0)
    assert names(await server.get(PODS)) == ["a"]
    assert counted(server, "foreign-pods") == 1
