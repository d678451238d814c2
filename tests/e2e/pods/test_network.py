"""Pods reach each other, the API and the machine; the machine reaches them."""

import http.client
import socket
from collections.abc import Callable
from typing import Any

import pytest

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("pod_network")

SocketMaker = Callable[[int], socket.socket]


def machine_socket(kind: int) -> socket.socket:
    return socket.socket(socket.AF_INET, kind)


SERVE = "mkdir -p /srv/www; cd /srv/www; echo $WHO > who; exec python3 -m http.server {port}"


def server(pods: Any, name: str, port: int = 8000, **spec: Any) -> Json:
    """A pod that says who it is over HTTP, ready."""
    container = {
        "env": [{"name": "WHO", "value": name}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        **spec.pop("container", {}),
    }
    pods.create(name, SERVE.format(port=port), container=container, **spec)
    ready: Json = pods.ready(name)
    return ready


def fetch(address: str, port: int, make: SocketMaker = machine_socket) -> str:
    connection = http.client.HTTPConnection(address, port)
    with make(socket.SOCK_STREAM) as channel:
        channel.settimeout(5)
        channel.connect((address, port))
        connection.sock = channel
        connection.request("GET", "/who")
        return connection.getresponse().read().decode().strip()


def test_pods_reach_each_other(pods: Any, node_socket: SocketMaker) -> None:
    one, other = (server(pods, name)["status"]["podIP"] for name in ("one", "other"))
    assert one != other
    script = (
        'exec python3 -c "import urllib.request as u;'
        "print(u.urlopen('http://{}:8000/who', timeout=5).read().decode())\""
    )
    assert pods.says("asker", script.format(one)) == "one"
    assert fetch(other, 8000, node_socket) == "other"


def test_a_pod_knows_its_name_and_address(pods: Any) -> None:
    said = pods.says("named", "hostname; cat /etc/hosts; ls /sys/class/net")
    pod = pods.get("named")
    assert said.splitlines()[0] == "named"
    assert f"{pod['status']['podIP']}\tnamed" in said
    assert {"lo", "eth0"} <= set(said.split())


def test_loopback_is_the_pods_own(pods: Any) -> None:
    server(pods, "mine")
    script = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 8000), 2)\""
    assert pods.says("alone", f"{script} 2>/dev/null && echo open || echo closed") == "closed"


def test_a_pod_talks_to_the_api_with_its_token(pods: Any) -> None:
    """As client libraries do it: variables of the service, the certificate, the token."""
    script = """exec python3 - <<'END'
import os, ssl, urllib.request
home = "/var/run/secrets/kubernetes.io/serviceaccount"
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
tls = ssl.create_default_context(cafile=f"{home}/ca.crt")
token = open(f"{home}/token").read()
def ask(path):
    asked = urllib.request.Request(f"https://{host}:{port}{path}")
    asked.add_header("Authorization", f"Bearer {token}")
    try:
        return urllib.request.urlopen(asked, timeout=5, context=tls).status
    except urllib.error.HTTPError as error:
        return error.code
print(host, ask("/version"), ask("/api/v1/namespaces/kube-system/secrets"))
END"""
    assert pods.says("client", script) == "10.96.0.1 200 403"


def test_a_host_port_leads_into_the_pod(
    pods: Any, node: Json, from_machine: Callable[[str], str]
) -> None:
    port = {"ports": [{"containerPort": 8000, "hostPort": 17322}]}
    server(pods, "open", container=port)
    address = from_machine(node["status"]["addresses"][0]["address"])
    assert fetch(address, 17322) == "open"
    pods.delete("open")
    pods.gone("open")
    with pytest.raises(OSError):  # noqa: PT011 - refused, one way or another
        fetch(address, 17322)


def test_host_network_is_the_nodes(pods: Any, node: Json, node_socket: SocketMaker) -> None:
    pod = server(pods, "outside", port=17323, hostNetwork=True)
    assert pod["status"]["podIP"] == node["status"]["addresses"][0]["address"]
    assert pod["status"]["hostIP"] == pod["status"]["podIP"]
    assert fetch("127.0.0.1", 17323, node_socket) == "outside"


def test_an_address_is_given_again_only_when_it_is_free(pods: Any) -> None:
    names = [f"p{number}" for number in range(5)]
    for name in names:
        pods.create(name)
    addresses = {pods.ready(name)["status"]["podIP"] for name in names}
    assert len(addresses) == len(names)
