"""Programs reach pods through Services: from pods, from the machine, and without an agent.

Programs of the machine reach the cluster IPs of one cluster only, the first one. So tests ask for
cluster IPs from pods, and for node ports at the address of the node's bridge.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.cluster import process
from kedge.node.network.bridge import link_name
from kedge.node.network.nftables.channel import NftablesSocket

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("pod_network")

SERVER = """exec python3 - <<'END'
import os, socket, threading
name = os.environ["WHO"].encode()
def datagrams():
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    channel.bind(("0.0.0.0", 8000))
    while True:
        _, sender = channel.recvfrom(100)
        channel.sendto(name, sender)
threading.Thread(target=datagrams, daemon=True).start()
listener = socket.create_server(("0.0.0.0", 8000), backlog=128)
while True:
    connection, peer = listener.accept()
    with connection:
        connection.sendall(name + b" " + peer[0].encode())
END"""
"""Says its name to each client, over TCP and UDP."""

CLIENT = """python3 - <<'END'
import socket
def ask(port=80):
    with socket.create_connection(("{address}", port), 3) as channel:
        return channel.recv(100).decode().split()[0]
print(*[ask({port}) for _ in range({times})])
END"""


def server(pods: Any, name: str, app: str = "web", **spec: Any) -> Json:
    container = {
        "env": [{"name": "WHO", "value": name}],
        "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
        "ports": [{"name": "serve", "containerPort": 8000}],
    }
    pods.create(name, SERVER, metadata={"labels": {"app": app}}, container=container, **spec)
    ready: Json = pods.ready(name)
    return ready


class Services:
    """The Services of one namespace."""

    def __init__(self, api: Any, namespace: str, eventually: Callable[..., Any]) -> None:
        self.api = api
        self.path = f"/api/v1/namespaces/{namespace}/services"
        self.slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._eventually = eventually

    def create(self, name: str = "web", protocol: str = "TCP", **spec: Any) -> Json:
        port = {"port": 80, "targetPort": "serve", "protocol": protocol}
        if protocol == "UDP":
            port["targetPort"] = 8000
        whole = {"selector": {"app": "web"}, "ports": [port], **spec}
        made: Json = self.api.create(self.path, {"metadata": {"name": name}, "spec": whole})
        return made

    def wait(self, count: int, name: str = "web") -> None:
        """Wait until the Service has so many ready endpoints."""
        selector = f"labelSelector=kubernetes.io/service-name={name}"

        def ready() -> bool:
            found = self.api.get(f"{self.slices}?{selector}")["items"]
            endpoints = [each for one in found for each in one["endpoints"]]
            return len([each for each in endpoints if each["conditions"]["ready"]]) == count

        self._eventually(ready)
        time.sleep(0.2)


@pytest.fixture
def services(api: Any, namespace: str, eventually: Callable[..., Any]) -> Services:
    return Services(api, namespace, eventually)


def ask(address: str, port: int) -> str:
    with socket.create_connection((address, port), 3) as channel:
        return channel.recv(100).decode().split()[0]


class Asker:
    """Asks Services from pods of its own."""

    def __init__(self, pods: Any) -> None:
        self._pods = pods
        self._count = 0

    def __call__(self, address: str, port: int = 80, times: int = 20, **spec: Any) -> set[str]:
        """Return the names of all that answered."""
        self._count += 1
        script = CLIENT.format(address=address, port=port, times=times)
        return set(self._pods.says(f"asker-{self._count}", script, **spec).split())


@pytest.fixture
def asker(pods: Any) -> Asker:
    return Asker(pods)


def gateway_of(pod: Json) -> str:
    """Return the address of the machine on the bridge of the pod's node."""
    network: str = pod["status"]["podIP"].rsplit(".", 1)[0]
    return f"{network}.1"


def test_a_cluster_ip_leads_to_all_ready_pods(pods: Any, services: Services, asker: Asker) -> None:
    server(pods, "one")
    server(pods, "two")
    address = services.create()["spec"]["clusterIP"]
    services.wait(2)
    assert asker(address) == {"one", "two"}
    pods.delete("one")
    services.wait(1)
    assert asker(address) == {"two"}


def test_a_pod_reaches_itself_through_its_service(pods: Any, services: Services) -> None:
    address = services.create()["spec"]["clusterIP"]
    script = f"""exec python3 - <<'END'
import socket, threading, time
listener = socket.create_server(("0.0.0.0", 8000))
def serve():
    while True:
        listener.accept()[0].sendall(b"myself")
threading.Thread(target=serve, daemon=True).start()
while True:
    try:
        with socket.create_connection(("{address}", 80), 2) as channel:
            told = channel.recv(10).decode()
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
open("/dev/termination-log", "w").write(told)
END"""
    container = {"ports": [{"name": "serve", "containerPort": 8000}]}
    labels = {"labels": {"app": "web"}}
    pods.create("self", script, metadata=labels, container=container, restartPolicy="Never")
    ended = pods.over("self")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended.get("message") == "myself"


def test_a_node_port_leads_to_the_pods(
    pods: Any, services: Services, asker: Asker, from_machine: Callable[[str], str]
) -> None:
    gateway = gateway_of(server(pods, "one"))
    made = services.create(type="NodePort")
    services.wait(1)
    port = made["spec"]["ports"][0]["nodePort"]
    assert ask(from_machine(gateway), port) == "one"
    assert asker(gateway, port) == {"one"}
    services.api.merge(f"{services.path}/web", {"spec": {"selector": {"app": "other"}}})
    services.wait(0)
    with pytest.raises(ConnectionRefusedError):
        ask(from_machine(gateway), port)


def test_the_node_says_how_it_carries_services(node: Json) -> None:
    assert node["metadata"]["annotations"]["kedge.dev/service-proxy"] == "nftables"


def test_a_service_without_endpoints_refuses_at_once(pods: Any, services: Services) -> None:
    address = services.create()["spec"]["clusterIP"]
    time.sleep(0.5)
    script = f"""python3 - <<'END'
import socket, time
begun = time.monotonic()
for _ in range(20):
    try:
        socket.create_connection(("{address}", 80), 3)
    except ConnectionRefusedError:
        continue
print("refused" if time.monotonic() - begun < 2 else "late")
END"""
    assert pods.says("client", script) == "refused"


def test_session_affinity_keeps_a_client_with_one_pod(
    pods: Any, services: Services, asker: Asker
) -> None:
    for name in ("one", "two", "three"):
        server(pods, name)
    address = services.create(sessionAffinity="ClientIP")["spec"]["clusterIP"]
    services.wait(3)
    assert len(asker(address)) == 1
    services.api.merge(f"{services.path}/web", {"spec": {"sessionAffinity": "None"}})
    time.sleep(0.5)
    assert len(asker(address, times=30)) > 1


def test_a_udp_client_moves_when_its_pod_goes(
    pods: Any,
    services: Services,
    eventually: Callable[..., Any],
    from_machine: Callable[[str], str],
) -> None:
    gateway = from_machine(gateway_of(server(pods, "one")))
    made = services.create(protocol="UDP", type="NodePort")
    port = made["spec"]["ports"][0]["nodePort"]
    services.wait(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(0.3)
        client.bind(("0.0.0.0", 0))

        def answer() -> str:
            with contextlib.suppress(OSError):
                client.sendto(b"?", (gateway, port))
                return client.recv(100).decode()
            return ""

        eventually(lambda: answer() == "one")
        server(pods, "two")
        pods.delete("one")
        eventually(lambda: answer() == "two", 5)


def test_rules_follow_endpoints_quickly(
    pods: Any, services: Services, from_machine: Callable[[str], str]
) -> None:
    pod = server(pods, "one")
    one, gateway = pod["status"]["podIP"], from_machine(gateway_of(pod))
    made = services.create("manual", selector=None, type="NodePort")
    port = made["spec"]["ports"][0]["nodePort"]
    time.sleep(0.5)
    took = []
    for attempt in range(5):
        name = f"manual-{attempt}"
        document = {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "manual"}},
            "addressType": "IPv4",
            "ports": [{"port": 8000}],
            "endpoints": [{"addresses": [one]}],
        }
        services.api.create(services.slices, document)
        begun = time.monotonic()
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                assert ask(gateway, port) == "one"
                break
        took.append(time.monotonic() - begun)
        services.api.delete(f"{services.slices}/{name}")
        time.sleep(0.3)
    assert min(took) < 0.05, took


TRAFFIC = """python3 - <<'END'
import socket, time
end, count, failures = time.monotonic() + {seconds}, 0, []
while time.monotonic() < end:
    for address in (("{address}", 80), ("{gateway}", {port})):
        try:
            with socket.create_connection(address, 3) as channel:
                assert channel.recv(100)
            count += 1
        except OSError as error:
            failures.append(repr(error))
    time.sleep(0.005)
print("enough" if count > 100 else count, failures[:3])
END"""


def left_of(bridge: str) -> list[str]:
    """Return all that the machine has of a node's network."""
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    everything = [*routes.splitlines(), *os.listdir("/sys/class/net")]
    if os.geteuid() == 0:
        with contextlib.closing(NftablesSocket()) as channel:
            everything += channel.tables()
    return [each for each in everything if bridge in each]


def agent(own: Any, node: str) -> int:
    found = process.running(Path(own.state) / "nodes" / node, "node")
    return int(found.pid) if found else 0


@pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to kill it"
)
def test_killed_agents_interrupt_no_new_connection_and_down_leaves_nothing(
    own_cluster: Any, own_pods: Callable[[Any, str], Any], eventually: Callable[..., Any]
) -> None:
    cluster = own_cluster.up("--nodes=2")
    pods = own_pods(cluster.api, "default")
    services = Services(cluster.api, "default", eventually)
    server(pods, "one", nodeName="node-1")
    server(pods, "two", nodeName="node-2")
    made = services.create(type="NodePort")
    services.wait(2)
    address, port = made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]
    nodes = {"node-1": gateway_of(pods.get("two")), "node-2": gateway_of(pods.get("one"))}
    asker = Asker(pods)
    for node in nodes:
        assert asker(address, nodeName=node) == {"one", "two"}
    for node, gateway in nodes.items():
        script = TRAFFIC.format(seconds=9, address=address, gateway=gateway, port=port)
        told = f"({script}\n) > /dev/termination-log 2>&1"
        pods.create(f"traffic-{node}", told, restartPolicy="Never", nodeName=node)
        pods.when(f"traffic-{node}", lambda pod: pod["status"]["phase"] == "Running")
    for _ in range(2):
        time.sleep(1)
        for node in nodes:
            os.kill(agent(own_cluster, node), signal.SIGKILL)
        time.sleep(2)
        eventually(lambda: all(agent(own_cluster, node) for node in nodes))
    for node in nodes:
        ended = pods.over(f"traffic-{node}")["status"]["containerStatuses"][0]["state"]
        assert ended["terminated"]["message"].strip() == "enough []"
    status = own_cluster.kedge("status", *own_cluster.which)
    assert status.count("services: nftables") == len(nodes)
    bridges = [link_name("kbr", f"{own_cluster.state}/nodes/{node}/network") for node in nodes]
    level = cluster.api.get("/api/v1/nodes/node-1")["metadata"]["labels"]["kedge.dev/level"]
    # An ordinary user changes nothing of the machine.
    assert [bool(left_of(each)) for each in bridges] == [level == "full"] * 2
    own_cluster.down()
    assert [*map(left_of, bridges)] == [[], []]


def test_clusters_of_one_machine_keep_their_services_apart(
    pods: Any,
    services: Services,
    own_cluster: Any,
    own_pods: Callable[[Any, str], Any],
    eventually: Callable[..., Any],
) -> None:
    server(pods, "one")
    address = services.create()["spec"]["clusterIP"]
    other = own_cluster.up("--nodes=1")
    others = own_pods(other.api, "default")
    its = Services(other.api, "default", eventually)
    server(others, "two")
    its.create(clusterIP=address)
    services.wait(1)
    its.wait(1)
    asker = Asker(pods)
    assert asker(address) == {"one"}
    assert Asker(others)(address) == {"two"}
    own_cluster.down()
    assert asker(address) == {"one"}
