"""What a node answers, path by path."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kedge.node.runtime.runtime import ExecResult, RuntimeFailure
from kedge.node.server.server import NodeServer
from kedge.testing.node import NODE, LocalNode
from kedge.testing.pods import pod_document
from kedge.testing.runtime import ContainerRun
from kedge.web.message import HttpRequest, Response

MASTER = {"subject": ((("organizationName", "system:masters"),), (("commonName", "apiserver"),))}
PODS = "/api/v1/namespaces/default/pods"
PATIENCE = 60


Ask = Callable[..., Any]


@pytest.fixture
async def ask(node: LocalNode) -> AsyncIterator[Ask]:
    """Ask the node's server something, as the API server does."""
    server = NodeServer(node.server.client, node.runtime, NODE, node.clock)
    running = asyncio.get_running_loop().create_task(server.run(node.pods))
    await node.settle()

    async def ask(path: str, method: str = "GET", **headers: str) -> Response:
        path, _, query = path.partition("?")
        return await server.handle(HttpRequest(method, path, query, headers, b"", MASTER))

    yield ask
    running.cancel()
    closing = asyncio.ensure_future(server.close())
    await node.clock.advance(2)
    await closing


async def text(response: Response) -> tuple[int, str]:
    if not callable(response.body):
        assert isinstance(response.body, bytes)
        return response.status, response.body.decode()
    sink = Sink()
    async with asyncio.timeout(PATIENCE):
        await response.body(sink)
    return response.status, sink.text.decode()


class Sink:
    """Keeps what is written."""

    paused = False

    def __init__(self) -> None:
        self.text = b""
        self.more = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.text += data
        self.more.set()

    async def drain(self) -> None:
        pass

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            while text not in self.text:
                self.more.clear()
                await self.more.wait()


async def bind(node: LocalNode, **spec: Any) -> None:
    """A pod `p` on this node."""
    document = pod_document(metadata={"name": "p"}, spec={"nodeName": NODE, **spec})
    await node.server.post(PODS, document)
    await node.settle()


def say(node: LocalNode, name: str, *lines: str) -> None:
    """Write to the log of the newest container of a name."""
    path = Path(node.runtime.newest(name).log_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as log:
        for number, line in enumerate(lines):
            log.write(f"2026-01-01T00:00:{number:02d}.000000000Z stdout F {line}\n")


def container(node: LocalNode) -> str:
    return node.runtime.running()[-1]


async def test_health_and_pods_are_told(node: LocalNode, ask: Ask) -> None:
    await bind(node)
    assert await text(await ask("/healthz")) == (200, "ok")
    status, body = await text(await ask("/pods"))
    assert status == 200
    assert '"kind":"PodList"' in body
    assert '"phase":"Running"' in body
    status, body = await text(await ask("/runningpods/"))
    assert f'"name":"{container(node)}"' in body


async def test_a_container_runs_out_of_memory_on_a_node_for_tests(
    node: LocalNode, ask: Ask
) -> None:
    await bind(node)
    (pod,) = node.pods.pods()
    path = f"/testing/oomKill/{pod.metadata.uid}"
    name, killed = pod.spec.containers[0].name, list[str]()
    # Other nodes do not have the page.
    assert (await text(await ask(f"{path}/{name}", "POST")))[0] == 404

    async def exceed(container: str) -> None:
        killed.append(container)
        if len(killed) > 1:
            raise RuntimeFailure("no")

    server = NodeServer(node.server.client, node.runtime, NODE, node.clock, None, exceed)
    running = asyncio.get_running_loop().create_task(server.run(node.pods))
    await node.settle()

    async def post(path: str, method: str = "POST") -> tuple[int, str]:
        return await text(await server.handle(HttpRequest(method, path, "", {}, b"", MASTER)))

    assert await post(f"{path}/{name}") == (200, "{}")
    assert len(killed) == 1
    assert await post(f"{path}/{name}") == (500, "no")
    assert await post(f"{path}/other") == (409, 'container "other" is not running')
    assert (await post("/testing/more"))[0] == 404
    assert (await post(f"{path}/{name}", "GET"))[0] == 405
    running.cancel()


async def test_strangers_and_unknown_paths_are_refused(node: LocalNode, ask: Ask) -> None:
    assert await text(await ask("/nowhere")) == (404, "404 page not found\n")
    assert (await text(await ask("/pods", "POST")))[0] == 405
    server = NodeServer(node.server.client, node.runtime, NODE, node.clock)
    response = await server.handle(HttpRequest("GET", "/healthz"))
    assert await text(response) == (401, "Unauthorized")


async def test_until_its_pods_are_known_a_node_asks_for_patience(node: LocalNode) -> None:
    server = NodeServer(node.server.client, node.runtime, NODE, node.clock)
    request = HttpRequest("GET", "/pods", "", {}, b"", MASTER)
    assert (await server.handle(request)).status == 503


async def test_a_log_is_shown_with_what_the_query_asks_for(node: LocalNode, ask: Ask) -> None:
    await bind(node)
    name = container(node)
    say(node, name, "one", "two", "three")
    log = f"/containerLogs/default/p/{name}"
    assert await text(await ask(log)) == (200, "one\ntwo\nthree\n")
    assert await text(await ask(f"{log}?tailLines=1")) == (200, "three\n")
    assert await text(await ask(f"{log}?limitBytes=5")) == (200, "one\nt")
    since = "sinceTime=2026-01-01T00:00:01Z"
    assert await text(await ask(f"{log}?{since}&timestamps=true&tailLines=2")) == (
        200,
        "2026-01-01T00:00:01.000000000Z two\n2026-01-01T00:00:02.000000000Z three\n",
    )
    assert await text(await ask(f"{log}?stream=Stderr")) == (200, "")
    for wrong, code in (
        ("tailLines=x", 400),
        ("tailLines=-1", 422),
        ("limitBytes=0", 422),
        ("stream=x", 400),
        ("sinceTime=yesterday", 400),
    ):
        assert (await ask(f"{log}?{wrong}")).status == code


async def test_what_has_no_log_is_told_in_upstreams_words(node: LocalNode, ask: Ask) -> None:
    await bind(node)
    name = container(node)
    assert await text(await ask("/containerLogs/default/q/c")) == (404, 'pod "q" does not exist')
    assert await text(await ask("/containerLogs/default/p/nope")) == (
        404,
        'container "nope" not found in pod "p"',
    )
    assert await text(await ask(f"/containerLogs/default/p/{name}?previous=true")) == (
        400,
        f'previous terminated container "{name}" in pod "p" not found',
    )


async def test_a_container_that_waits_says_what_for(node: LocalNode, ask: Ask) -> None:
    node.images.gates["busy"] = asyncio.Event()
    await bind(node, containers=[{"name": "c", "image": "busy"}])
    assert await text(await ask("/containerLogs/default/p/c")) == (
        400,
        'container "c" in pod "p" is waiting to start: ContainerCreating',
    )


async def test_the_former_run_is_kept_for_those_who_ask(node: LocalNode, ask: Ask) -> None:
    node.runtime.lives["c"] = [ContainerRun(exit_code=1, after=1), ContainerRun()]
    await bind(node, containers=[{"name": "c", "image": "i"}])
    say(node, "c", "first")
    await node.clock.advance(1)
    await node.settle()
    await node.clock.advance(10)
    await node.settle()
    assert len(node.runtime.of("c")) == 2
    say(node, "c", "second")
    assert await text(await ask("/containerLogs/default/p/c")) == (200, "second\n")
    assert await text(await ask("/containerLogs/default/p/c?previous=true")) == (200, "first\n")


async def test_a_follower_sees_what_comes_until_the_container_ends(
    node: LocalNode, ask: Ask
) -> None:
    await bind(node, restartPolicy="Never")
    name = container(node)
    say(node, name, "before")
    response = await ask(f"/containerLogs/default/p/{name}?follow=true")
    sink = Sink()
    following = asyncio.ensure_future(response.body(sink))
    await sink.until(b"before\n")
    say(node, name, "after")
    await sink.until(b"after\n")
    say(node, name, "last words")
    node.runtime.end(name)
    async with asyncio.timeout(PATIENCE):
        await following
    assert sink.text == b"before\nafter\nlast words\n"


async def test_containers_that_do_not_run_cannot_be_entered(node: LocalNode, ask: Ask) -> None:
    await bind(node)
    for path in ("/exec/default/p/nope?command=ls&output=1", "/attach/default/p/nope?output=1"):
        assert await text(await ask(path)) == (500, 'container not found ("nope")')
    name = container(node)
    assert await text(await ask(f"/exec/default/p/{name}?command=ls&output=1")) == (
        400,
        "Upgrade request required",
    )
    assert (await ask(f"/exec/default/p/other-uid/{name}?command=ls&output=1")).status == 404


async def test_a_command_can_be_run_to_its_end(node: LocalNode, ask: Ask) -> None:
    await bind(node)
    name = container(node)
    node.runtime.commands["ls", "-l"] = ExecResult(exit_code=0, stdout=b"files\n")
    node.runtime.commands[("false",)] = ExecResult(exit_code=1, stderr=b"oh")
    assert await text(await ask(f"/run/default/p/{name}?cmd=ls+-l", "POST")) == (200, "files\n")
    assert await text(await ask(f"/run/default/p/{name}?cmd=false", "POST")) == (
        500,
        "command terminated with exit code 1: oh",
    )


async def test_usage_is_told_once_something_has_been_measured(node: LocalNode) -> None:
    server = NodeServer(node.server.client, node.runtime, NODE, node.clock)
    running = asyncio.get_running_loop().create_task(server.run(node.pods))
    await node.settle()

    async def ask(path: str, method: str = "GET") -> tuple[int, str]:
        return await text(await server.handle(HttpRequest(method, path, "", {}, b"", MASTER)))

    assert await ask("/stats/summary") == (503, "usage has not been measured yet")
    known = {"/stats/summary": Response(200, b"{}")}
    server.serve_usage(lambda request: known.get(request.path))
    assert await ask("/stats/summary") == (200, "{}")
    assert await ask("/stats/summary", "POST") == (200, "{}")
    assert await ask("/metrics/other") == (404, "404 page not found\n")
    assert (await ask("/stats/summary", "DELETE"))[0] == 405
    running.cancel()
    closing = asyncio.ensure_future(server.close())
    await node.clock.advance(2)
    await closing
