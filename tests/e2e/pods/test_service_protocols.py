"""Servers of other protocols than HTTP/1.1 behind Services: gRPC, HTTP/2, datagrams, SCTP.

A Service of type LoadBalancer has all three sorts of addresses. Pods ask at its cluster IP and at
the address of its load balancer, the machine asks at its node port.
"""

import importlib.util
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("full_level")

SERVER = (Path(__file__).parent / "protocol_server.py").read_text()
PACKAGES = "/packages"
PYTHON = os.path.realpath(sys.executable)
SCTP = 132

CALL = """
import sys, grpc
address = sys.argv[1]
with grpc.insecure_channel(address) as channel:
    grpc.channel_ready_future(channel).result(10)
    print(channel.unary_unary("/echo.Echo/Say")(b"hello", timeout=5).decode())
    print(*[each.decode() for each in channel.unary_stream("/echo.Echo/Count")(b"abc", timeout=5)])
"""
SEND = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
    channel.settimeout(5)
    channel.connect((host, int(port)))
    channel.send(b"hello")
    print(channel.recv(100).decode())
"""
CONNECT = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132) as channel:
    channel.settimeout(5)
    channel.connect((host, int(port)))
    channel.sendall(b"hello")
    print(channel.recv(100).decode())
"""
FETCH = "curl --silent --show-error --max-time 5 --http2-prior-knowledge http://$0/path"


def has_sctp() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, SCTP).close()
    except OSError:
        return False
    return True


class Addresses(NamedTuple):
    """The addresses of one port of a Service."""

    cluster: str
    balancer: str
    node: str


class Served:
    """Two pods with all servers, behind one Service."""

    def __init__(self, pods: Any, eventually: Callable[..., Any]) -> None:
        if importlib.util.find_spec("h2") is None or importlib.util.find_spec("grpc") is None:
            pytest.skip("the packages h2 and grpcio are not installed")
        self._pods = pods
        self._count = 0
        for name in ("one", "two"):
            self._start(name)
        ready = [pods.ready(name) for name in ("one", "two")]
        self._gateway = ready[0]["status"]["podIP"].rsplit(".", 1)[0] + ".1"
        ports = [
            {"name": "grpc", "port": 8001},
            {"name": "http2", "port": 8002},
            {"name": "datagrams", "port": 8003, "protocol": "UDP"},
        ]
        if has_sctp():
            ports.append({"name": "sctp", "port": 8004, "protocol": "SCTP"})
        spec = {"type": "LoadBalancer", "selector": {"app": "served"}, "ports": ports}
        path = pods.path.replace("/pods", "/services")
        pods.api.create(path, {"metadata": {"name": "served"}, "spec": spec})
        balanced = "status", "loadBalancer", "ingress"

        def ingress() -> Any:
            found = pods.api.get(f"{path}/served")
            for key in balanced:
                found = found.get(key, {})
            return found

        self._balancer = eventually(ingress)[0]["ip"]
        self._service = pods.api.get(f"{path}/served")["spec"]

    def _start(self, name: str) -> None:
        env = {"WHO": name, "SCTP": "yes" if has_sctp() else "", "PROGRAM": SERVER}
        container = {
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "readinessProbe": {"tcpSocket": {"port": 8001}, "periodSeconds": 1},
        }
        meta = {"labels": {"app": "served"}}
        self._create(name, f'exec {PYTHON} -c "$PROGRAM"', container, metadata=meta)

    def _create(self, name: str, script: str, container: Json, **spec: Any) -> None:
        """Make a pod with the packages of this interpreter, wherever they are on the machine."""
        places = {"packages": (sysconfig.get_path("purelib"), PACKAGES)}
        if sys.base_prefix != "/usr":
            places["python"] = (sys.base_prefix, sys.base_prefix)
        container["volumeMounts"] = [
            {"name": each, "mountPath": inside, "readOnly": True}
            for each, (_, inside) in places.items()
        ]
        container["env"] = [*container.get("env", ()), {"name": "PYTHONPATH", "value": PACKAGES}]
        volumes = [
            {"name": each, "hostPath": {"path": outside}} for each, (outside, _) in places.items()
        ]
        self._pods.create(name, script, container=container, volumes=volumes, **spec)

    def at(self, name: str) -> Addresses:
        port = next(each for each in self._service["ports"] if each["name"] == name)
        return Addresses(
            f"{self._service['clusterIP']}:{port['port']}",
            f"{self._balancer}:{port['port']}",
            f"{self._gateway}:{port['nodePort']}",
        )

    def from_pod(self, script: str, address: str) -> str:
        """Return what a client in a pod hears at an address."""
        self._count += 1
        name = f"client-{self._count}"
        container = {"env": [{"name": "CLIENT", "value": script}]}
        told = f'{PYTHON} -c "$CLIENT" {address} > /dev/termination-log 2>&1'
        if script == FETCH:
            told = f'sh -c "$CLIENT" {address} > /dev/termination-log 2>&1'
        self._create(name, told, container, restartPolicy="Never")
        ended = self._pods.over(name)["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == 0, ended
        said: str = ended["message"]
        return said.strip()

    def from_machine(self, script: str, address: str) -> str:
        program = ["sh", "-c"] if script == FETCH else [sys.executable, "-c"]
        done = subprocess.run(
            [*program, script, address], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def answers(self, name: str, script: str) -> list[str]:
        """Return the answers at the cluster IP, the load balancer and the node port."""
        addresses = self.at(name)
        return [
            self.from_pod(script, addresses.cluster),
            self.from_pod(script, addresses.balancer),
            self.from_machine(script, addresses.node),
        ]


@pytest.fixture
def served(pods: Any, eventually: Callable[..., Any]) -> Served:
    return Served(pods, eventually)


def test_grpc_http2_and_datagrams_pass_at_every_address(served: Served) -> None:
    for answer in served.answers("grpc", CALL):
        said, counted = answer.splitlines()
        assert said in ("one hello", "two hello")
        assert counted == "a b c"
    for answer in served.answers("http2", FETCH):
        assert answer in ("one /path", "two /path")
    for answer in served.answers("datagrams", SEND):
        assert answer in ("one hello", "two hello")


@pytest.mark.skipif(not has_sctp(), reason="this kernel has no SCTP (CONFIG_IP_SCTP)")
def test_sctp_passes_at_every_address(served: Served) -> None:
    for answer in served.answers("sctp", CONNECT):
        assert answer in ("one hello", "two hello")
