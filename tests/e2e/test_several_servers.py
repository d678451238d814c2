"""Three servers on one etcd: what they agree on, and what clients notice of a restart."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest
from tests.e2e.conftest import (
    NO_KUBECTL,
    Api,
    Cluster,
    Kubectl,
    OwnCluster,
    Refused,
    kubectls,
    private_environment,
)

from kedge.cli.cluster import process, server_parts
from kedge.client.transport import Call, Reply
from kedge.testing.etcd_process import EtcdMissing, EtcdProcess, three_members
from kedge.testing.server_process import ApiServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

SERVERS: Final = 3
CORE: Final = "/api/v1/namespaces/default"
SCHEDULING: Final = "/apis/scheduling.kedge/v1alpha1"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EtcdProcess]]:
    """Three members."""
    try:
        members = three_members(tmp_path_factory.mktemp("etcd"))
    except EtcdMissing as missing:
        pytest.skip(str(missing))
    yield members
    for member in members:
        member.kill()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """Started and stopped by the real commands; all tests use it, one after the other."""
    own = OwnCluster(tmp_path_factory.mktemp("several"))
    yield own
    own.kedge("down", *own.which, "--purge", "--yes")


@pytest.fixture(scope="module")
def cluster(etcd: list[EtcdProcess], own: OwnCluster) -> Cluster:
    """With one node, on one address."""
    return own.up("--store", store(etcd), f"--servers={SERVERS}", "--nodes=1")


def store(etcd: list[EtcdProcess]) -> str:
    return f"etcd://{','.join(member.endpoint for member in etcd)}"


def each_server(api: Api) -> list[Api]:
    """The servers by themselves, at the addresses that they have for each other."""
    found = []
    for lease in api.get(LEASES)["items"]:
        url = lease["metadata"].get("annotations", {}).get("kedge.io/server-url")
        if url:
            own = copy.copy(api)
            own.url, own._of_thread = url, threading.local()
            found.append(own)
    assert len(found) == SERVERS
    return found


def attempt(api: Api, path: str, document: dict[str, Any]) -> int:
    """Create an object; returns the code of the answer."""
    try:
        api.create(path, document)
    except Refused as refused:
        return refused.code
    return 201


def together(number: int, work: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(12) as pool:
        return list(pool.map(work, range(number)))


def test_quotas_names_ports_and_addresses_are_given_once(cluster: Cluster) -> None:
    servers = each_server(cluster.api)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "60"}}}
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "small"}})
    cluster.api.create("/api/v1/namespaces/small/resourcequotas", quota)
    path = "/api/v1/namespaces/small/configmaps"

    def create(i: int) -> int:
        return attempt(servers[i % SERVERS], path, {"metadata": {"name": f"c{i}"}})

    codes = together(200, create)
    for server in servers:
        found = [each["metadata"]["name"] for each in server.get(path)["items"]]
        assert len(found) == 60
        # The status has each of them before its create is acknowledged.
        status = server.get("/api/v1/namespaces/small/resourcequotas/q")["status"]
        assert status["used"] == {"count/configmaps": "60"}
        # One is of a controller.
        assert codes.count(201) == sum(name != "kube-root-ca.crt" for name in found)
    assert set(codes) == {201, 403}

    names = together(60, lambda i: attempt(servers[i % SERVERS], f"{CORE}/configmaps", named(i)))
    assert names.count(201) == 20

    def expose(i: int) -> int:
        spec = {
            "type": "NodePort",
            "clusterIP": f"10.96.200.{i // SERVERS + 1}",
            "ports": [{"port": 80, "nodePort": 32000 + i // SERVERS}],
        }
        body = {"metadata": {"name": f"s{i}"}, "spec": spec}
        return attempt(servers[i % SERVERS], f"{CORE}/services", body)

    exposed = together(30, expose)
    assert exposed.count(201) <= 10
    assert set(exposed) == {201, 422}
    free = together(30, lambda i: attempt(servers[i % SERVERS], f"{CORE}/services", drawn(i)))
    assert set(free) == {201}
    specs = [each["spec"] for each in cluster.api.get(f"{CORE}/services")["items"]]
    ports = [port["nodePort"] for spec in specs for port in spec["ports"] if "nodePort" in port]
    addresses = [spec["clusterIP"] for spec in specs]
    assert len(set(ports)) == len(ports)
    assert len(set(addresses)) == len(addresses)


def named(i: int) -> dict[str, Any]:
    return {"metadata": {"name": f"n{i // SERVERS}"}}


def drawn(i: int) -> dict[str, Any]:
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    return {"metadata": {"name": f"d{i}"}, "spec": spec}


def test_a_client_that_goes_from_server_to_server_sees_its_own_writes(cluster: Cluster) -> None:
    servers = each_server(cluster.api)
    role = {
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    }
    for i in range(40):
        one, other = servers[i % SERVERS], servers[(i + 1) % SERVERS]
        made = one.create(f"{CORE}/configmaps", {"metadata": {"name": f"c{i}"}})
        version = int(made["metadata"]["resourceVersion"])
        listed = other.get(f"{CORE}/configmaps")
        assert f"c{i}" in [each["metadata"]["name"] for each in listed["items"]]
        assert int(listed["metadata"]["resourceVersion"]) >= version
        other.merge(f"{CORE}/configmaps/c{i}", {"data": {"a": "b"}})
        assert one.get(f"{CORE}/configmaps/c{i}")["data"] == {"a": "b"}
    # A right counts on every server as soon as it is given.
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
    servers[0].create(f"{rbac}/roles", role)
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]}
    servers[1].create(f"{rbac}/rolebindings", binding)
    assert servers[2]("GET", f"{CORE}/configmaps", None, Impersonate_User="jane")["items"]
    servers[0].delete(f"{rbac}/rolebindings/b")
    with pytest.raises(Refused):
        servers[1]("GET", f"{CORE}/configmaps", None, Impersonate_User="jane")
    # So does a kind.
    plural, group = "gadgets", "example.com"
    definition = {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Gadget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    servers[0].create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = f"/apis/{group}/v1/namespaces/default/{plural}"
    deadline = time.perf_counter() + 10
    while not servers[0].serves(path) and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert servers[1].get(path)["items"] == []
    assert servers[2].get(path)["items"] == []


def test_what_requests_are_judged_by_counts_on_every_server_at_once(cluster: Cluster) -> None:
    servers = each_server(cluster.api)
    container = {"name": "c", "image": "web", "resources": {"limits": {"cpu": "2"}}}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [container], "serviceAccountName": "robot"},
    }
    most = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    for i in range(6):
        one, two, three = (servers[(i + k) % SERVERS] for k in range(SERVERS))
        name = f"judged-{i}"
        path = f"/api/v1/namespaces/{name}"
        # A namespace.
        one.create("/api/v1/namespaces", {"metadata": {"name": name}})
        two.create(f"{path}/serviceaccounts", {"metadata": {"name": "robot"}})
        # A LimitRange.
        three.create(f"{path}/limitranges", {"metadata": {"name": "l"}, "spec": most})
        assert attempt(one, f"{path}/pods", pod) == 403
        two.delete(f"{path}/limitranges/l")
        three.create(f"{path}/pods?dryRun=All", pod)
        # A quota.
        hard = {"hard": {"count/configmaps": "0"}}
        one.create(f"{path}/resourcequotas", {"metadata": {"name": "q"}, "spec": hard})
        made = {"metadata": {"name": "c"}}
        assert attempt(two, f"{path}/configmaps", made) == 403
        # A webhook, which nobody answers.
        hook = {
            "name": "nobody.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["secrets"],
                }
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
        }
        hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        one.create(hooks, {"metadata": {"name": name}, "webhooks": [hook]})
        secret = {"metadata": {"name": "s"}}
        assert attempt(three, f"{path}/secrets", secret) == 500
        two.delete(f"{hooks}/{name}")
        one.create(f"{path}/secrets", secret)
        # A token, and the account that it is of.
        asked = two.create(f"{path}/serviceaccounts/robot/token", {"spec": {}})
        user = three.stranger()
        user.token = asked["status"]["token"]
        reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        me = user.create(reviews, {})["status"]["userInfo"]["username"]
        assert me == f"system:serviceaccount:{name}:robot"
        one.delete(f"{path}/serviceaccounts/robot")
        assert attempt(user, reviews, {}) == 401
        # A namespace that ends.
        two.delete(path)
        late = {"metadata": {"name": "late"}}
        assert attempt(three, f"{path}/secrets", late) in (403, 404)


def test_a_watch_is_handed_from_server_to_server_without_a_gap(cluster: Cluster) -> None:
    servers = each_server(cluster.api)
    version = cluster.api.get(f"{CORE}/configmaps")["metadata"]["resourceVersion"]
    written: list[int] = []
    seen: list[int] = []
    for i in range(12):
        for j in range(5):
            server = servers[(i + j) % SERVERS]
            made = server.create(f"{CORE}/configmaps", {"metadata": {"name": f"w{i}-{j}"}})
            written.append(int(made["metadata"]["resourceVersion"]))
        watcher = servers[(i + 2) % SERVERS]
        # Part of what there is, then on with another server.
        wanted = len(seen) + 3 + i % 3
        url = f"{CORE}/configmaps?watch=1&resourceVersion={version}"
        with watcher.open(watcher.request("GET", url), timeout=10) as answer:
            while len(seen) < min(wanted, len(written)):
                event = json.loads(answer.readline())
                version = event["object"]["metadata"]["resourceVersion"]
                seen.append(int(version))
    assert seen == written[: len(seen)]
    assert len(seen) > 40


def serving_pod(eventually: Callable[..., Any], api: Api) -> None:
    """Run a pod that prints a line, and serves a page on port 8000."""
    script = "echo ready; cd $(mktemp -d); echo hello > page; exec python3 -m http.server 8000"
    listens = "import socket; socket.create_connection(('127.0.0.1', 8000))"
    probe = {"exec": {"command": ["python3", "-c", listens]}, "periodSeconds": 1}
    container = {"name": "c", "image": "host", "command": ["sh", "-c", script]}
    pod = {
        "metadata": {"name": "web"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [container | {"readinessProbe": probe}],
        },
    }
    api.create(f"{CORE}/pods", pod)

    def is_ready() -> bool:
        status = api.get(f"{CORE}/pods/web")["status"]
        found = {each["type"]: each["status"] for each in status.get("conditions", [])}
        return found.get("Ready") == "True"

    eventually(is_ready, 30)


def test_commands_logs_and_ports_of_pods_are_reached_through_every_server(
    cluster: Cluster, eventually: Callable[..., Any]
) -> None:
    program = next(iter(kubectls().values()), None)
    if program is None:
        pytest.skip(NO_KUBECTL)
    serving_pod(eventually, cluster.api)
    node = cluster.api.get("/api/v1/nodes")["items"][0]["metadata"]["name"]
    for server in each_server(cluster.api):
        kubectl = Kubectl(program, cluster, "default")
        kubectl.server = server.url
        done = kubectl(
            *("exec", "-i", "web", "--", "sh", "-c", "cat; echo err >&2; exit 42"),
            input="through\n",
            check=False,
        )
        assert (done.returncode, done.stdout) == (42, "through\n"), done.stderr
        assert "err" in done.stderr
        assert kubectl.says("logs", "web").startswith("ready")
        with kubectl.start("logs", "-f", "web") as lines:
            assert lines.next() == "ready"
            kubectl("exec", "web", "--", "sh", "-c", f"echo {server.url} > /proc/1/fd/1")
            assert lines.until(server.url)
        with kubectl.start("port-forward", "pod/web", ":8000") as lines:
            port = lines.until("Forwarding from 127.0.0.1").split(":")[1].split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=20) as answer:
                assert answer.read() == b"hello\n"
        assert kubectl.says("get", "--raw", f"/api/v1/nodes/{node}/proxy/healthz") == "ok"
        proxied = f"{CORE}/pods/web:8000/proxy/page"
        assert kubectl.says("get", "--raw", proxied) == "hello"
        # Only the leader of the schedulers knows.
        decision = server.get(f"{SCHEDULING}/namespaces/default/schedulingdecisions/web")
        assert decision["node"] == node
        listed = kubectl.says("get", "schedulingdecisions", "web", "-o", "name")
        assert listed == "schedulingdecision.scheduling.kedge/web"
    with pytest.raises(Refused) as refused:
        server("GET", f"{SCHEDULING}/schedulingdecisions", None, Impersonate_User="jane")
    assert refused.value.code == 403
    cluster.api.delete(f"{CORE}/pods/web")


class Client(threading.Thread):
    """Creates, reads and deletes, and tries again as kubectl does when it is told to, or when its
    connection breaks."""

    def __init__(self, api: Api, name: str) -> None:
        super().__init__(daemon=True)
        self.api = api
        self.prefix = name
        self.done = 0
        self.failures: list[tuple[str, int]] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            number += 1
            name = f"{self.prefix}-{number}"
            path = f"{CORE}/configmaps"
            self._do("POST", path, {"metadata": {"name": name}}, 201, 409)
            self._do("GET", f"{path}/{name}", None, 200, 200)
            self._do("DELETE", f"{path}/{name}", None, 200, 404)
            self.done += 3

    def _do(self, method: str, path: str, body: Any, good: int, again: int) -> None:
        """`again` is the answer if an earlier try has succeeded without an answer."""
        code = 0
        for number in range(10):
            try:
                self.api(method, path, body)
                return
            except Refused as refused:
                code = refused.code
                if code not in (429, 503, 504):
                    break
            except (OSError, http.client.HTTPException):
                code = -1
            time.sleep(0.1 * number)
        if number == 0 or code != again:
            self.failures.append((method, code))


def restarted(own: OwnCluster, part: str, number: signal.Signals) -> None:
    """End a server, and wait until it is back."""
    before = process.running(own.state, part)
    assert before is not None
    os.kill(before.pid, number)
    deadline = time.perf_counter() + 60
    while time.perf_counter() < deadline:
        record = own.state / f"{part}.json"
        if record.exists() and json.loads(record.read_bytes())["pid"] != before.pid:
            return
        time.sleep(0.05)
    raise AssertionError(f"{part} did not come back")


def test_no_request_of_a_retrying_client_fails_while_servers_are_restarted(
    cluster: Cluster, own: OwnCluster
) -> None:
    clients = [Client(cluster.api, f"retrying-{i}") for i in range(3)]
    for client in clients:
        client.start()
    first, *others = server_parts.parts(own.state)
    for part in (first, *others):
        restarted(own, part, signal.SIGTERM)
    restarted(own, first, signal.SIGKILL)
    for client in clients:
        client.is_over.set()
        client.join(30)
    assert [client.failures for client in clients] == [[], [], []]
    assert sum(client.done for client in clients) > 100
    status = json.loads(own.kedge("status", *own.which, "-o=json"))
    assert [each["status"] for each in status["servers"]] == ["Running"] * SERVERS


def leader(api: Api) -> str:
    holder = api.get(f"{LEASES}/kube-controller-manager")["spec"].get("holderIdentity", "")
    return str(holder)


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGTERM, 1.5), (signal.SIGKILL, 6.0)])
def test_another_server_leads_soon(
    cluster: Cluster, own: OwnCluster, number: signal.Signals, seconds: float
) -> None:
    """The promise is 1 s and 5 s; a busy machine gets a little more."""
    # It takes the leader up to 5 s to learn that it has competitors.
    renewed_fast(cluster.api)
    before = leader(cluster.api)
    _, _, replica = before.partition("_")[2].partition("_")
    found = process.running(own.state, server_parts.part_of(int(replica or 0)))
    assert found is not None
    if parent := process.running(own.state, "restarter"):
        os.kill(parent.pid, signal.SIGKILL)  # the old leader must not come back meanwhile
    began = time.perf_counter()
    os.kill(found.pid, number)
    after = before
    while after in (before, "") and time.perf_counter() < began + 15:
        with contextlib.suppress(Refused, OSError, http.client.HTTPException):
            after = leader(cluster.api)
        time.sleep(0.02)
    took = time.perf_counter() - began
    print(f"{number.name}: another server leads after {took:.2f} s")
    own.kedge("up", *own.which)  # starts the parent and the lost server
    assert took < seconds


def renewed_fast(api: Api) -> None:
    """Return when the leader renews its Lease as one that others wait for."""
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        spec = api.get(f"{LEASES}/kube-controller-manager")["spec"]
        if spec["holderIdentity"] and spec["leaseDurationSeconds"] < 10:
            return
        time.sleep(0.1)
    raise AssertionError("the leader does not know of other servers")


def test_every_server_has_the_usage_of_nodes(
    cluster: Cluster, eventually: Callable[..., Any]
) -> None:
    for server in each_server(cluster.api):
        path = "/apis/metrics.k8s.io/v1beta1/nodes"
        eventually(lambda server=server, path=path: server.get(path)["items"], 30)


def test_stores_of_one_server_and_other_keys_are_refused(
    etcd: list[EtcdProcess], cluster: Cluster, tmp_path: Path
) -> None:
    other = OwnCluster(tmp_path)
    for one in ("sqlite", "memory"):
        said = other.fails("up", *other.which, f"--store={one}", "--servers=2")
        assert "needs a store that servers can share" in said
    apart = ("server", "--name=other", f"--state={tmp_path / 'other'}", "--port=0")
    said = other.fails(*apart, "--store", store(etcd), code=78)
    assert "copy 'pki' and 'token'" in said
    assert cluster.api.get(LEASES)["items"]


def test_a_node_goes_to_the_next_server_when_its_server_dies(
    etcd: list[EtcdProcess], tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """The servers are as on two machines, each with a directory of its own."""
    own = OwnCluster(tmp_path)
    etcd_of_its_own = EtcdProcess.throwaway()
    servers = [ApiServerProcess(tmp_path / name, etcd_of_its_own.url) for name in ("one", "other")]
    node = None
    try:
        first, other = servers
        first.directory.mkdir(mode=0o700)
        first.spawn()
        first.wait()
        other.copy_keys(first)
        other.spawn()
        other.wait()
        which = ("--name=one", f"--state={first.directory}")
        join = own.kedge("token", "create", *which, "--print-join-command").split()
        urls = f"https://127.0.0.1:1,{first.url()},{other.url()}"
        join[join.index("--server") + 1] = urls
        node = subprocess.Popen(
            [sys.executable, "-m", *join, f"--state={tmp_path / 'node'}", "--node-name=hopping"],
            env=private_environment(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        lease = Call(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/hopping"
        )

        def renewed() -> str:
            reply = asyncio.run(once(other, lease))
            return str(json.loads(reply.body)["spec"]["renewTime"]) if reply.status == 200 else ""

        eventually(renewed, 30)
        first.end(signal.SIGKILL)
        before = renewed()
        eventually(lambda: renewed() != before, 30)
    finally:
        if node is not None:
            node.terminate()
            node.wait(20)
        own.kedge("down", f"--state={tmp_path / 'node'}", "--purge", "--yes")
        for server in servers:
            server.end()
        etcd_of_its_own.remove()


async def once(server: ApiServerProcess, call: Call) -> Reply:
    transport = server.transport()
    try:
        return await transport.send(call)
    finally:
        await transport.close()
