"""HTTP through the API server, to nodes and to pods."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kedge.apiserver.subresources.proxy import split
from kedge.machinery.errors import StatusError
from kedge.testing.agents import FakeAgent
from kedge.testing.local_server import TOKEN, LocalServer, RecordingSink
from kedge.testing.pods import pod_document
from kedge.web.message import HttpRequest, Response, text_response

PODS = "/api/v1/namespaces/default/pods"


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


async def ask(
    server: LocalServer, url: str, method: str = "GET", body: bytes = b"", **more: str
) -> tuple[Response, list[bytes]]:
    """The answer, and the lines of its body."""
    path, _, query = url.partition("?")
    headers = {"authorization": f"Bearer {TOKEN}", "host": "api", "accept": "text/html", **more}
    answer = server.app.handle(HttpRequest(method, path, query, headers, body, peer="1.2.3.4"))
    response = answer if isinstance(answer, Response) else await answer
    if not callable(response.body):
        assert isinstance(response.body, bytes)
        return response, response.body.splitlines()
    sink = RecordingSink()
    async with asyncio.timeout(10):
        await response.body(sink)
    return response, sink.lines


async def test_a_request_reaches_the_agent_of_a_node(server: LocalServer, node: FakeAgent) -> None:
    url = "/api/v1/nodes/n/proxy/run/a%2Fb/?cmd=ls%20-l"
    response, lines = await ask(server, url, "POST", b"body", **{"x-own": "1", "te": "trailers"})
    assert (response.status, lines) == (200, [b"said"])
    [asked] = node.asked
    assert (asked.method, asked.path, asked.query_string) == ("POST", "/run/a%2Fb/", "cmd=ls%20-l")
    assert asked.body == b"body"
    assert asked.headers["x-own"] == "1"
    assert asked.headers["x-forwarded-for"] == "1.2.3.4"
    # What proves who the client is, is not for others.
    assert not {"authorization", "te"} & asked.headers.keys()


async def test_answers_keep_their_status_and_redirects_stay_below_the_proxy(
    server: LocalServer, node: FakeAgent
) -> None:
    node.answer = text_response("elsewhere", 302)
    node.answer.headers.append(("Location", "/pods/"))
    response, _ = await ask(server, "/api/v1/nodes/n/proxy/pods")
    assert response.status == 302
    assert dict(response.headers)["Location"] == "/api/v1/nodes/n/proxy/pods/"


async def test_other_ports_of_a_node_are_not_reached(server: LocalServer, node: FakeAgent) -> None:
    _, lines = await ask(server, f"/api/v1/nodes/n:{node.port}/proxy/healthz")
    assert lines == [b"said"]
    refused = await server.call("GET", "/api/v1/nodes/n:22/proxy/")
    assert (refused.status, refused.message) == (400, "address not allowed")


async def pod_at(server: LocalServer, ip: str) -> None:
    await server.post(PODS, pod_document(metadata={"name": "p"}, spec={"nodeName": "n"}))
    status = {"podIP": ip, "podIPs": [{"ip": ip}], "phase": "Running"}
    await server.merge(f"{PODS}/p/status", {"status": status})


@pytest.mark.parametrize("ip", ["127.0.0.1", "0.0.0.0", "169.254.1.1", "224.0.0.1", "::1"])
async def test_a_pod_that_claims_the_servers_own_machine_is_not_reached(
    server: LocalServer, node: FakeAgent, ip: str
) -> None:
    await pod_at(server, ip)
    refused = await server.call("GET", f"{PODS}/p:{node.port}/proxy/")
    assert (refused.status, refused.message) == (400, "address not allowed")


async def test_pods_that_are_not_there_or_nowhere_are_told(
    server: LocalServer, node: FakeAgent
) -> None:
    missing = await server.call("GET", f"{PODS}/none:80/proxy/")
    assert (missing.status, missing.message) == (404, 'pods "none" not found')
    await server.post(PODS, pod_document(metadata={"name": "q"}))
    nowhere = await server.call("GET", f"{PODS}/q/proxy/")
    assert (nowhere.status, nowhere.message) == (400, "address not allowed")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("web", ("", "web", "")),
        ("web:80", ("", "web", "80")),
        ("https:web:443", ("https", "web", "443")),
        ("http:web:", ("http", "web", "")),
    ],
)
def test_a_name_may_come_with_scheme_and_port(text: str, parts: tuple[str, str, str]) -> None:
    assert split(text, "pod") == parts


@pytest.mark.parametrize(
    "text", ["", ":80", "web:http", "web:0", "web:70000", "ftp:web:21", "a:b:c:d"]
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        split(text, "pod")
    assert (caught.value.code, caught.value.message) == (400, f'invalid pod request "{text}"')
