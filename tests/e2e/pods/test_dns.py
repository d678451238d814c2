"""Pods find Services and each other by name, with the resolver of the C library."""

import ipaddress
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.resolver
import pytest

from kedge.cli.cluster import process

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("pod_network")

RESOLVE = """exec python3 - <<'END'
import socket, time
def find(name):
    try:
        found = socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
        return " ".join(sorted(each[4][0] for each in found)) + " " + found[0][3]
    except socket.gaierror as error:
        return socket.EAI_NONAME == error.errno and "unknown" or str(error)
begun = time.monotonic()
for name in {names!r}:
    print(find(name))
print("quick" if time.monotonic() - begun < 4 else "slow")
END"""
DOMAIN = "svc.cluster.local"
KEYS = """exec python3 - <<'END'
import json, ssl, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount"
trusted = ssl.create_default_context(cafile=f"{account}/ca.crt")
login = {"Authorization": "Bearer " + open(f"{account}/token").read()}
def read(url):
    request = urllib.request.Request(url, headers=login)
    return json.load(urllib.request.urlopen(request, context=trusted, timeout=10))
found = read("https://kubernetes.default.svc.cluster.local/.well-known/openid-configuration")
print(found["issuer"], len(read(found["jwks_uri"])["keys"]))
END"""
"""Follows the discovery document of account tokens to the keys that verify them."""


class Names:
    """Services of a namespace, and names as its pods see them."""

    def __init__(self, api: Any, pods: Any) -> None:
        self._api = api
        self._pods = pods
        self.path = f"/api/v1/namespaces/{pods.namespace}/services"
        self._count = 0

    def service(self, name: str, **spec: Any) -> Json:
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
        made: Json = self._api.create(self.path, body)
        return made

    def found(self, *names: str) -> list[str]:
        """What a pod of the namespace finds for each name, and whether it took long."""
        self._count += 1
        said: str = self._pods.says(f"asker-{self._count}", RESOLVE.format(names=names))
        return said.splitlines()


@pytest.fixture
def names(api: Any, pods: Any) -> Names:
    return Names(api, pods)


@pytest.fixture
def ask(
    node: Json, node_socket: Callable[[int], socket.socket]
) -> Callable[..., dns.message.Message]:
    """Ask the node's server as dig would."""
    gateway = str(ipaddress.ip_network(node["spec"]["podCIDR"])[1])

    def asked(name: str, kind: str = "A", *, tcp: bool = False) -> dns.message.Message:
        query = dns.message.make_query(name, kind)
        with node_socket(socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as channel:
            channel.connect((gateway, 53))
            channel.setblocking(False)
            send = dns.query.tcp if tcp else dns.query.udp
            return send(query, gateway, timeout=5, sock=channel)

    return asked


def test_services_are_found_by_short_and_long_names(names: Names, pods: Any) -> None:
    address = names.service("web")["spec"]["clusterIP"]
    here = pods.namespace
    whole = f"web.{here}.{DOMAIN}"
    found = names.found(
        "web", f"web.{here}", f"web.{here}.svc", whole, f"{whole}.", "kubernetes.default", "nope"
    )
    assert found == [
        *[f"{address} {whole}"] * 5,
        f"10.96.0.1 kubernetes.default.{DOMAIN}",
        "unknown",
        "quick",
    ]


def test_pods_of_a_headless_service_have_names(
    names: Names, pods: Any, eventually: Callable[..., Any], ask: Any
) -> None:
    names.service("db", clusterIP="None", selector={"app": "db"})
    for name in ("db-0", "db-1"):
        labels = {"labels": {"app": "db"}}
        pods.create(name, metadata=labels, hostname=name, subdomain="db")
    first, second = (pods.ready(name)["status"]["podIP"] for name in ("db-0", "db-1"))
    whole = f"db.{pods.namespace}.{DOMAIN}"
    eventually(lambda: len([*ask(whole).answer, *ask(f"db-1.{whole}").answer]) == 2)
    found = names.found("db", "db-0.db", f"db-1.{whole}", "db-2.db")
    both = " ".join(sorted([first, second]))
    assert found == [
        f"{both} {whole}",
        f"{first} db-0.{whole}",
        f"{second} db-1.{whole}",
        "unknown",
        "quick",
    ]
    pods.delete("db-1")
    eventually(lambda: ask(f"db-1.{whole}").rcode() == dns.rcode.NXDOMAIN)
    [left] = ask(whole).answer[0]
    assert str(left) == first


def test_an_external_name_leads_to_its_target(names: Names, pods: Any) -> None:
    address = names.service("web")["spec"]["clusterIP"]
    target = f"web.{pods.namespace}.{DOMAIN}"
    names.service("alias", type="ExternalName", externalName=target)
    assert names.found("alias") == [f"{address} {target}", "quick"]


@pytest.mark.parametrize("tcp", [False, True])
def test_records_of_services(
    names: Names, pods: Any, ask: Any, eventually: Callable[..., Any], tcp: bool
) -> None:
    port = {"name": "http", "port": 80, "protocol": "TCP"}
    address = names.service("web", ports=[port])["spec"]["clusterIP"]
    whole = f"web.{pods.namespace}.{DOMAIN}."
    eventually(lambda: ask(whole).answer)
    answer = ask(f"_http._tcp.{whole}", "SRV", tcp=tcp)
    assert str(answer.answer[0][0]) == f"0 100 80 {whole}"
    assert str(answer.additional[0][0]) == address
    reverse = ".".join(reversed(address.split("."))) + ".in-addr.arpa"
    assert str(ask(reverse, "PTR", tcp=tcp).answer[0][0]) == whole
    assert ask(f"nope.{pods.namespace}.{DOMAIN}", tcp=tcp).rcode() == dns.rcode.NXDOMAIN
    assert ask(f"{pods.namespace}.{DOMAIN}", tcp=tcp).rcode() == dns.rcode.NOERROR


def test_other_names_get_the_answer_of_the_machines_resolvers(ask: Any) -> None:
    name = "kedge-has-no-such-name.example"
    query = dns.message.make_query(name, "A")
    try:
        server = dns.resolver.Resolver().nameservers[0]
        theirs = dns.query.udp(query, str(server), timeout=2)
    except (dns.exception.DNSException, IndexError, OSError):
        pytest.skip("this machine has no resolver that answers")
    assert ask(name).rcode() == theirs.rcode()
    assert ask(name, tcp=True).rcode() == theirs.rcode()


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (
            {},
            [
                "search {ns}.svc.cluster.local svc.cluster.local cluster.local",
                "nameserver {dns}",
                "options ndots:5",
            ],
        ),
        (
            {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"], "searches": ["x"]}},
            ["search x", "nameserver 192.0.2.1"],
        ),
        (
            {
                "dnsConfig": {
                    "nameservers": ["192.0.2.1"],
                    "options": [{"name": "ndots", "value": "2"}],
                }
            },
            ["nameserver {dns}", "nameserver 192.0.2.1", "options ndots:2"],
        ),
        (
            {"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True},
            ["nameserver {dns}", "options ndots:5"],
        ),
    ],
)
def test_dns_policies(pods: Any, spec: Json, wanted: list[str]) -> None:
    said = pods.says("reader", "cat /etc/resolv.conf", **spec).splitlines()
    for line in wanted:
        text = line.format(ns=pods.namespace, dns="10.96.0.10")
        assert any(each == text or each.startswith(f"{text} ") for each in said), (text, said)


@pytest.mark.parametrize("spec", [{"dnsPolicy": "Default"}, {"hostNetwork": True}])
def test_pods_with_the_machines_configuration(pods: Any, spec: Json) -> None:
    said = pods.says("reader", "cat /etc/resolv.conf", **spec)
    machine = Path("/etc/resolv.conf").read_text().splitlines()
    wanted = [line for line in machine if line.startswith("nameserver")]
    assert [line for line in said.splitlines() if line.startswith("nameserver")] == wanted[:3]


def test_a_cluster_without_dns_leaves_it_to_others(
    tmp_path: Path, own_clusters: Any, own_pods: Callable[[Any, str], Any]
) -> None:
    cluster = own_clusters.own(tmp_path)
    try:
        running = cluster.up("--nodes=1", "--dns=none")
        pods = own_pods(running.api, "default")
        path = "/api/v1/namespaces/kube-system/services"
        assert running.api.get(path)["items"] == []
        pods.says("before", "cat /etc/resolv.conf")
        assert pods.events("before", "MissingClusterDNS")
        port = {"name": "dns", "port": 53, "protocol": "UDP"}
        spec = {"clusterIP": "10.96.0.77", "ports": [port]}
        running.api.create(path, {"metadata": {"name": "kube-dns"}, "spec": spec})
        assert "nameserver 10.96.0.77" in pods.says("after", "cat /etc/resolv.conf")
    finally:
        cluster.down()


LOOP = """exec python3 - <<'END'
import socket, time
open("/told/ready", "w").close()
failures, slowest, count, end = 0, 0.0, 0, time.monotonic() + 6
while time.monotonic() < end:
    begun = time.monotonic()
    try:
        socket.getaddrinfo("kubernetes.default", 443, type=socket.SOCK_STREAM)
    except OSError:
        failures += 1
    count += 1
    slowest = max(slowest, time.monotonic() - begun)
    time.sleep(0.01)
print(failures, count > 100, slowest < 4)
END"""


def test_names_resolve_while_the_agent_is_killed_again_and_again(
    tmp_path: Path,
    own_clusters: Any,
    own_pods: Callable[[Any, str], Any],
    eventually: Callable[..., Any],
) -> None:
    cluster = own_clusters.own(tmp_path)
    told = cluster.home / "told"
    told.mkdir(mode=0o777)
    told.chmod(0o777)
    try:
        pods = own_pods(cluster.up("--nodes=1").api, "default")
        node = cluster.state / "nodes" / "node-1"

        def kill() -> int:
            """Kill the agent once another one than the last is at work."""
            found = eventually(lambda: process.running(node, "node"))
            os.kill(found.pid, signal.SIGKILL)
            eventually(lambda: (now := process.running(node, "node")) and now.pid != found.pid)
            return int(found.pid)

        volume = {"name": "told", "hostPath": {"path": str(told)}}
        mount = {"volumeMounts": [{"name": "told", "mountPath": "/told"}]}
        script = f"({LOOP}\n) > /dev/termination-log 2>&1"
        pods.create("loop", script, restartPolicy="Never", volumes=[volume], container=mount)
        eventually((told / "ready").exists)
        assert len({kill(), kill()}) == 2
        ended = pods.over("loop", 30)["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["message"].strip() == "0 True True"
    finally:
        cluster.down()


def test_a_pod_finds_the_keys_of_account_tokens(pods: Any) -> None:
    assert pods.says("verifier", KEYS) == "https://kubernetes.default.svc.cluster.local 1"
