"""Pods that run: logs, commands, streams and ports, passed on to the agent of their node."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.apiserver.admission.chain import Chain
from kedge.apiserver.subresources.pod_streams import container_of, log_parameters
from kedge.machinery.errors import StatusError
from kedge.testing.agents import FakeAgent
from kedge.testing.local_server import TOKEN, LocalAnswer, LocalServer
from kedge.testing.pods import pod_document
from kedge.web import websocket
from kedge.web.duplex import adopt
from kedge.web.message import HttpRequest, Query, Response, Sink, text_response
from kedge.web.websocket import WebSocket

PODS = "/api/v1/namespaces/default/pods"
UPGRADE = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "k"}
PATIENCE = 60


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as server:
        yield server


@pytest.fixture
async def node(server: LocalServer) -> AsyncIterator[FakeAgent]:
    agent = FakeAgent()
    await agent.listen()
    await agent.register(server)
    yield agent
    await agent.close()


async def bind(server: LocalServer, *names: str, node: str = "n") -> None:
    """A pod `p` with these containers."""
    containers = [{"name": name, "image": "i"} for name in names or ("c",)]
    spec = {"containers": containers, "nodeName": node} if node else {"containers": containers}
    await server.post(PODS, pod_document(metadata={"name": "p"}, spec=spec))


async def respond(server: LocalServer, url: str, method: str = "GET", **more: str) -> Response:
    path, _, query = url.partition("?")
    headers = {"authorization": f"Bearer {TOKEN}", "user-agent": "t", **more}
    answer = server.app.handle(HttpRequest(method, path, query, headers, peer="1.2.3.4"))
    return answer if isinstance(answer, Response) else await answer


async def body(response: Response) -> str:
    if isinstance(response.body, bytes):
        return response.body.decode()
    assert callable(response.body)
    sink = Sunk()
    async with asyncio.timeout(PATIENCE):
        await response.body(sink)
    return sink.text.decode()


class Sunk(Sink):
    """Keeps what is written."""

    def __init__(self) -> None:
        self.text = b""

    @property
    def paused(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.text += data

    async def drain(self) -> None:
        pass


async def through(response: Response, words: bytes) -> bytes:
    """What comes back when something is said on the connection that was made."""
    assert response.take_over is not None
    ours, theirs = socket.socketpair()
    near, far = await adopt(ours), await adopt(theirs)
    carrying = asyncio.ensure_future(response.take_over(far))
    async with asyncio.timeout(PATIENCE):
        near.write(words)
        heard = await near.read()
        near.write_eof()
        assert await near.read() == b""
        await carrying
    near.close()
    return heard


# Logs.


async def test_a_log_is_what_the_node_says(server: LocalServer, node: FakeAgent) -> None:
    await bind(server)
    response = await respond(server, f"{PODS}/p/log?follow=true&tailLines=3&timestamps=true")
    assert (response.status, response.content_type) == (200, "text/plain")
    assert await body(response) == "said\n"
    [asked] = node.asked
    assert asked.path == "/containerLogs/default/p/c"
    assert asked.query_string == "follow=true&timestamps=true&tailLines=3&stream=All"
    assert "authorization" not in asked.headers


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (text_response("why", 400), 400, "why"),
        (text_response("broken", 500), 500, "Internal error occurred: broken"),
        (text_response("starting", 503), 503, "starting"),
        (text_response('pod "p" does not exist', 404), 404, "the server could not find"),
    ],
)
async def test_what_a_node_refuses_is_passed_on(
    server: LocalServer, node: FakeAgent, answer: Response, code: int, message: str
) -> None:
    await bind(server)
    node.answer = answer
    refused = await server.call("GET", f"{PODS}/p/log")
    assert refused.status == code
    assert refused.message.startswith(message)


async def test_a_node_that_cannot_be_reached_is_told(server: LocalServer, node: FakeAgent) -> None:
    await bind(server)
    await node.close()
    for url, headers in ((f"{PODS}/p/log", {}), (f"{PODS}/p/exec?command=ls", UPGRADE)):
        answer = await server.call("GET", url, headers=headers)
        assert answer.status == 500
        assert answer.message == (
            f"error dialing backend: dial tcp 127.0.0.1:{node.port}: connect: connection refused"
        )


async def test_a_pod_whose_node_is_gone_is_told(server: LocalServer, node: FakeAgent) -> None:
    await bind(server, node="gone")
    answer = await server.call("GET", f"{PODS}/p/log")
    assert (answer.status, answer.message) == (404, 'nodes "gone" not found')


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("tailLines=-1", 422, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", 422, "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=0", 422, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            422,
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("stream=x", 422, 'supported values: "All", "Stderr", "Stdout"'),
        ("stream=Stdout&tailLines=1", 422, "are mutually exclusive for now"),
        ("tailLines=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("sinceTime=yesterday", 400, "yesterday"),
    ],
)
def test_nonsense_about_logs_is_refused(query: str, code: int, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        log_parameters(Query(query), "p")
    assert caught.value.code == code
    assert message in caught.value.message


# Which container.


def pod(**kinds: list[str]) -> dict[str, Any]:
    spec = {kind: [{"name": name} for name in names] for kind, names in kinds.items()}
    return {"metadata": {"name": "p"}, "spec": spec}


def test_the_only_container_need_not_be_named() -> None:
    assert container_of(pod(containers=["a"], initContainers=["i"]), "") == "a"
    assert container_of(pod(containers=["a"], ephemeralContainers=["e"]), "e") == "e"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("", "a container name must be specified for pod p, choose one of: [i a b]"),
        ("z", "container z is not valid for pod p"),
    ],
)
def test_one_of_several_must_be_named_and_be_there(asked: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        container_of(pod(containers=["a", "b"], initContainers=["i"]), asked)
    assert (caught.value.code, caught.value.message) == (400, message)


# exec, attach, port-forward.


@pytest.mark.parametrize(
    ("part", "target"),
    [
        (
            "exec?command=ls&command=-l&container=c&stdin=true&stdout=true&tty=true&stderr=false",
            "/exec/default/p/c?input=1&output=1&tty=1&command=ls&command=-l",
        ),
        ("attach?stdout=true&stderr=1", "/attach/default/p/c?output=1&error=1"),
        ("portforward?ports=80&ports=81", "/portForward/default/p?port=80%2C81"),
        ("portforward", "/portForward/default/p"),
    ],
)
async def test_what_is_asked_of_a_pod_is_asked_of_its_agent(
    server: LocalServer, node: FakeAgent, part: str, target: str
) -> None:
    await bind(server)
    response = await respond(server, f"{PODS}/p/{part}", **UPGRADE, **{"impersonate-user": ""})
    assert response.status == 101
    assert ("Upgrade", "websocket") in response.headers
    assert await through(response, b"hello") == b"HELLO"
    [asked] = node.asked
    path, _, query = target.partition("?")
    assert (asked.path, asked.query_string) == (path, query)
    assert asked.headers["sec-websocket-key"] == "k"
    assert "authorization" not in asked.headers


async def test_only_upgrades_are_passed_on(server: LocalServer, node: FakeAgent) -> None:
    await bind(server)
    for part in ("exec?command=ls", "attach", "portforward"):
        answer = await server.call("POST", f"{PODS}/p/{part}")
        assert (answer.status, answer.message) == (400, "Upgrade request required")


async def test_what_the_agent_has_against_it_reaches_the_client(
    server: LocalServer, node: FakeAgent
) -> None:
    await bind(server)
    node.answer = text_response('container not found ("c")', 500)
    response = await respond(server, f"{PODS}/p/exec?command=ls&stdout=true", **UPGRADE)
    assert (response.status, await body(response)) == (500, 'container not found ("c")')


async def impersonating(server: LocalServer, url: str, method: str, **more: str) -> LocalAnswer:
    headers = {"impersonate-user": "bob", **more}
    return await server.call(method, url, headers=headers)


async def allow(server: LocalServer, *verbs: str) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rules = [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": list(verbs)}]
    await server.post(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    }
    await server.post(f"{rbac}/rolebindings", binding)


async def test_who_may_only_read_may_not_enter(server: LocalServer, node: FakeAgent) -> None:
    await bind(server)
    await allow(server, "get")
    answer = await impersonating(server, f"{PODS}/p/exec?command=ls", "GET", **UPGRADE)
    assert answer.status == 403
    assert 'User "bob" cannot create resource "pods/exec"' in answer.message
    assert node.asked == []


async def test_admission_is_asked_about_connections(server: LocalServer, node: FakeAgent) -> None:
    await bind(server)

    class Nobody:
        name = "Nobody"
        seen: list[tuple[str, str, Any]] = []  # noqa: RUF012

        async def mutate(self, attempt: Any) -> Any:
            return attempt.object

        async def validate(self, attempt: Any) -> None:
            self.seen.append((attempt.operation, attempt.object.kind, attempt.object.content))
            raise StatusError(403, "Forbidden", "nobody enters")

    api = server.app.api
    api.admission = Chain([*api.admission.plugins, Nobody()])
    answer = await server.call("GET", f"{PODS}/p/exec?command=ls&stdin=true", headers=UPGRADE)
    assert (answer.status, answer.message) == (403, "nobody enters")
    assert Nobody.seen == [("CONNECT", "PodExecOptions", {"command": ["ls"], "stdin": True})]


async def test_a_log_can_be_read_over_a_websocket(server: LocalServer, node: FakeAgent) -> None:
    await bind(server)
    headers = {**UPGRADE, "sec-websocket-key": websocket.new_key(), "sec-websocket-version": "13"}
    for protocol, expected in (("binary.k8s.io", b"said\n"), ("base64.binary.k8s.io", b"c2FpZAo=")):
        headers["sec-websocket-protocol"] = protocol
        response = await respond(server, f"{PODS}/p/log", **headers)
        assert dict(response.headers)["Sec-WebSocket-Protocol"] == protocol
        assert response.take_over is not None
        ours, theirs = socket.socketpair()
        near, far = await adopt(ours), await adopt(theirs)
        carrying = asyncio.ensure_future(response.take_over(far))
        client = WebSocket(near, client=True)
        async with asyncio.timeout(PATIENCE):
            messages = [await client.receive() for _ in range(3)]
            await carrying
        assert messages == [b"", expected, None]
        near.close()
        far.close()


async def test_a_websocket_in_which_no_log_can_be_read_is_refused(
    server: LocalServer, node: FakeAgent
) -> None:
    await bind(server)
    headers = {**UPGRADE, "sec-websocket-key": websocket.new_key(), "sec-websocket-version": "13"}
    headers["sec-websocket-protocol"] = "v5.channel.k8s.io"
    answer = await server.call("GET", f"{PODS}/p/log", headers=headers)
    assert answer.status == 403
