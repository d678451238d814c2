"""Ways into a cluster that its owner chooses: pools of load balancers, health checks of nodes, and
the ports 80 and 443."""

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kedge.machinery.interfaces import own_addresses

Json = dict[str, Any]

PATIENCE = 20.0
POOL = "10.98.76.0/29"
SERVICES = "/api/v1/namespaces/default/services"


def asked(address: str, port: int, host: str = "", tls: ssl.SSLContext | None = None) -> Any:
    """Return status, headers and body of a GET."""
    client: http.client.HTTPConnection
    if tls is None:
        client = http.client.HTTPConnection(address, port, timeout=5)
    else:
        client = http.client.HTTPSConnection(address, port, timeout=5, context=tls)
    try:
        client.request("GET", "/", headers={"Host": host or address})
        answer = client.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        client.close()


class Site:
    """A cluster of two nodes, with a pool of load balancers of its own."""

    def __init__(self, own: Any, cluster: Any, pods: Any, web_servers: Any) -> None:
        self.own = own
        self.api = cluster.api
        self.pods = pods
        self.web_servers = web_servers

    def addresses(self) -> dict[str, str]:
        """Return the InternalIP of each node."""
        return {
            node["metadata"]["name"]: each["address"]
            for node in self.api.get("/api/v1/nodes")["items"]
            for each in node["status"]["addresses"]
            if each["type"] == "InternalIP"
        }

    def balanced(self, name: str, eventually: Callable[..., Any], **spec: Any) -> Json:
        """Make a load balancer for the pods of the web servers; returns it with its address."""
        port = {"port": 80, "targetPort": "www"}
        whole = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [port], **spec}
        self.api.create(SERVICES, {"metadata": {"name": name}, "spec": whole})

        def found() -> Json | None:
            made: Json = self.api.get(f"{SERVICES}/{name}")
            return made if made["status"]["loadBalancer"].get("ingress") else None

        return eventually(found)


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory,
    own_clusters: Any,
    own_web_servers: Any,
    module_pods: Any,
) -> Iterator[Site]:
    own = own_clusters.own(tmp_path_factory.mktemp("balancers"))
    cluster = own.up("--nodes=2", f"--load-balancer-cidr={POOL}")
    node = cluster.api.get("/api/v1/nodes")["items"][0]
    if node["metadata"]["labels"].get("kedge.dev/level") != "full":
        own.down()
        pytest.skip("pods have addresses only on a node at the level full")
    pods = module_pods(cluster.api, "default")
    made = own_web_servers(pods, own.home / "pki")
    made("one")
    yield Site(own, cluster, pods, made)
    own.down()


def test_pods_reach_addresses_of_a_chosen_pool(site: Site, eventually: Callable[..., Any]) -> None:
    made = site.balanced("web", eventually)
    address = made["status"]["loadBalancer"]["ingress"][0]["ip"]
    assert address.startswith("10.98.76.")
    asking = f'import urllib.request as u; print(u.urlopen("http://{address}").status)'
    assert (
        site.pods.says("asker", f"for _ in 1 2 3; do python3 -c '{asking}' && exit; sleep 1; done")
        == "200"
    )
    # An address of the pool that no Service has refuses at once.
    script = (
        "python3 -c 'import socket; socket.create_connection((\"10.98.76.6\", 80), 5)' 2>&1"
        " | grep -o 'Connection refused'"
    )
    assert site.pods.says("stranger", script) == "Connection refused"


def test_load_balancers_learn_which_nodes_have_an_endpoint(
    site: Site, eventually: Callable[..., Any]
) -> None:
    made = site.balanced("local", eventually, externalTrafficPolicy="Local")
    port = made["spec"]["healthCheckNodePort"]
    here = site.pods.get("one")["spec"]["nodeName"]
    nodes = site.addresses()

    def told(node: str) -> Any:
        try:
            return asked(nodes[node], port)
        except OSError:
            return None

    for node in nodes:
        count = int(node == here)
        status, headers, body = eventually(lambda node=node: told(node))
        eventually(
            lambda node=node, count=count: json.loads(told(node)[2])["localEndpoints"] == count
        )
        status, headers, body = told(node)
        assert status == (200 if count else 503)
        assert headers["X-Load-Balancing-Endpoint-Weight"] == str(count)
        assert json.loads(body) == {
            "service": {"namespace": "default", "name": "local"},
            "localEndpoints": count,
            "serviceProxyHealthy": True,
        }
    site.pods.delete("one")
    eventually(lambda: told(here)[0] == 503)
    site.pods.gone("one")
    site.web_servers("one")
    where = site.pods.get("one")["spec"]["nodeName"]
    eventually(lambda: told(where)[0] == 200)
    site.api.delete(f"{SERVICES}/local")
    eventually(lambda: told(here) is None)


def test_a_pool_that_overlaps_other_addresses_is_refused(own_cluster: Any) -> None:
    here = [each for each in own_addresses() if "." in each and not each.startswith("10.244.")]
    for network in ("10.96.128.0/24", "10.244.0.0/24", *(f"{each}/32" for each in here[:1])):
        with pytest.raises(AssertionError, match="choose another one"):
            own_cluster.up(f"--load-balancer-cidr={network}")


def in_use(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


@pytest.mark.skipif(in_use(80) or in_use(443), reason="ports 80 or 443 are in use, or not ours")
def test_kedge_up_ingress_serves_services_on_ports_80_and_443(
    own_cluster: Any,
    own_web_servers: Any,
    own_pods: Callable[[Any, str], Any],
    eventually: Callable[..., Any],
) -> None:
    cluster = own_cluster.up("--nodes=1", "--ingress")
    node = cluster.api.get("/api/v1/nodes")["items"][0]
    if node["metadata"]["labels"].get("kedge.dev/level") != "full":
        pytest.skip("pods have addresses only on a node at the level full")
    pods = own_pods(cluster.api, "default")
    own_web_servers(pods, own_cluster.home / "pki")()
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "www"}]}
    cluster.api.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec})
    eventually(lambda: asked("127.0.0.1", 80, "web.default.localhost")[0] == 200)
    any_certificate = ssl.create_default_context()
    any_certificate.check_hostname = False
    any_certificate.verify_mode = ssl.CERT_NONE
    assert asked("127.0.0.1", 443, "web.default.localhost", any_certificate)[0] == 200
    rule = {
        "path": "/",
        "pathType": "Prefix",
        "backend": {"service": {"name": "web", "port": {"number": 80}}},
    }
    ingress = {"rules": [{"host": "shop.example.com", "http": {"paths": [rule]}}]}
    cluster.api.create(
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
        {"metadata": {"name": "shop"}, "spec": ingress},
    )
    eventually(lambda: asked("127.0.0.1", 80, "shop.example.com")[0] == 200)
