"""Pods of different machines reach each other; network namespaces stand for the machines.

Each test runs on machines of one network segment, which use routes, and on machines behind a
router, which use VXLAN.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from kedge.node.network import peer_links
from kedge.testing.machines import LINK, Machine, Wiring

TOOLS = ("nsenter", "unshare", "kubectl")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or "KEDGE_E2E_KUBECONFIG" in os.environ
    or not all(shutil.which(tool) for tool in TOOLS),
    reason=f"network namespaces take root, a cluster of our own, and {', '.join(TOOLS)}",
)

Eventually = Callable[..., Any]

SERVER = """
import socket, socketserver, threading, os
WHO, SEEN = os.environ["WHO"], set()
class Hear(socketserver.StreamRequestHandler):
    def handle(self):
        asked = self.rfile.readline().split()
        if asked[:1] == [b"give"]:
            self.wfile.write(bytes(int(asked[1])))
        elif asked[:1] == [b"seen"]:
            self.wfile.write(str(asked[1] in SEEN).encode())
        elif asked[:1] == [b"echo"]:
            for line in self.rfile:
                self.wfile.write(line)
        else:
            self.wfile.write(f"{WHO} {self.client_address[0]}\\n".encode())
class Threads(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 100
def datagrams():
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.bind(("", 8080))
    while True:
        data, sender = here.recvfrom(65535)
        SEEN.add(data)
        here.sendto(f"{WHO} {sender[0]} {len(data)}".encode(), sender)
threading.Thread(target=datagrams, daemon=True).start()
Threads(("", 8080), Hear).serve_forever()
"""

CLIENT = """
import socket, sys
def ask(host, port, words):
    with socket.create_connection((host, int(port)), 5) as there:
        there.settimeout(15)
        there.sendall(words.encode() + b"\\n")
        there.shutdown(socket.SHUT_WR)
        said = bytearray()
        while piece := there.recv(1 << 16):
            said += piece
        return said
def send(host, port, size):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.settimeout(2)
        for _ in range(5):
            there.sendto(bytes(int(size)), (host, int(port)))
            try:
                return there.recv(1000).decode()
            except OSError:
                pass
        return "nothing"
kind, host, port, what = sys.argv[1:]
if kind == "send":
    print(send(host, port, what))
else:
    said = ask(host, port, what)
    print(len(said) if what.startswith("give") else said.decode().strip())
"""

TRAFFIC = """
import socket, sys, time
host, until = sys.argv[1], time.monotonic() + float(sys.argv[2])
kept = socket.create_connection((host, 8080), 5)
kept.sendall(b"echo\\n")
answers, made, failed = kept.makefile("rb"), 0, []
print("started", flush=True)
while time.monotonic() < until:
    kept.sendall(b"still there\\n")
    assert answers.readline() == b"still there\\n"
    try:
        with socket.create_connection((host, 8080), 3) as new:
            new.sendall(b"who\\n")
            assert new.recv(100)
        made += 1
    except OSError as error:
        failed.append(str(error))
    time.sleep(0.02)
print(made, failed, flush=True)
"""


FORGE = """
import socket, struct, sys
from ipaddress import IPv4Address, IPv4Network
from kedge.node.network import tunnel
way, machine, source, target, mark = sys.argv[1:]
datagram = struct.pack(">HHHH", 8080, 8080, 8 + len(mark), 0) + mark.encode()
ends = IPv4Address(source).packed + IPv4Address(target).packed
def head(checksum):
    return struct.pack(">BBHHHBBH", 69, 0, 20 + len(datagram), 1, 0, 64, 17, checksum) + ends
total = sum(struct.unpack(">10H", head(0)))
packet = head(~(total % 65535) & 65535) + datagram
if way == "routes":
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw.sendto(packet, (target, 0))
else:
    network = IPv4Network(target + "/24", strict=False)
    number = tunnel.number(network) << 8
    frame = tunnel.hardware_address(network) + bytes(6) + tunnel.IPV4 + packet
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.sendto(struct.pack(">II", 8 << 24, number) + frame, (machine, tunnel.PORT))
"""

TABLES = """
from kedge.node.network.nftables.channel import NftablesSocket
print(sorted(NftablesSocket().tables()))
"""


class World:
    """A cluster on two machines: the server and two nodes on `a`, the node `far` on `b`."""

    def __init__(self, directory: Path, way: str) -> None:
        self.way = way
        self.a, self.b = Machine(directory / "a"), Machine(directory / "b")
        self.wiring = Wiring()
        self._agent: subprocess.Popen[bytes] | None = None
        if way == "routes":
            self._connect_directly()
        else:
            self._connect_by_router()
        self.name = f"e2e-{uuid.uuid4().hex[:8]}"
        self.near = self.far = ""
        """The addresses of two pods, one on each machine."""

    def _connect_directly(self) -> None:
        self.wiring.add_segment("one")
        for machine, address in (self.a, "10.213.1.10/24"), (self.b, "10.213.1.11/24"):
            self.wiring.connect(machine, "one", IPv4Interface(address), None)

    def _connect_by_router(self) -> None:
        for name, machine, third in ("one", self.a, 1), ("two", self.b, 2):
            router = IPv4Interface(f"10.213.{third}.1/24")
            self.wiring.add_segment(name, router)
            address = IPv4Interface(f"10.213.{third}.{9 + third}/24")
            self.wiring.connect(machine, name, address, router)

    def start(self) -> None:
        self.a.kedge("up", f"--name={self.name}", "--host=0.0.0.0", "--nodes=2")
        self.start_agent(*self.a.join_arguments(), "--node-name=far")
        self.near = self.create_server("near", "node-1")
        self.far = self.create_server("far", "far")

    def start_agent(self, *arguments: str) -> None:
        self._agent = self.b.start_node(f"--name={self.name}", *arguments)

    def kill_agent(self) -> None:
        assert self._agent is not None
        self._agent.kill()
        self._agent.wait()

    def stop_agent(self) -> None:
        if self._agent is not None and self._agent.poll() is None:
            self._agent.send_signal(signal.SIGTERM)
            self._agent.wait(30)

    def end(self) -> None:
        self.stop_agent()
        self.b.end()
        self.a.end()
        self.wiring.end()

    def create(self, document: dict[str, Any]) -> None:
        self.a.kubectl("apply -f -", given=json.dumps({"apiVersion": "v1", **document}))

    def create_server(self, name: str, node: str) -> str:
        """Create a pod that tells who it is and who asks; return its address."""
        container = {
            "name": "main",
            "image": "host",
            "command": ["python3", "-c", SERVER],
            "env": [{"name": "WHO", "value": name}],
            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        }
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
        meta = {"name": name, "labels": {"app": name}}
        self.create({"kind": "Pod", "metadata": meta, "spec": spec})
        self.a.kubectl(f"wait --for=condition=Ready pod/{name} --timeout=60s")
        return self.a.kubectl(f"get pod {name} -o jsonpath={{.status.podIP}}")

    def asks(self, pod: str, host: str, what: str = "who", port: int = 8080) -> str:
        """What a pod gets from a server over TCP."""
        return self._client(pod, "ask", host, port, what)

    def sends(self, pod: str, host: str, size: int) -> str:
        """What a pod gets from a server to which it sends a datagram."""
        return self._client(pod, "send", host, 8080, str(size))

    def _client(self, pod: str, *arguments: object) -> str:
        words = ["kubectl", "exec", pod, "--", "python3", "-c", CLIENT, *map(str, arguments)]
        return self.a.says(*words)

    def machine_asks(self, machine: Machine, host: str, port: int = 8080) -> str:
        """What a program of a machine gets."""
        done = machine.run("python3", "-c", CLIENT, "ask", host, str(port), "who")
        return done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr[-200:]}"

    def expose(self, name: str, **spec: Any) -> dict[str, Any]:
        service = {
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {
                "selector": {"app": name},
                "ports": [
                    {"name": "tcp", "port": 8080},
                    {"name": "udp", "port": 8080, "protocol": "UDP"},
                ],
                **spec,
            },
        }
        self.create(service)
        found: dict[str, Any] = json.loads(self.a.kubectl(f"get service {name} -o json"))
        return found["spec"]

    def peer_routes(self, machine: Machine) -> set[str]:
        """The networks to which a machine has routes of kedge."""
        with machine.netlink() as inside:
            metrics = range(27000, 27256)
            return {
                str(route.network)
                for metric in metrics
                for route in peer_links.own_routes(inside, metric)
            }

    def tunnels(self, machine: Machine) -> set[str]:
        return {name for name in machine.links() if name.startswith("kvx")}


@pytest.fixture(scope="module", params=["routes", "vxlan"])
def world(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp(request.param), request.param)
    try:
        made.start()
        yield made
    finally:
        made.end()


def test_the_way_is_shown(world: World, eventually: Eventually) -> None:
    def said() -> bool:
        notes = "{.items[*].metadata.annotations.kedge\\.dev/node-network}"
        shown = world.a.kubectl(f"get nodes -o 'jsonpath={notes}'")
        return shown == " ".join(3 * [f"auto ({world.way})"])

    eventually(said)
    networks = world.a.kubectl("get nodes -o jsonpath={.items[*].spec.podCIDR}").split()
    assert len(set(networks)) == 3
    assert f"other machines: auto ({world.way})" in world.a.kedge("status")
    assert bool(world.tunnels(world.b)) == (world.way == "vxlan")


def test_pods_reach_each_other_by_their_own_addresses(world: World) -> None:
    near, far = world.near, world.far
    assert world.asks("near", far) == f"far {near}"
    assert world.asks("far", near) == f"near {far}"
    beside = world.create_server("beside", "node-2")
    assert world.asks("beside", far) == f"far {beside}"
    assert world.asks("far", beside) == f"beside {far}"
    assert world.asks("near", beside) == f"beside {near}"


def test_large_transfers_fit(world: World) -> None:
    near, far = world.near, world.far
    assert world.asks("near", far, "give 30000000") == "30000000"
    assert world.asks("far", near, "give 30000000") == "30000000"
    for size in (1400, 1472, 8000):
        assert world.sends("near", far, size) == f"far {near} {size}"


def test_services_and_names_lead_to_pods_of_the_other_machine(
    world: World, eventually: Eventually
) -> None:
    near, far = world.near, world.far
    address = world.expose("far")["clusterIP"]
    eventually(lambda: world.asks("near", address) == f"far {near}")
    assert world.asks("near", "far.default.svc.cluster.local") == f"far {near}"
    assert world.sends("near", address, 100) == f"far {near} 100"
    assert world.machine_asks(world.a, address).startswith("far ")
    # And the other way round; the API server is on the first machine.
    world.expose("near")
    eventually(lambda: world.asks("far", "near") == f"near {far}")
    connected = "import socket; socket.create_connection(('kubernetes.default', 443), 5)"
    world.a.says("kubectl", "exec", "far", "--", "python3", "-c", connected)


def test_a_node_port_of_one_machine_leads_to_a_pod_of_the_other(
    world: World, eventually: Eventually
) -> None:
    spec = world.expose("far", type="NodePort", sessionAffinity="ClientIP")
    port = spec["ports"][0]["nodePort"]
    address = machine_address(world.a)
    eventually(lambda: world.machine_asks(world.b, address, port).startswith("far "))
    assert world.machine_asks(world.a, address, port).startswith("far ")
    if world.way == "vxlan":
        assert world.machine_asks(world.a, "127.0.0.1", port).startswith("far ")
    # With policy Local, machines without a pod drop packets from outside, and pods see clients.
    world.expose("far", type="NodePort", externalTrafficPolicy="Local")
    eventually(lambda: world.machine_asks(world.b, address, port).startswith("failed"))
    outside = machine_address(world.b)
    eventually(
        lambda: world.machine_asks(world.a, outside, port) == f"far {machine_address(world.a)}"
    )


def test_logs_and_exec_work_across(world: World) -> None:
    world.a.kubectl(
        "run talker --image=host --restart=Never"
        ' --overrides=\'{"spec":{"nodeName":"far"}}\' -- echo from afar'
    )
    world.a.kubectl("wait --for=jsonpath={.status.phase}=Succeeded pod/talker --timeout=60s")
    assert world.a.kubectl("logs talker") == "from afar"
    assert world.a.kubectl("exec near -- echo hello") == "hello"


def test_connections_survive_killed_agents(world: World, eventually: Eventually) -> None:
    container = {
        "name": "main",
        "image": "host",
        "command": ["python3", "-u", "-c", TRAFFIC, world.far, "10"],
    }
    spec = {"nodeName": "node-1", "restartPolicy": "Never", "containers": [container]}
    world.create({"kind": "Pod", "metadata": {"name": "traffic"}, "spec": spec})
    eventually(lambda: "started" in world.a.run("kubectl", "logs", "traffic").stdout)
    world.kill_agent()
    pid = int((world.a.state / "nodes" / "node-1" / "node.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    world.start_agent()
    world.a.kubectl("wait --for=jsonpath={.status.phase}=Succeeded pod/traffic --timeout=60s")
    made, _, failed = world.a.kubectl("logs traffic").splitlines()[-1].partition(" ")
    assert failed == "[]"
    assert int(made) > 10


def test_packets_of_strangers_are_dropped(world: World, eventually: Eventually) -> None:
    """A machine may send from pods of its own nodes, and from no others."""
    near, far = world.near, world.far

    def arrives(mark: str) -> bool:
        return world.asks("near", near, f"seen {mark}") == "True"

    own = ("nsenter", f"--net={world.b.namespace.path}")
    forge(world, own, "elsewhere", source="10.244.77.7")
    forge(world, own, "itself", source=str(IPv4Address(near) + 1))
    if world.way == "vxlan":
        stranger = ("nsenter", f"--net={world.wiring.namespace.path}")
        forge(world, stranger, "stranger", source=far)
    # The same packet with a true source arrives, after those that are dropped.
    eventually(lambda: forge(world, own, "true", source=far) or arrives("true"))
    assert not any(map(arrives, ("elsewhere", "itself", "stranger")))


def test_a_node_that_leaves_takes_its_routes_along(world: World, eventually: Eventually) -> None:
    far_network = world.a.kubectl("get node far -o jsonpath={.spec.podCIDR}")
    assert world.peer_routes(world.a) == {far_network}
    own = IPv4Network("10.99.0.0/24")
    with world.a.netlink() as inside:
        inside.add_link_route(inside.index(LINK), own)
    world.stop_agent()
    world.b.kedge("down")
    world.a.kubectl("delete node far")
    eventually(lambda: not world.peer_routes(world.a))
    eventually(lambda: not world.tunnels(world.a))
    for machine in (world.b, world.a):
        machine.kedge("down", "--purge")
        assert machine.links() == {"lo", LINK}
        assert not world.peer_routes(machine)
        assert machine.says(sys.executable, "-c", TABLES) == "[]"
    with world.a.netlink() as inside:
        assert own in inside.routes()


def forge(world: World, enter: tuple[str, ...], mark: str, source: str) -> None:
    """Send a datagram to the pod `near` that claims to come from another pod."""
    words = [*enter, sys.executable, "-c", FORGE, world.way, machine_address(world.a)]
    subprocess.run([*words, source, world.near, mark], check=True, timeout=30)


def machine_address(machine: Machine) -> str:
    with machine.netlink() as inside:
        index = inside.index(LINK)
        return next(str(each.ip) for link, each in inside.addresses() if link == index)
