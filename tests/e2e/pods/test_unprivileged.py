"""A cluster of a user who is not root: pods run and have a network, and what cannot be enforced is
said."""

import http.server
import json
import os
import re
import shutil
import signal
import socket
import socketserver
import tempfile
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.pods.user_network import Echo, Page, ask, running, served, shell

from kedge.cli.cluster import process
from kedge.machinery.interfaces import own_addresses
from kedge.node.network.forward import PER_SOURCE
from kedge.node.network.way_out import is_outside
from kedge.supervisor.sockets import supervisor

if TYPE_CHECKING:
    from tests.e2e.conftest import User

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or "KEDGE_E2E_KUBECONFIG" in os.environ
    or not all(shutil.which(tool) for tool in ("setpriv", "kubectl")),
    reason="becoming another user takes root and setpriv; and a cluster of our own, and kubectl",
)


def test_pods_run_without_root(ordinary_user: "User", eventually: Callable[..., Any]) -> None:
    assert "'kedge doctor' shows what this machine lacks" in ordinary_user.does("up", "--nodes=1")
    doctor = json.loads(ordinary_user.does("doctor", "-o", "json"))
    assert doctor["level"] in ("userns", "plain")
    checks = {each["name"]: each for each in doctor["checks"]}
    assert checks["memory limits"]["status"] == "lacks"
    assert checks["memory limits"]["mend"]
    assert ordinary_user.kedge("doctor", "--strict").returncode == 2
    level = ordinary_user.reads("get", "node", "node-1", "-o=jsonpath={.metadata.labels}")
    assert json.loads(level)["kedge.dev/level"] in ("userns", "plain")
    assert "level userns" in ordinary_user.does("status") or "level plain" in ordinary_user.does(
        "status"
    )
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", "echo hello; exec sleep 1000"],
        "resources": {"limits": {"memory": "64Mi", "cpu": "250m"}},
    }
    free = {"name": "free", "image": "host", "command": ["sleep", "1000"]}
    spec = json.dumps({"spec": {"containers": [container, free]}})
    ordinary_user.reads("run", "limited", "--image=host", f"--overrides={spec}")
    ordinary_user.reads("wait", "--for=condition=Ready", "pod/limited", "--timeout=30s")
    eventually(lambda: ordinary_user.reads("logs", "limited", "-c=main") == "hello")
    assert ordinary_user.reads("exec", "limited", "-c=main", "--", "echo", "inside") == "inside"
    header, row = ordinary_user.reads("get", "pods", "-o=wide").splitlines()
    assert (header.split()[-1], row.split()[-1]) == ("LIMITS", "sampled")
    events = ordinary_user.reads(
        "get", "events", "--field-selector=reason=NotEnforced", "-o=jsonpath={.items[*].message}"
    )
    assert "limit is not enforced" not in events
    check_cpu_limit(ordinary_user)
    ordinary_user.reads("delete", "pod", "limited", "--now")
    greedy = "x = bytearray(200 << 20); import time; time.sleep(1000)"
    container |= {"command": ["python3", "-c", greedy]}
    spec = json.dumps({"spec": {"containers": [container], "restartPolicy": "Never"}})
    ordinary_user.reads("run", "greedy", "--image=host", f"--overrides={spec}")
    # Files in memory count as well.
    fill = (
        "head -c 60M /dev/zero > /files/zero; x=$(head -c 16M /dev/zero | tr '\\0' x); sleep 1000"
    )
    mounts = [{"name": "files", "mountPath": "/files"}]
    container |= {"command": ["sh", "-c", fill], "volumeMounts": mounts}
    volumes = [{"name": "files", "emptyDir": {"medium": "Memory"}}]
    whole = {"containers": [container], "volumes": volumes, "restartPolicy": "Never"}
    spec = json.dumps({"spec": whole})
    ordinary_user.reads("run", "filler", "--image=host", f"--overrides={spec}")
    phase = "--for=jsonpath={.status.phase}=Failed"
    ordinary_user.reads("wait", phase, "pod/greedy", "--timeout=30s")
    told = "-o=jsonpath={.status.containerStatuses[0].state.terminated}"
    ended = json.loads(ordinary_user.reads("get", "pod", "greedy", told))
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    assert re.search(r"used \d+ bytes of memory; its limit is 67108864", ended["message"])
    ordinary_user.reads("wait", phase, "pod/filler", "--timeout=30s")
    assert '"reason":"OOMKilled"' in ordinary_user.reads("get", "pod", "filler", told)
    sampled = ordinary_user.reads(
        "get", "events", "--field-selector=reason=LimitsSampled", "-o=jsonpath={.items[*].message}"
    )
    assert "the use of memory" in sampled
    assert "while it exceeds its cpu limit" in sampled
    ordinary_user.reads("delete", "pod", "greedy", "filler", "--now")
    ordinary_user.does("down", "--purge")
    assert not list((ordinary_user.home / "states" / "kedge").glob("*"))
    assert str(ordinary_user.home) not in Path("/proc/self/mountinfo").read_text()
    assert not running(ordinary_user.home)


BURN = """
import time
def read():
    with open("/proc/self/schedstat") as file:
        ran, waited, _ = file.read().split()
    return time.monotonic(), int(ran) / 1e9, int(waited) / 1e9
def spin(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
spin(1)
before = read()
spin(10)
passed, ran, waited = (after - each for after, each in zip(read(), before))
print(ran / passed, waited / passed)
"""


def check_cpu_limit(user: "User") -> None:
    """A busy program gets its limit of 250m within a tenth over ten seconds. What it waits for a
    busy machine to run it is not the limit's shortfall."""
    ran, waited = map(
        float, user.reads("exec", "limited", "-c=main", "--", "python3", "-c", BURN).split()
    )
    assert ran < 1.1 * 0.25
    assert ran + waited > 0.9 * 0.25


def test_a_cluster_is_taken_down_beside_one_of_root(
    ordinary_user: "User", machine_user: Any
) -> None:
    with machine_user(0) as root:
        root.does("up", "--nodes=1")
        spec = json.dumps({"spec": {"hostUsers": False}})
        root.reads("run", "own", "--image=host", f"--overrides={spec}", "--", "sleep", "1000")
        ordinary_user.does("up", "--nodes=1")
        ordinary_user.does("down", "--purge")
        assert not running(ordinary_user.home)


def test_homes_are_hidden_in_the_image_host(
    ordinary_user: "User", eventually: Callable[..., Any]
) -> None:
    with tempfile.TemporaryDirectory(dir="/home", prefix="kedge-test-") as directory:
        key = Path(directory) / "key"
        key.write_text("a private key")
        os.chmod(directory, 0o755)
        ordinary_user.does("up", "--nodes=1")
        script = f"cat {key} || ls -A /home; echo done"
        ordinary_user.reads("run", "h", "--image=host", "--restart=Never", "--", "sh", "-c", script)
        eventually(lambda: "done" in ordinary_user.kubectl("logs", "h").stdout)
        said = ordinary_user.reads("logs", "h")
        assert "a private key" not in said
        assert Path(directory).name not in said.splitlines()


def test_a_pod_with_users_of_its_own_is_refused(
    ordinary_user: "User", eventually: Callable[..., Any]
) -> None:
    ordinary_user.does("up", "--nodes=1")
    spec = json.dumps({"spec": {"hostUsers": False}})
    ordinary_user.reads("run", "own", "--image=host", f"--overrides={spec}", "--", "sleep", "1000")
    path = "-o=jsonpath={.items[*].message}"
    chosen = "--field-selector=reason=FailedCreatePodSandBox"
    eventually(lambda: ordinary_user.reads("get", "events", chosen, path))
    said = ordinary_user.reads("get", "events", chosen, path)
    assert "can't set `spec.hostUsers: false`, runtime does not support user namespaces" in said
    assert "this node has the level" in said
    handlers = "-o=jsonpath={.status.runtimeHandlers[0].features.userNamespaces}"
    assert ordinary_user.reads("get", "node", "node-1", handlers) == "false"
    assert ordinary_user.reads("get", "pod", "own", "-o=jsonpath={.status.phase}") == "Pending"


WEB = "cd /tmp && echo page > index.html && exec python3 -m http.server 8000"


def deploy(user: "User", name: str = "web") -> None:
    """A Deployment with an HTTP probe, ready, and its Service."""
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", WEB],
        "readinessProbe": {"httpGet": {"port": 8000}, "periodSeconds": 1},
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": spec,
    }
    created = user.kubectl("apply", "-f", "-", input=json.dumps(made))
    assert created.returncode == 0, created.stderr
    user.reads("rollout", "status", f"deployment/{name}", "--timeout=60s")
    user.reads("expose", f"deployment/{name}", "--port=80", "--target-port=8000")


@pytest.fixture
def networked(ordinary_user: "User") -> "User":
    """A user whose pods have addresses."""
    ordinary_user.does("up", "--nodes=1")
    status = ordinary_user.does("status")
    if "services: nftables" not in status:
        pytest.skip(f"this kernel gives ordinary users no network: {status}")
    return ordinary_user


def test_an_http_probe_makes_a_deployment_ready_and_its_service_answers(
    networked: "User", eventually: Callable[..., Any]
) -> None:
    deploy(networked)
    shell(networked)
    eventually(lambda: ask(networked, "http://web") == "page")
    assert ask(networked, "http://web.default.svc.cluster.local") == "page"
    path = "/api/v1/namespaces/default/services/web/proxy/"
    assert networked.reads("get", "--raw", path) == "page"


def own_address() -> str:
    """An address of the machine that is not a loopback one."""
    # Those of the clusters of root belong to no interface, or are named like those of our pods.
    found = [each for each in own_addresses() if ":" not in each and is_outside(IPv4Address(each))]
    if not found:
        pytest.skip("this machine has no address besides loopback")
    return found[0]


def test_pods_reach_the_outside_but_not_the_machines_loopback(networked: "User") -> None:
    shell(networked)
    here = own_address()
    with served(http.server.HTTPServer((here, 0), Page)) as port:
        assert ask(networked, f"http://{here}:{port}") == "outside"
    with served(http.server.HTTPServer(("127.0.0.1", 0), Page)) as port:
        for address in ("127.0.0.1", "0.0.0.0", "127.1.2.3", here, "10.244.0.1", "10.96.0.1"):
            assert ask(networked, f"http://{address}:{port}") == "", address
    talk = """import socket, sys
channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
channel.settimeout(3)
for word in ("one", "two"):
    channel.sendto(word.encode(), (sys.argv[1], int(sys.argv[2])))
    print(channel.recv(100).decode())"""
    words = ("exec", "shell", "--", "python3", "-c", talk)
    with served(socketserver.UDPServer((here, 0), Echo)) as port:
        assert networked.reads(*words, here, str(port)) == "one\ntwo"
    with served(socketserver.UDPServer(("127.0.0.1", 0), Echo)) as port:
        assert networked.kubectl(*words, "127.0.0.1", str(port)).returncode != 0


def test_a_host_port_at_the_address_of_the_node_is_served_in_the_network(
    networked: "User", eventually: Callable[..., Any]
) -> None:
    """The machine does not have that address."""
    shell(networked)
    address = networked.reads("get", "node", "node-1", "-o=jsonpath={.status.addresses[0].address}")
    port = {"containerPort": 8000, "hostPort": 54323, "hostIP": address}
    container = {"name": "p", "image": "host", "command": ["sh", "-c", WEB], "ports": [port]}
    spec = json.dumps({"spec": {"containers": [container]}})
    networked.reads("run", "ported", "--image=host", f"--overrides={spec}")
    networked.reads("wait", "--for=condition=Ready", "pod/ported", "--timeout=60s")
    eventually(lambda: ask(networked, f"http://{address}:54323") == "page")


def test_one_pod_cannot_use_up_the_way_out(networked: "User") -> None:
    shell(networked)
    here = own_address()
    flood = f"""import select, socket, sys, time
poll, held, refused = select.poll(), [], 0
for _ in range(400):
    held.append(socket.create_connection(("{here}", int(sys.argv[1])), 5))
    poll.register(held[-1], select.POLLIN)
def ended(milliseconds):
    found = [number for number, _ in poll.poll(milliseconds)]
    for number in found:
        poll.unregister(number)
    return len(found)
until = time.monotonic() + 20
while refused < {400 - PER_SOURCE} and time.monotonic() < until:
    refused += ended(200)
print(refused + ended(500), flush=True)
sys.stdin.read()"""
    with socket.create_server((here, 0), backlog=500) as silent:
        port = str(silent.getsockname()[1])
        refused = networked.kubectl("exec", "shell", "--", "python3", "-c", flood, port).stdout
    assert 400 - PER_SOURCE <= int(refused) < 400
    with served(http.server.HTTPServer((here, 0), Page)) as again:
        assert ask(networked, f"http://{here}:{again}") == "outside"


def test_the_network_outlives_the_agent_and_comes_back_after_the_supervisor(
    networked: "User", eventually: Callable[..., Any]
) -> None:
    deploy(networked)
    shell(networked)
    eventually(lambda: ask(networked, "http://web") == "page")
    node = networked.states / "default" / "nodes" / "node-1"
    addresses = ("get", "pods", "-o=jsonpath={.items[*].status.podIP}")
    before = networked.reads(*addresses)
    found = process.running(node, "node")
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    eventually(lambda: (now := process.running(node, "node")) and now.pid != found.pid)
    eventually(lambda: ask(networked, "http://web") == "page")
    assert networked.reads(*addresses) == before
    os.kill(supervisor(str(node / "runtime")), signal.SIGKILL)
    eventually(lambda: ask(networked, "http://web") == "page", 60)


def test_clusters_of_one_user_have_networks_of_their_own(
    networked: "User", eventually: Callable[..., Any]
) -> None:
    deploy(networked)
    networked.does("up", "--name=other", "--nodes=2")
    shell(networked)
    assert ask(networked, "http://web") == ""
    deploy(networked)
    eventually(lambda: ask(networked, "http://web") == "page")
    networked.does("down", "--name=other", "--purge")
    networked.reads("config", "use-context", "kedge-default")
    shell(networked)
    eventually(lambda: ask(networked, "http://web") == "page")
