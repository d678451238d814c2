"""The port of a node's agent, attacked with the credentials of others."""

import http.client
import ssl
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver import pki
from kedge.machinery.clock import SystemClock

OTHER = "node-other"
FALSE_TOKEN = "e30.e30.e30"


def paths(namespace: str, pod: str) -> list[tuple[str, str]]:
    """Every path of the port, and spellings that a filter could take for another one."""
    where = f"{namespace}/{pod}"
    command = "cmd=id"
    return [
        *(("GET", path) for path in ("/healthz", "/pods", "/runningpods", "/metrics")),
        *(("GET", path) for path in ("/metrics/resource", "/metrics/cadvisor", "/stats/summary")),
        *(("GET", path) for path in ("/logs/", "/logs/../../etc/passwd", "/configz", "/debug/x")),
        *(("GET", path) for path in ("/apis/metrics/v1alpha1/nodes", "/", "//", "/%2e%2e/pods")),
        ("GET", f"/containerLogs/{where}/main"),
        ("POST", f"/run/{where}/main?{command}"),
        ("POST", f"//run/{where}/main?{command}"),
        ("POST", f"/%72un/{where}/main?{command}"),
        ("POST", f"/stats/../run/{where}/main?{command}"),
        ("POST", f"/healthz/../run/{where}/main?{command}"),
        ("POST", f"/exec/{where}/main?command=id&output=1"),
        ("GET", f"/exec/{where}/main?command=id&output=1"),
        ("POST", f"/attach/{where}/main?output=1"),
        ("POST", f"/portForward/{where}?port=1"),
        ("PUT", "/pods"),
        ("DELETE", "/pods"),
        ("OPTIONS", "/exec"),
        ("HEAD", "/pods"),
    ]


class NodePort:
    """The port of the suite's node, for one caller."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext, token: str = "") -> None:
        self._address = address
        self._tls = tls
        self._token = token

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(*self._address, timeout=30, context=self._tls)
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def address(node: Any, from_machine: Any) -> tuple[str, int]:
    status = node["status"]
    internal = next(a["address"] for a in status["addresses"] if a["type"] == "InternalIP")
    return from_machine(internal), status["daemonEndpoints"]["kubeletEndpoint"]["Port"]


def certified(api: Any, certificate: Path, key: Path) -> ssl.SSLContext:
    tls = ssl.create_default_context(cadata=api.ca_pem)
    tls.load_cert_chain(certificate, key)
    return tls


@pytest.fixture
def other_node(agent: Any, tmp_path: Path) -> tuple[Path, Path]:
    """The certificate and the key of another node of this cluster."""
    pki.ensure_node(agent.state / "pki", OTHER, ["localhost"], tmp_path, SystemClock().now())
    return tmp_path / "node.crt", tmp_path / "node.key"


def pod_token(api: Any, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    return str(api.create(path, {"spec": {}})["status"]["token"])


def test_no_path_answers_strangers_pods_and_other_nodes(
    api: Any,
    pods: Any,
    namespace: str,
    address: tuple[str, int],
    other_node: tuple[Path, Path],
) -> None:
    pods.create("victim", "exec sleep 1000")
    pods.ready("victim")
    anonymous = ssl.create_default_context(cadata=api.ca_pem)
    callers = {
        "anonymous": (NodePort(address, anonymous), 401),
        "a false token": (NodePort(address, anonymous, FALSE_TOKEN), 401),
        "a long token": (NodePort(address, anonymous, "x" * 40_000), 401),
        "a pod": (NodePort(address, anonymous, pod_token(api, namespace)), 403),
        "another node": (NodePort(address, certified(api, *other_node)), 403),
    }
    upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
    for name, (port, refusal) in callers.items():
        for method, path in paths(namespace, "victim"):
            for headers in ({}, upgrade):
                status, body = port.ask(method, path, **headers)
                assert status == refusal, (name, method, path, status, body[:200])
                assert b"uid=" not in body
    # The administrator is answered: the paths are the right ones.
    status, body = NodePort(address, anonymous, api.token).ask(
        "POST", f"/run/{namespace}/victim/main?cmd=id"
    )
    assert (status, b"uid=" in body) == (200, True)


def test_a_node_that_claims_the_name_of_another_group_gets_nothing(
    api: Any, address: tuple[str, int]
) -> None:
    """Headers of proxies are not believed."""
    anonymous = ssl.create_default_context(cadata=api.ca_pem)
    port = NodePort(address, anonymous)
    for name in ("X-Remote-User", "Impersonate-User", "X-Forwarded-User"):
        status, _ = port.ask(
            "GET", "/pods", **{name: "kubernetes-admin", "X-Remote-Group": "system:masters"}
        )
        assert status == 401
