"""The gateway of a cluster: names of Services below localhost, `kedge open`, and Ingresses."""

import base64
import http.client
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated

Json = dict[str, Any]

PATIENCE = 20.0


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Site:
    """A cluster with a published gateway, and a Service `web` with two pods."""

    def __init__(self, own: Any, cluster: Any, ports: list[int]) -> None:
        self.own = own
        self.cluster = cluster
        self.api = cluster.api
        self.http, self.https = ports
        self.certificate = self.key = self.authority = ""
        self.namespace = "default"
        self.services = "/api/v1/namespaces/default/services"
        self.ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"

    def gateway(self) -> int:
        """The port that is on by default."""
        first = json.loads(self.own.kedge("status", *self.own.which, "-o=json"))["gateway"][0]
        return int(first.rpartition(":")[2])

    def ask(
        self, host: str, path: str = "/", method: str = "GET", port: int = 0, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http, timeout=PATIENCE)
        try:
            connection.request(method, path, headers={"Host": host, **headers})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def json(self, host: str, path: str = "/", **more: Any) -> Json:
        answer, content = self.ask(host, path, **more)
        assert answer.status == 200, content
        document: Json = json.loads(content)
        return document

    def ingress(self, name: str, spec: Json) -> None:
        self.api.create(self.ingresses, {"metadata": {"name": name}, "spec": spec})


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory,
    own_clusters: Any,
    own_web_servers: Any,
    module_pods: Any,
) -> Iterator[Site]:
    own = own_clusters.own(tmp_path_factory.mktemp("gateway"))
    ports = free_ports(2)
    published = [f"--publish={ports[0]}:80", f"--publish={ports[1]}:443"]
    cluster = own.up("--nodes=1", *published)
    site = Site(own, cluster, ports)
    node = cluster.api.get("/api/v1/nodes")["items"][0]
    how = node["metadata"]["annotations"]["kedge.dev/service-proxy"]
    if how.startswith("none"):
        own.down()
        pytest.skip(f"services: {how}")
    pods = module_pods(cluster.api, "default")
    made = own_web_servers(pods, own.home / "pki")
    for name in ("one", "two"):
        made(name)
    site.certificate, site.key, site.authority = made.certificate, made.key, made.authority
    ports_of_service = [
        {"name": "http", "port": 80, "targetPort": "www"},
        {"name": "https", "port": 443, "targetPort": "tls"},
    ]
    spec = {"selector": {"app": "web"}, "ports": ports_of_service}
    cluster.api.create(site.services, {"metadata": {"name": "web"}, "spec": spec})
    yield site
    own.down()


HOST = "web.default.localhost"


def test_a_service_is_reached_by_its_name_below_localhost(
    site: Site, eventually: Callable[..., Any]
) -> None:
    port = site.gateway()
    eventually(lambda: site.ask(HOST, port=port)[0].status == 200)
    eventually(lambda: {site.json(HOST, port=port)["who"] for _ in range(20)} == {"one", "two"})
    told = site.json(f"{HOST}:{port}", "/a%20b/?c=d", port=port, method="DELETE")
    assert (told["method"], told["path"]) == ("DELETE", "/a%20b/?c=d")
    forwarded = {name: told["headers"][f"x-forwarded-{name}"] for name in ("for", "proto", "host")}
    assert forwarded == {"for": "127.0.0.1", "proto": "http", "host": f"{HOST}:{port}"}
    assert told["headers"]["host"] == f"{HOST}:{port}"


def test_other_ports_and_tls_of_a_service_are_reached(site: Site) -> None:
    assert site.json(f"https.{HOST}")["who"] in ("one", "two")
    answer, said = site.ask(f"none.{HOST}")
    assert (answer.status, said) == (
        404,
        b'service "web" in namespace "default" has no port "none"\n',
    )


def test_pages_are_not_rewritten_and_large_ones_come_whole(site: Site) -> None:
    assert b'href="/rewriteme"' in site.ask(HOST, "/page")[1]
    answer, content = site.ask(HOST, "/large")
    assert (answer.headers["Content-Length"], len(content)) == (str(5 << 20), 5 << 20)


def test_websockets_pass(site: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.http, timeout=PATIENCE)
    wish = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": base64.b64encode(b"0123456789abcdef").decode()}
    connection.request("GET", "/", headers={"Host": HOST, **wish, **key})
    assert connection.sock is not None
    connection.sock.sendall(bytes([0x81, 0x85, 0, 0, 0, 0]) + b"hello")
    reader = connection.sock.makefile("rb")
    assert reader.readline().split()[1] == b"101"
    while reader.readline() != b"\r\n":
        pass
    assert reader.read(7)[2:] == b"HELLO"
    connection.close()


def test_clients_of_http2_and_grpc_are_told_that_the_gateway_speaks_http_1(site: Site) -> None:
    client = H2Connection()
    client.initiate_connection()
    with socket.create_connection(("127.0.0.1", site.http), timeout=PATIENCE) as channel:
        channel.sendall(client.data_to_send())
        events = client.receive_data(channel.recv(1000))
    [ended] = [each for each in events if isinstance(each, ConnectionTerminated)]
    assert ended.error_code == ErrorCodes.HTTP_1_1_REQUIRED
    assert b"HTTP/1.1 only" in (ended.additional_data or b"")


def test_kedge_open_prints_an_address_that_answers(site: Site) -> None:
    url = site.own.kedge(
        "open", "svc/web", f"--kubeconfig={site.own.kubeconfig}", *site.own.which, "--no-browser"
    ).strip()
    assert url == f"http://{HOST}:{site.gateway()}/"
    curled = subprocess.run(
        [sys.executable, "-c", "import socket; socket.getaddrinfo('a.b.localhost', 80)"],
        capture_output=True,
        check=False,
    )
    if curled.returncode == 0:
        done = subprocess.run(["curl", "-sf", url], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["headers"]["host"].startswith(HOST)


def test_kedge_open_says_why_a_service_does_not_answer(site: Site) -> None:
    def complaint(name: str) -> str:
        own = site.own
        said: str = own.fails("open", name, f"--kubeconfig={own.kubeconfig}", *own.which)
        return said

    assert 'there is no service "none" in namespace "default"' in complaint("svc/none")
    spec = {"selector": {"app": "none"}, "ports": [{"port": 80}]}
    site.api.create(site.services, {"metadata": {"name": "lonely"}, "spec": spec})
    assert 'no endpoints available for service "lonely"' in complaint("svc/lonely")
    assert "only Services can be opened" in complaint("pod/web")


def test_an_ingress_routes_by_host_and_path_and_shows_its_address(
    site: Site, eventually: Callable[..., Any]
) -> None:
    def backend(service: str, **port: Any) -> Json:
        return {"service": {"name": service, "port": port}}

    paths = [
        {"path": "/named", "pathType": "Prefix", "backend": backend("web", name="http")},
        {"path": "/exact", "pathType": "Exact", "backend": backend("web", number=80)},
        {"path": "/gone", "pathType": "Prefix", "backend": backend("none", number=80)},
    ]
    site.ingress("routed", {"rules": [{"host": "shop.example.com", "http": {"paths": paths}}]})
    eventually(lambda: site.ask("shop.example.com", "/named")[0].status == 200, PATIENCE)
    assert site.json("shop.example.com", "/named/x")["path"] == "/named/x"
    statuses = {
        path: site.ask("shop.example.com", path)[0].status
        for path in ("/exact", "/exact/x", "/namedx", "/gone", "/named/../x", "/named/%2e%2e/x")
    }
    assert statuses == {
        "/exact": 200,
        "/exact/x": 404,
        "/namedx": 404,
        "/gone": 503,
        "/named/../x": 400,
        "/named/%2e%2e/x": 400,
    }
    # Names of Services are reached as before.
    assert site.json(HOST, "/named")["who"] in ("one", "two")

    def addresses() -> list[str]:
        status = site.api.get(f"{site.ingresses}/routed")["status"]
        return [each["ip"] for each in status.get("loadBalancer", {}).get("ingress", ())]

    eventually(lambda: addresses() == ["127.0.0.1"])
    site.api.delete(f"{site.ingresses}/routed")
    eventually(lambda: site.ask("shop.example.com", "/exact")[0].status == 404)


def test_a_default_backend_gets_all_other_hosts_and_foreign_classes_are_left_alone(
    site: Site, eventually: Callable[..., Any]
) -> None:
    rest = {"service": {"name": "web", "port": {"number": 80}}}
    site.ingress("foreign", {"ingressClassName": "nginx", "defaultBackend": rest})
    assert site.ask("any.example.com")[0].status == 404
    site.ingress("rest", {"ingressClassName": "kedge", "defaultBackend": rest})
    eventually(lambda: site.ask("any.example.com")[0].status == 200)
    assert "ingress" not in str(site.api.get(f"{site.ingresses}/foreign").get("status"))
    site.api.delete(f"{site.ingresses}/rest")
    eventually(lambda: site.ask("any.example.com")[0].status == 404)


def test_tls_uses_the_certificate_of_the_secret_by_server_name(
    site: Site, eventually: Callable[..., Any]
) -> None:
    data = {
        name: base64.b64encode(text.encode()).decode()
        for name, text in (("tls.crt", site.certificate), ("tls.key", site.key))
    }
    secret = {"metadata": {"name": "cert"}, "type": "kubernetes.io/tls", "data": data}
    site.api.create("/api/v1/namespaces/default/secrets", secret)
    path = {
        "path": "/",
        "pathType": "Prefix",
        "backend": {"service": {"name": "web", "port": {"number": 80}}},
    }
    host = "web.example.com"
    spec = {
        "tls": [{"hosts": [host], "secretName": "cert"}],
        "rules": [{"host": host, "http": {"paths": [path]}}],
    }
    site.ingress("secure", spec)
    eventually(lambda: site.ask(host)[0].status == 200)
    trusting = ssl.create_default_context(cadata=site.authority)

    def told(name: str) -> Json:
        with (
            socket.create_connection(("127.0.0.1", site.https), timeout=PATIENCE) as plain,
            trusting.wrap_socket(plain, server_hostname=name) as secure,
        ):
            secure.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            content = b"".join(iter(lambda: secure.recv(65536), b""))
        document: Json = json.loads(content.partition(b"\r\n\r\n")[2])
        return document

    assert told(host)["headers"]["x-forwarded-proto"] == "https"
    # Other names get a certificate of the cluster, which this authority has not signed.
    with pytest.raises(ssl.SSLCertVerificationError):
        told("other.example.com")


def test_a_pod_that_goes_takes_no_requests_with_it(
    site: Site, own_web_servers: Any, module_pods: Any, eventually: Callable[..., Any]
) -> None:
    pods = module_pods(site.api, "default")
    pods.delete("two")
    answers = [site.ask(HOST)[0].status for _ in range(200)]
    assert set(answers) == {200}
    eventually(lambda: {site.json(HOST)["who"] for _ in range(10)} == {"one"})


def test_the_gateway_is_at_the_same_port_after_a_restart(
    site: Site, eventually: Callable[..., Any]
) -> None:
    before = site.gateway()
    site.own.kill()
    site.own.up("--nodes=1", f"--publish={site.http}:80", f"--publish={site.https}:443")
    assert site.gateway() == before
    eventually(lambda: site.ask(HOST, port=before)[0].status == 200)


def test_a_cluster_without_a_gateway_says_so(own_cluster: Any) -> None:
    own_cluster.up("--gateway=off")
    assert json.loads(own_cluster.kedge("status", *own_cluster.which, "-o=json"))["gateway"] == []
    assert own_cluster.kubeconfig.exists()
    assert "the cluster has no gateway" in own_cluster.fails("open", "svc/web", *own_cluster.which)


def test_a_published_port_that_is_in_use_keeps_the_cluster_from_starting(own_cluster: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ("--nodes=0", "--port=0", f"--publish={port}:443", *own_cluster.which)
        said = own_cluster.fails("up", *arguments, code=125)
    assert f"the gateway cannot offer HTTPS: 127.0.0.1 port {port} is in use" in said
