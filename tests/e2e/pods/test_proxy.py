"""Pods and Services through the API server: proxies, kubectl proxy, port-forward and webhooks."""

import base64
import gzip
import http.client
import json
import ssl
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("pod_network")

PATIENCE = 20.0
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Proxy:
    """Asks the API server, without following redirects."""

    def __init__(self, api: Any) -> None:
        parts = urlsplit(api.url)
        tls = ssl.create_default_context(cadata=api.ca_pem)
        self._connect = lambda: http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=PATIENCE, context=tls
        )
        self._token = {"Authorization": f"Bearer {api.token}"}

    def __call__(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connect()
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {**self._token, **sent})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def json(self, path: str, method: str = "GET", body: bytes | None = None) -> Json:
        answer, content = self(path, method, body)
        assert answer.status == 200, content
        document: Json = json.loads(content)
        return document


@pytest.fixture
def proxy(api: Any) -> Proxy:
    return Proxy(api)


PORTS = [
    {"name": "http", "port": 80, "targetPort": "www"},
    {"name": "https", "port": 443, "targetPort": "tls"},
]


@pytest.fixture
def service(api: Any, pods: Any, web_server: Any, eventually: Callable[..., Any]) -> str:
    """A Service with one pod, and endpoints; returns its path."""
    path: str = pods.path.replace("/pods", "/services")
    spec = {"selector": {"app": "web"}, "ports": PORTS}
    api.create(path, {"metadata": {"name": "web"}, "spec": spec})
    web_server()
    endpoints = pods.path.replace("/pods", "/endpoints/web")
    eventually(lambda: api.get(endpoints).get("subsets", [{}])[0].get("addresses"))
    return f"{path}/web"


def test_pods_and_services_are_reached_by_every_form_of_their_names(
    proxy: Proxy, pods: Any, service: str
) -> None:
    services = service.removesuffix("/web")
    names = [f"{pods.path}/{name}" for name in ("web", "web:8080", "http:web:", "https:web:8443")]
    names += [f"{services}/{name}" for name in ("web:80", "web:http", "http:web:80", ":web:http")]
    names += [f"{services}/{name}" for name in ("https:web:443", "https:web:https")]
    for name in names:
        told = proxy.json(f"{name}/proxy/some/path?a=b")
        assert (told["who"], told["path"]) == ("web", "/some/path?a=b"), name


def test_every_method_passes(proxy: Proxy, pods: Any, service: str) -> None:
    for path in (f"{pods.path}/web:8080/proxy", f"{service}:80/proxy"):
        for method in METHODS:
            answer, content = proxy(f"{path}/with/{method}", method)
            assert answer.status == 200
            assert answer.headers["X-Who"] == "web"
            if method != "HEAD":
                assert json.loads(content)["method"] == method
            answer, content = proxy(f"{path}?method={method}", method)
            expected = 301 if method in ("GET", "HEAD") else 200
            assert (answer.status, method) == (expected, method)
            if expected == 301:
                assert answer.headers["Location"] == f"{path}/?method={method}"


def test_pages_and_redirects_stay_below_the_proxy(proxy: Proxy, service: str) -> None:
    base = f"{service}:80/proxy"
    page = f'<html><a href="{base}/rewriteme">test</a></html>'.encode()
    assert proxy(f"{base}/page")[1] == page
    answer, content = proxy(f"{base}/packed", Accept_Encoding="gzip")
    assert (answer.headers["Content-Encoding"], gzip.decompress(content)) == ("gzip", page)
    answer, _ = proxy(f"{base}/moved")
    assert (answer.status, answer.headers["Location"]) == (302, f"{base}/elsewhere")


def test_large_bodies_come_whole_and_endless_ones_stop_with_the_client(
    api: Any, proxy: Proxy, service: str
) -> None:
    answer, content = proxy(f"{service}:80/proxy/large")
    assert (answer.headers["Content-Length"], len(content)) == (str(5 << 20), 5 << 20)
    with api.open(api.request("GET", f"{service}:80/proxy/endless")) as endless:
        assert len(endless.read(1 << 20)) == 1 << 20
    # The server and the pod are none the worse for it.
    assert proxy.json(f"{service}:80/proxy/")["who"] == "web"


def test_a_page_that_unpacks_to_much_takes_neither_memory_nor_time_of_others(
    api: Any, service: str, cluster: Any
) -> None:
    record = cluster.home / "state" / "server.json"
    if not record.exists():
        pytest.skip("the memory of a server of another machine cannot be read")
    pid = json.loads(record.read_text())["pid"]

    def resident() -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found = next(line for line in lines if line.startswith("VmRSS:"))
        return int(found.split()[1]) << 10

    before = resident()
    # 66 MB of links in 300 KB. The client reads a little of it, and then nothing.
    request = api.request("GET", f"{service}:80/proxy/bomb", Accept_Encoding="gzip")
    with api.open(request, timeout=60) as bomb:
        assert bomb.headers["Content-Encoding"] == "gzip"
        assert bomb.read(1000)
        slowest = 0.0
        for _ in range(20):
            begun = time.monotonic()
            api.get("/api/v1/namespaces/default")
            slowest = max(slowest, time.monotonic() - begun)
        assert slowest < 1
        assert resident() - before < 32 << 20


def test_a_service_without_endpoints_and_a_closed_port_are_told_apart(
    api: Any, proxy: Proxy, pods: Any, service: str
) -> None:
    services = service.removesuffix("/web")
    ports = [{"port": 80}]
    api.create(services, {"metadata": {"name": "lonely"}, "spec": {"ports": ports}})
    pods.get("web")
    messages = {
        f"{services}/web:81/proxy/": 'no service port 81 found for service "web"',
        f"{services}/web/proxy/": 'no endpoints available for service "web"',
        f"{pods.path}/web:1/proxy/": "error trying to reach service: dial tcp "
        f"{pods.get('web')['status']['podIP']}:1: connect: connection refused",
    }
    for path, message in messages.items():
        answer, content = proxy(path)
        assert (answer.status, json.loads(content)["message"]) == (503, message)
    assert proxy(f"{services}/none:80/proxy/")[0].status == 404


def websocket(connection: http.client.HTTPConnection, path: str, **headers: str) -> bytes:
    """Send one message over a WebSocket, and return the answer to it."""
    wish = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": base64.b64encode(b"0123456789abcdef").decode()}
    connection.request("GET", path, headers={**wish, **key, **headers})
    raw = connection.sock
    assert raw is not None
    raw.sendall(bytes([0x81, 0x85, 0, 0, 0, 0]) + b"hello")
    reader = raw.makefile("rb")
    assert reader.readline().split()[1] == b"101"
    while reader.readline() != b"\r\n":
        pass
    head = reader.read(2)
    answer: bytes = reader.read(head[1])
    connection.close()
    return answer


def test_websockets_pass(api: Any, proxy: Proxy, service: str) -> None:
    token = {"Authorization": f"Bearer {api.token}"}
    for name in ("web:80", "https:web:443"):
        path = f"{service.removesuffix('web')}{name}/proxy/"
        assert websocket(proxy._connect(), path, **token) == b"HELLO"


# kubectl.


def test_kubectl_proxy_shows_pages_of_services(kubectl: Any, service: str) -> None:
    with kubectl.start("proxy", "--port=0") as lines:
        address = lines.until("Starting to serve on").split()[-1]
        url = f"http://{address}{service}:80/proxy/page"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            assert f'href="{service}:80/proxy/rewriteme"' in answer.read().decode()


def test_kubectl_forwards_ports_of_services(kubectl: Any, service: str) -> None:
    with kubectl.start("port-forward", "svc/web", ":80") as lines:
        port = lines.until("Forwarding from 127.0.0.1").split(":")[1].split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/x", timeout=PATIENCE) as answer:
            assert json.loads(answer.read())["who"] == "web"


def test_kubectl_exposes_a_pod(
    kubectl: Any, proxy: Proxy, pods: Any, web_server: Any, eventually: Callable[..., Any]
) -> None:
    web_server()
    kubectl("expose pod web --name=shown --port=80 --target-port=www")
    path = pods.path.replace("/pods", "/services/shown:80/proxy/")
    eventually(lambda: proxy(path)[0].status == 200)
    assert proxy.json(path)["who"] == "web"


def test_cluster_info_names_the_server_and_the_services_of_the_cluster(
    api: Any, kubectl: Any
) -> None:
    services = "/api/v1/namespaces/kube-system/services"
    labels = {"kubernetes.io/cluster-service": "true", "kubernetes.io/name": "Shown"}
    spec = {"ports": [{"name": "http", "port": 80}]}
    api.create(services, {"metadata": {"name": "shown", "labels": labels}, "spec": spec})
    try:
        told = kubectl("cluster-info --namespace=kube-system").stdout
    finally:
        api.delete(f"{services}/shown")
    assert f"is running at \x1b[0;33m{api.url}" in told or f"is running at {api.url}" in told
    assert f"{api.url}{services}/shown:http/proxy" in told


# Webhooks.


def test_a_webhook_is_reached_through_a_named_port_of_a_service(
    api: Any, kubectl: Any, pods: Any, web_server: Any, service: str
) -> None:
    authority = base64.b64encode(web_server.authority.encode()).decode()
    reference = {"namespace": pods.namespace, "name": "web", "path": "/review", "port": 443}
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    hook = {
        "name": "hook.example.com",
        "clientConfig": {"service": reference, "caBundle": authority},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": pods.namespace}},
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    api.create(path, {"metadata": {"name": pods.namespace}, "webhooks": [hook]})
    try:
        said = kubectl.fails("create", "configmap", "refused")
        assert 'admission webhook "hook.example.com" denied the request: web says no' in said
        # Another port of the Service leads to another port of the pod, which speaks no TLS.
        for port in (80, 444):
            reference["port"] = port
            hook["failurePolicy"] = "Fail"
            api.merge(f"{path}/{pods.namespace}", {"webhooks": [hook]})
            said = kubectl.fails("create", "configmap", "refused")
            assert "failed calling webhook" in said
        assert 'no service port 444 found for service "web"' in said
    finally:
        api.delete(f"{path}/{pods.namespace}")
