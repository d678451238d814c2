"""Logs and streams of pods on simulated nodes."""

from collections.abc import AsyncIterator

import pytest

from kedge.apiserver.subresources.simulated_pods import shown_log
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import pod_document
from kedge.web.message import Query

POD = "/api/v1/namespaces/default/pods/p"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as server:
        labels = {"simulation.kedge.dev/node": "true"}
        await server.post("/api/v1/nodes", {"metadata": {"name": "n", "labels": labels}})
        yield server


async def bind(server: LocalServer, **annotations: str) -> None:
    """A pod `p` on the simulated node."""
    marks = {f"simulation.kedge.dev/{name}": value for name, value in annotations.items()}
    meta = {"name": "p", "annotations": marks}
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    await server.post(POD.rpartition("/")[0], pod_document(metadata=meta, spec=spec))


async def test_an_annotation_is_the_log(server: LocalServer) -> None:
    await bind(server, logs="one\ntwo")
    answer = await server.call("GET", f"{POD}/log")
    assert (answer.status, answer.text) == (200, "one\ntwo\n")


async def test_a_pod_without_a_log_says_how_to_get_one(server: LocalServer) -> None:
    await bind(server)
    answer = await server.call("GET", f"{POD}/log")
    assert answer.status == 400
    assert answer.message == (
        "pod p is simulated and has no log: the annotation simulation.kedge.dev/logs sets one"
    )


@pytest.mark.parametrize("what", ["exec?command=ls&stdout=1", "attach", "portforward?ports=80"])
async def test_nothing_can_be_entered(server: LocalServer, what: str) -> None:
    await bind(server)
    answer = await server.call("POST", f"{POD}/{what}")
    assert (answer.status, answer.message) == (
        400,
        "node n is simulated: no container of its pods runs, and it has no kubelet",
    )


async def test_a_proxy_to_a_simulated_pod_is_refused(server: LocalServer) -> None:
    await bind(server)
    await server.merge(f"{POD}/status", {"status": {"podIP": "198.18.0.9"}})
    answer = await server.call("GET", f"{POD}:80/proxy/")
    assert (answer.status, answer.message) == (
        400,
        "nothing listens at 198.18.0.9: the pod is simulated",
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "one\ntwo\n"),
        ("tailLines=1", "two\n"),
        ("tailLines=0", ""),
        ("limitBytes=2", "on"),
        ("tailLines=1&timestamps=true", "T two\n"),
    ],
)
def test_options_of_a_log_count(query: str, expected: str) -> None:
    assert shown_log("one\ntwo", Query(query), "T") == expected.encode()


def test_only_a_line_feed_ends_a_line() -> None:
    assert shown_log("one\ntwo\u2028three\r\n", Query("tailLines=1"), "T") == (
        "two\u2028three\r\n".encode()
    )
