"""HTTP through the API server, to nodes, pods and Services."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import msgspec
import pytest

from kedge.api.core_v1 import endpoints
from kedge.apiserver.subresources import proxy_target
from kedge.testing.agents import FakeAgent
from kedge.testing.local_server import TOKEN, LocalServer, RecordingSink
from kedge.testing.pods import pod_document
from kedge.web.message import HttpRequest, Response, text_response

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"


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


@pytest.fixture
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept loopback addresses: the fake servers listen there."""
    monkeypatch.setattr(proxy_target, "check_address", lambda text: text)


async def ask(
    server: LocalServer, url: str, method: str = "GET", body: bytes = b"", **more: str
) -> tuple[Response, list[bytes]]:
    """The answer and its body, as a list that is empty without one."""
    path, _, query = url.partition("?")
    headers = {"authorization": f"Bearer {TOKEN}", "host": "api", "accept": "text/html", **more}
    answer = server.app.handle(HttpRequest(method, path, query, headers, body, peer="1.2.3.4"))
    response = answer if isinstance(answer, Response) else await answer
    if not callable(response.body):
        assert isinstance(response.body, bytes)
        return response, response.body.splitlines()
    sink = ByteSink()
    async with asyncio.timeout(10):
        await response.body(sink)
    return response, [sink.content.rstrip(b"\n")] if sink.content else []


class ByteSink(RecordingSink):
    """Records the bytes as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.content = b""

    def write(self, data: bytes) -> None:
        self.content += data


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


async def test_other_ports_of_the_servers_own_machine_are_not_reached(
    server: LocalServer, node: FakeAgent
) -> None:
    _, lines = await ask(server, f"/api/v1/nodes/n:{node.port}/proxy/healthz")
    assert lines == [b"said"]
    refused = await server.call("GET", "/api/v1/nodes/n:22/proxy/")
    assert (refused.status, refused.message) == (400, "address not allowed")


async def test_other_ports_of_a_node_are_reached_without_tls(
    server: LocalServer, node: FakeAgent, reachable: None
) -> None:
    other = FakeAgent()
    await other.listen()
    _, lines = await ask(server, f"/api/v1/nodes/n:{other.port}/proxy/healthz")
    await other.close()
    assert (lines, len(other.asked), len(node.asked)) == ([b"said"], 1, 0)


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


@pytest.fixture
async def web(server: LocalServer, node: FakeAgent, reachable: None) -> FakeAgent:
    """A pod whose only port is that of the fake agent."""
    await pod_at(server, "127.0.0.1")
    return node


async def test_every_method_reaches_a_pod(server: LocalServer, web: FakeAgent) -> None:
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    for method in methods:
        response, _ = await ask(server, f"{PODS}/p:{web.port}/proxy/a/b?c=d", method)
        assert response.status == 200
    assert [each.method for each in web.asked] == methods
    assert {(each.path, each.query_string) for each in web.asked} == {("/a/b", "c=d")}


async def test_a_head_has_the_length_of_the_body_and_no_body(
    server: LocalServer, web: FakeAgent
) -> None:
    response, lines = await ask(server, f"{PODS}/p:{web.port}/proxy/", "HEAD")
    assert (response.length, lines) == (5, [])


async def test_without_a_slash_reads_are_redirected_and_other_methods_are_not(
    server: LocalServer, web: FakeAgent
) -> None:
    path = f"{PODS}/p:{web.port}/proxy"
    for method in ("GET", "HEAD"):
        response, _ = await ask(server, f"{path}?method={method}", method)
        assert (response.status, response.headers) == (
            301,
            [("Location", f"{path}/?method={method}")],
        )
    assert web.asked == []
    await ask(server, f"{path}?method=POST", "POST")
    assert (web.asked[0].path, web.asked[0].query_string) == ("/", "method=POST")


async def test_the_server_in_the_pod_learns_how_it_was_asked(
    server: LocalServer, web: FakeAgent
) -> None:
    path = f"{PODS}/p:{web.port}/proxy/x"
    headers = {"x-forwarded-for": "9.9.9.9", "connection": "x-hop", "x-hop": "1"}
    await ask(server, path, "GET", b"", **headers)
    [asked] = web.asked
    assert {name: asked.headers[name] for name in asked.headers if name != "accept"} == {
        "host": "api",
        "x-forwarded-for": "9.9.9.9, 1.2.3.4",
        "x-forwarded-host": "api",
        "x-forwarded-proto": "https",
        "x-forwarded-uri": path,
    }


async def test_links_of_pages_are_rewritten(server: LocalServer, web: FakeAgent) -> None:
    web.answer = Response(200, b'<a href="/x">x</a>', "text/html; charset=utf-8")
    path = f"{PODS}/p:{web.port}/proxy/"
    response, lines = await ask(server, path)
    assert lines == [f'<a href="{path}x">x</a>'.encode()]
    assert (response.length, response.content_type) == (None, "text/html; charset=utf-8")


async def test_packed_pages_stay_packed(server: LocalServer, web: FakeAgent) -> None:
    coded = [("Content-Encoding", "gzip")]
    web.answer = Response(200, gzip.compress(b"<img src=/x>"), "text/html", coded)
    path = f"{PODS}/p:{web.port}/proxy/"
    response, lines = await ask(server, path)
    assert dict(response.headers)["Content-Encoding"] == "gzip"
    assert gzip.decompress(b"".join(lines)) == f"<img src={path}x>".encode()


@pytest.mark.parametrize(
    ("content_type", "coding"), [("text/plain", ""), ("text/html", "br"), ("application/json", "")]
)
async def test_other_bodies_stay_as_they_are(
    server: LocalServer, web: FakeAgent, content_type: str, coding: str
) -> None:
    headers = [("Content-Encoding", coding)] if coding else []
    web.answer = Response(200, b'<a href="/x">', content_type, headers)
    response, lines = await ask(server, f"{PODS}/p:{web.port}/proxy/")
    assert (lines, response.length) == ([b'<a href="/x">'], 13)


async def test_pages_of_other_origins_may_not_read_the_server(
    server: LocalServer, web: FakeAgent
) -> None:
    allowed = [(f"Access-Control-Allow-{what}", "*") for what in ("Origin", "Methods", "Headers")]
    web.answer = Response(200, b"", "text/plain", [*allowed, ("X-Own", "1")])
    response, _ = await ask(server, f"{PODS}/p:{web.port}/proxy/")
    assert response.headers == [("X-Own", "1")]


async def test_a_pod_that_refuses_connections_is_reported(
    server: LocalServer, web: FakeAgent
) -> None:
    await web.close()
    where = f"127.0.0.1:{web.port}: connect: connection refused"
    failed = await server.call("GET", f"{PODS}/p:{web.port}/proxy/")
    assert (failed.status, failed.reason, failed.message) == (
        503,
        "ServiceUnavailable",
        f"error trying to reach service: dial tcp {where}",
    )
    upgrade = {"connection": "Upgrade", "upgrade": "websocket"}
    failed = await server.call("GET", f"{PODS}/p:{web.port}/proxy/", headers=upgrade)
    assert (failed.status, failed.message) == (500, f"error dialing backend: dial tcp {where}")


async def test_a_pod_that_does_not_change_the_protocol_is_reported(
    server: LocalServer, web: FakeAgent
) -> None:
    web.answer = Response(204, b"")
    upgrade = {"connection": "Upgrade", "upgrade": "websocket"}
    failed = await server.call("GET", f"{PODS}/p:{web.port}/proxy/", headers=upgrade)
    assert (failed.status, failed.message) == (500, "invalid upgrade response: status code 204")


# Services.


async def service(server: LocalServer, web: FakeAgent, **address: object) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": "www"}, {"name": "other", "port": 81}]
    await server.post(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
    target = {"kind": "Pod", "namespace": "default", "name": "p"}
    subset = {
        "addresses": [{"ip": "127.0.0.1", "targetRef": target, **address}],
        "ports": [{"name": "http", "port": web.port}],
    }
    # The API refuses loopback addresses here; the store does not.
    key = endpoints.RESOURCE.key("default", "s")
    made = {"metadata": {"name": "s", "namespace": "default"}, "subsets": [subset]}
    document = {"apiVersion": "v1", "kind": "Endpoints", **made}
    await server.app.api.store.put(key, msgspec.json.encode(document), expect=0)
    for _ in range(5):
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)


@pytest.mark.parametrize("name", ["s:80", "s:http", "http:s:80", ":s:http"])
async def test_a_service_is_reached_by_the_number_and_the_name_of_its_port(
    server: LocalServer, web: FakeAgent, name: str
) -> None:
    await service(server, web)
    response, lines = await ask(server, f"{SERVICES}/{name}/proxy/x")
    assert (response.status, lines, web.asked[0].path) == (200, [b"said"], "/x")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("s", 'no endpoints available for service "s"'),
        ("s:82", 'no service port 82 found for service "s"'),
        ("s:81", 'no endpoints available for service "s:81"'),
        ("https:s:www", 'no endpoints available for service "https:s:www"'),
    ],
)
async def test_a_port_that_is_not_there_is_unavailable(
    server: LocalServer, web: FakeAgent, name: str, message: str
) -> None:
    await service(server, web)
    failed = await server.call("GET", f"{SERVICES}/{name}/proxy/")
    assert (failed.status, failed.reason, failed.message) == (503, "ServiceUnavailable", message)


async def test_a_service_that_does_not_exist_is_not_found(server: LocalServer) -> None:
    for name, message in (("s:80", 'services "s"'), ("s:www", 'endpoints "s"')):
        failed = await server.call("GET", f"{SERVICES}/{name}/proxy/")
        assert (failed.status, failed.message) == (404, f"{message} not found")


@pytest.mark.parametrize(
    "address",
    [
        {"targetRef": None},
        {"targetRef": {"kind": "Pod", "namespace": "other", "name": "p"}},
        {"targetRef": {"kind": "Pod", "namespace": "default", "name": "none"}},
        {"ip": "127.0.0.2"},
    ],
)
async def test_an_address_that_is_not_the_pods_is_not_used(
    server: LocalServer, web: FakeAgent, address: dict[str, object]
) -> None:
    await service(server, web, **address)
    failed = await server.call("GET", f"{SERVICES}/s:80/proxy/")
    assert failed.message == 'no endpoints available for service "s:80"'
