"""NetworkPolicies decide which pods reach each other, on two nodes, with real traffic."""

import contextlib
import fnmatch
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.cli.cluster import process
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.supervisor.sockets import sockets_of_nodes

Json = dict[str, Any]

pytestmark = pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to kill it"
)

HERE = Path(__file__).parent
CASES = yaml.safe_load((HERE / "network_policy.yaml").read_text())
PORTS = (("tcp", 80), ("tcp", 81), ("udp", 80), ("udp", 81))
NAMED = {"www": ("TCP", 80), "alt": ("TCP", 81), "www-udp": ("UDP", 80)}
PATIENCE = 20.0


class Lab:
    """Pods of two namespaces on two nodes, which tell whom they reach."""

    def __init__(self, own: Any, cluster: Any, make: Callable[..., Any]) -> None:
        self.own = own
        self.api = cluster.api
        self._make = make
        # Only root's pods are in the network of this process.
        self.inside = sockets_of_nodes(str(Path(own.state) / "nodes"))
        self._socket = socket.socket if os.geteuid() == 0 else self.inside.socket
        self.addresses: dict[str, str] = {}
        for namespace, node in (("x", "node-1"), ("y", "node-2")):
            meta = {"name": namespace, "labels": {"ns": namespace}}
            self.api.create("/api/v1/namespaces", {"metadata": meta})
            for name in ("a", "b"):
                self.create(namespace, name, node)
        for each in ("x/a", "x/b", "y/a", "y/b"):
            self.wait(*each.split("/"))

    def create(self, namespace: str, name: str, node: str, **labels: str) -> None:
        container = {
            "env": [
                {"name": "WHO", "value": f"{namespace}/{name}"},
                {"name": "PROGRAM", "value": (HERE / "policy_probe.py").read_text()},
            ],
            "ports": [
                {"name": port, "protocol": protocol, "containerPort": number}
                for port, (protocol, number) in NAMED.items()
            ],
            # A probe of the kubelet: it must pass whatever policies say.
            "readinessProbe": {"tcpSocket": {"port": 7000}, "periodSeconds": 1},
        }
        meta = {"labels": {"pod": name, **labels}}
        program = 'exec python3 -c "$PROGRAM"'
        pods = self._make(self.api, namespace)
        pods.create(name, program, container=container, metadata=meta, nodeName=node)

    def wait(self, namespace: str, name: str) -> None:
        ready = self._make(self.api, namespace).ready(name, PATIENCE)
        self.addresses[f"{namespace}/{name}"] = ready["status"]["podIP"]

    def delete(self, namespace: str, name: str) -> None:
        pods = self._make(self.api, namespace)
        pods.delete(name)
        pods.gone(name)
        del self.addresses[f"{namespace}/{name}"]

    def ask(self, pod: str, **question: Any) -> Any:
        with self.asked(pod, **question) as answer:
            return answer()

    @contextlib.contextmanager
    def asked(self, pod: str, **question: Any) -> Iterator[Callable[[], Any]]:
        """Ask the program of a pod; the value reads its answer."""
        channel = self._socket(socket.AF_INET, socket.SOCK_STREAM)
        channel.settimeout(PATIENCE)
        channel.connect((self.addresses[pod], 7000))
        with channel, channel.makefile("rw") as lines:
            print(json.dumps(question), file=lines, flush=True)
            yield lambda: json.loads(lines.readline())

    def reaches(self, client: str, server: str, protocol: str = "tcp", port: int = 80) -> bool:
        target = self.addresses.get(server, server)
        (found,) = self.ask(client, do="reach", targets=[(target, protocol, port)])
        return bool(found)

    def denied(self) -> set[str]:
        """Return the connections that are impossible, as `client server port`."""
        found = set()
        for client in self.addresses:
            tried = [
                (server, protocol, port)
                for server in self.addresses
                for protocol, port in PORTS
                if server != client
            ]
            targets = [(self.addresses[each], protocol, port) for each, protocol, port in tried]
            answers = self.ask(client, do="reach", targets=targets)
            for (server, protocol, port), answer in zip(tried, answers, strict=True):
                if not answer:
                    found.add(f"{client} {server} {protocol}{port}")
        return found

    def all_connections(self) -> set[str]:
        return {
            f"{client} {server} {protocol}{port}"
            for client in self.addresses
            for server in self.addresses
            for protocol, port in PORTS
            if client != server
        }

    def path(self, namespace: str) -> str:
        return f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"

    @contextlib.contextmanager
    def policy(self, namespace: str, name: str = "policy", **spec: Any) -> Iterator[None]:
        text = json.dumps({"podSelector": {}, **spec})
        for pod, address in self.addresses.items():
            text = text.replace(f"${{{pod}}}", address)
        path = self.path(namespace)
        self.api.create(path, {"metadata": {"name": name}, "spec": json.loads(text)})
        try:
            yield
        finally:
            self.api.delete(f"{path}/{name}")

    def label(self, namespace: str, name: str, **labels: str | None) -> None:
        patch = {"metadata": {"labels": labels}}
        self.api.merge(f"/api/v1/namespaces/{namespace}/pods/{name}", patch)

    def agent(self, node: str) -> int:
        found = process.running(Path(self.own.state) / "nodes" / node, "node")
        return int(found.pid) if found else 0


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory, own_clusters: Any, module_pods: Any
) -> Iterator[Lab]:
    own = own_clusters.own(tmp_path_factory.mktemp("policies"))
    try:
        cluster = own.up("--nodes=2")
        for each in cluster.api.get("/api/v1/nodes")["items"]:
            how = each["metadata"]["annotations"]["kedge.dev/service-proxy"]
            if how.startswith("none"):
                pytest.skip(f"services: {how}")
        made = Lab(own, cluster, module_pods)
        yield made
        made.inside.close()
    finally:
        own.down()


def policy_tables() -> list[str]:
    with contextlib.closing(NftablesSocket()) as channel:
        return [each for each in channel.tables() if each.endswith("_policies")]


@pytest.mark.parametrize("case", CASES, ids=[each["name"] for each in CASES])
def test_connections_are_possible_unless_policies_deny_them(
    case: Json, lab: Lab, eventually: Callable[..., Any]
) -> None:
    expected = {
        each
        for each in lab.all_connections()
        if any(fnmatch.fnmatchcase(each, pattern) for pattern in case["denied"])
    }
    with contextlib.ExitStack() as stack:
        for number, each in enumerate(case["policies"]):
            stack.enter_context(lab.policy(each["namespace"], f"p{number}", **each["spec"]))
        last: set[str] = set()

        def is_as_expected() -> bool:
            nonlocal last
            last = lab.denied()
            return last == expected

        try:
            eventually(is_as_expected)
        except AssertionError:
            assert last == expected
    eventually(lambda: not lab.denied())


def test_labels_of_pods_and_namespaces_change_what_is_allowed(
    lab: Lab, eventually: Callable[..., Any]
) -> None:
    friends = {
        "from": [{"podSelector": {"matchLabels": {"friend": "yes"}}, "namespaceSelector": {}}]
    }
    with lab.policy("x", podSelector={"matchLabels": {"pod": "a"}}, ingress=[friends]):
        eventually(lambda: not lab.reaches("y/b", "x/a"))
        lab.label("y", "b", friend="yes")
        eventually(lambda: lab.reaches("y/b", "x/a"))
        lab.label("y", "b", friend=None)
        eventually(lambda: not lab.reaches("y/b", "x/a"))
        # The policy no longer selects the server.
        lab.label("x", "a", pod="other")
        eventually(lambda: lab.reaches("y/b", "x/a"))
        lab.label("x", "a", pod="a")
    trusted = {"from": [{"namespaceSelector": {"matchLabels": {"trusted": "yes"}}}]}
    with lab.policy("x", ingress=[trusted]):
        eventually(lambda: not lab.reaches("y/b", "x/a"))
        lab.api.merge("/api/v1/namespaces/y", {"metadata": {"labels": {"trusted": "yes"}}})
        eventually(lambda: lab.reaches("y/b", "x/a"))
        lab.api.merge("/api/v1/namespaces/y", {"metadata": {"labels": {"trusted": None}}})
        eventually(lambda: not lab.reaches("y/b", "x/a"))


def test_a_changed_label_takes_effect_quickly(lab: Lab, eventually: Callable[..., Any]) -> None:
    friends = {
        "from": [{"podSelector": {"matchLabels": {"friend": "yes"}}, "namespaceSelector": {}}]
    }
    took = []
    with lab.policy("x", ingress=[friends]):
        eventually(lambda: not lab.reaches("y/b", "x/a"))
        for _ in range(5):
            lab.label("y", "b", friend="yes")
            begun = time.monotonic()
            knock = {"address": lab.addresses["x/a"], "port": 80, "seconds": PATIENCE / 2}
            assert lab.ask("y/b", do="knock", **knock)
            took.append(time.monotonic() - begun)
            lab.label("y", "b", friend=None)
            eventually(lambda: not lab.reaches("y/b", "x/a", "udp"))
    assert min(took) < 0.1, took


def test_dns_is_denied_and_allowed_as_with_a_dns_server_in_pods(
    lab: Lab, eventually: Callable[..., Any]
) -> None:
    def resolves() -> bool:
        name = "kubernetes.default.svc.cluster.local"
        return bool(lab.ask("x/a", do="resolve", name=name))

    assert resolves()
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    with lab.policy("x", "deny", policyTypes=["Egress"]):
        eventually(lambda: not resolves())
        for number, rule in enumerate(({"to": [dns], "ports": ports}, {"ports": ports})):
            with lab.policy("x", f"dns-{number}", policyTypes=["Egress"], egress=[rule]):
                eventually(resolves)
                assert not lab.reaches("x/a", "y/a")
            eventually(lambda: not resolves())


def test_a_service_is_judged_by_its_pods(lab: Lab, eventually: Callable[..., Any]) -> None:
    spec = {"selector": {"pod": "a"}, "ports": [{"port": 8000, "targetPort": 80}]}
    path = "/api/v1/namespaces/x/services"
    address = lab.api.create(path, {"metadata": {"name": "web"}, "spec": spec})["spec"]["clusterIP"]
    eventually(lambda: lab.reaches("y/b", address, port=8000))
    allowed = {
        "ports": [{"port": 80}],
        "from": [{"namespaceSelector": {"matchLabels": {"ns": "x"}}}],
    }
    with lab.policy("x", ingress=[allowed]):
        eventually(lambda: not lab.reaches("y/b", address, port=8000))
        assert lab.reaches("x/b", address, port=8000)
        # A pod reaches itself through its Service.
        assert lab.reaches("x/a", address, port=8000)
    with lab.policy("x", policyTypes=["Ingress", "Egress"]):
        eventually(lambda: not lab.reaches("x/b", address, port=8000))
        assert lab.reaches("x/a", address, port=8000)
    lab.api.delete(f"{path}/web")


def test_a_new_pod_is_guarded_from_its_first_packet_on(
    lab: Lab, eventually: Callable[..., Any]
) -> None:
    def seen_while_created(name: str) -> list[str]:
        """Return who answers a pod that scans all addresses of the node while a pod starts."""
        prefix = lab.addresses["x/a"].rpartition(".")[0]
        taken = [int(each.rpartition(".")[2]) for each in lab.addresses.values()]
        question = {"prefix": prefix, "first": min(taken), "last": max(taken) + 30, "seconds": 5}
        with lab.asked("y/b", do="scan", **question) as answer:
            lab.create("x", name, "node-1")
            lab.wait("x", name)
            found: list[str] = answer()
        lab.delete("x", name)
        return found

    assert "x/open" in seen_while_created("open")
    with lab.policy("x"):
        eventually(lambda: not lab.reaches("y/b", "x/a"))
        assert not [each for each in seen_while_created("closed") if each.startswith("x/")]


def test_policies_hold_while_agents_are_dead_and_are_followed_afterwards(
    lab: Lab, eventually: Callable[..., Any]
) -> None:
    with lab.policy("x"):
        eventually(lambda: not lab.reaches("y/b", "x/a"))
        assert os.geteuid() or policy_tables()
        end = time.monotonic() + 6
        for node in ("node-1", "node-2"):
            os.kill(lab.agent(node), signal.SIGKILL)
        while time.monotonic() < end:
            assert not lab.reaches("y/b", "x/a")
            assert lab.reaches("x/a", "y/b")
        eventually(lambda: lab.agent("node-1") and lab.agent("node-2"))
        with lab.policy("x", "allow", ingress=[{"ports": [{"port": 80}]}]):
            eventually(lambda: lab.reaches("y/b", "x/a"))
        eventually(lambda: not lab.reaches("y/b", "x/a"))
    eventually(lambda: lab.reaches("y/b", "x/a"))


def test_a_huge_policy_delays_neither_pods_nor_other_policies(
    lab: Lab, eventually: Callable[..., Any]
) -> None:
    blocks = [{"ipBlock": {"cidr": f"11.{i // 256}.{i % 256}.0/24"}} for i in range(9_000)]
    excepted = [f"12.{i // 256}.{i % 256}.0/24" for i in range(5_000)]
    selectors = [{"podSelector": {"matchLabels": {"app": f"a{i}"}}} for i in range(1_500)]
    peers = [*blocks, {"ipBlock": {"cidr": "12.0.0.0/8", "except": excepted}}, *selectors]
    with lab.policy("y", podSelector={}, ingress=[{"from": peers, "ports": [{"port": 80}]}]):
        with lab.policy("x"):
            begun = time.monotonic()
            eventually(lambda: not lab.reaches("y/b", "x/a"))
            assert time.monotonic() - begun < PATIENCE
        eventually(lambda: not lab.reaches("x/a", "y/b"))


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may not read packet rules")
def test_nothing_is_left_without_policies_and_after_down(
    lab: Lab, own_cluster: Any, eventually: Callable[..., Any]
) -> None:
    before = set(policy_tables())
    api = own_cluster.up("--nodes=1").api
    path = lab.path("default")
    api.create(path, {"metadata": {"name": "deny"}, "spec": {"podSelector": {}}})
    (table,) = eventually(lambda: set(policy_tables()) - before)
    api.delete(f"{path}/deny")
    eventually(lambda: table not in policy_tables())
    api.create(path, {"metadata": {"name": "deny"}, "spec": {"podSelector": {}}})
    eventually(lambda: table in policy_tables())
    own_cluster.down()
    assert table not in policy_tables()
