"""Services in user space: where the agent listens, and to which endpoint it forwards."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from kedge.api.builtin.service_networks import LOOPBACK_SERVICES, on_loopback
from kedge.node.network.bridge import Bridge
from kedge.node.network.forward import PortListener, RetryingListener
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.network.node_table import NodeTable
from kedge.node.runtime.runtime import SandboxConfig
from kedge.node.services.service_ports import (
    CarriedPort,
    EndpointChoice,
    EndpointTarget,
    NodePlace,
)
from kedge.node.services.service_watch import ServiceWatch
from kedge.node.services.userspace_proxy import (
    ListenedService,
    ServiceAddress,
    UserspaceProxy,
    choose_target,
    loopback_addresses,
    service_addresses,
    shared_network_addresses,
)
from kedge.testing.local_server import LocalServer
from kedge.testing.network import NetworkNamespace

ONE, TWO = (EndpointTarget(IPv4Address(f"10.244.0.{number}"), 8080) for number in (2, 3))


def port(cluster: tuple[EndpointTarget, ...] = (ONE, TWO), **more: Any) -> CarriedPort:
    whole = {
        "name": "",
        "protocol": "TCP",
        "cluster_addresses": (IPv4Address("10.96.0.5"),),
        "external_addresses": (),
        "balancer_addresses": (),
        "port": 80,
        "node_port": 30080,
        "choice": EndpointChoice(cluster, (TWO,) if cluster else ()),
        "is_internal_local": False,
        "is_external_local": False,
        **more,
    }
    return CarriedPort(**whole)


CLUSTER_IP = ServiceAddress("10.96.0.5", "TCP", 80)
NODE_PORT = ServiceAddress("0.0.0.0", "TCP", 30080)


@pytest.mark.parametrize(
    ("carried", "expected"),
    [
        (
            port(),
            {
                CLUSTER_IP: ListenedService((ONE, TWO), False),
                NODE_PORT: ListenedService((ONE, TWO), False),
            },
        ),
        (
            port(is_external_local=True, affinity_seconds=10),
            {
                CLUSTER_IP: ListenedService((ONE, TWO), True),
                NODE_PORT: ListenedService((TWO,), True),
            },
        ),
        # Without endpoints, connections to the cluster IP are closed, and others refused.
        (port(()), {CLUSTER_IP: ListenedService((), False)}),
        (port(protocol="SCTP"), {}),
    ],
)
def test_the_agent_listens_at_cluster_ips_and_node_ports(
    carried: CarriedPort, expected: dict[ServiceAddress, ListenedService]
) -> None:
    assert dict(service_addresses([carried])) == expected


BALANCER = (IPv4Address("10.97.0.1"),)


@pytest.mark.parametrize(
    ("carried", "ports"),
    [
        (port(), [30080]),
        (port(node_port=0), []),
        (port(port=8080, balancer_addresses=BALANCER), [30080, 8080]),
        # Only root may listen there.
        (port(port=80, balancer_addresses=BALANCER), [30080]),
        (
            port(
                port=8080,
                balancer_addresses=BALANCER,
                source_ranges=(IPv4Network("192.0.2.0/24"),),
            ),
            [30080],
        ),
        (port(()), []),
        (port(protocol="SCTP"), []),
    ],
)
def test_programs_of_the_machine_reach_an_ordinary_users_services_at_loopback(
    carried: CarriedPort, ports: list[int]
) -> None:
    found = dict(loopback_addresses([carried]))
    assert [each.port for each in found] == ports
    assert {each.address for each in found} <= {"127.0.0.1"}


def test_pods_that_share_the_machines_network_reach_cluster_ips_at_loopback() -> None:
    carried = port(node_port=30080, is_internal_local=True)
    find = partial(on_loopback, network=LOOPBACK_SERVICES[0])
    assert dict(shared_network_addresses(find, [carried])) == {
        ServiceAddress("127.96.0.5", "TCP", 80): ListenedService((TWO,), False),
        ServiceAddress("127.0.0.1", "TCP", 30080): ListenedService((ONE, TWO), False),
    }
    assert dict(shared_network_addresses(find, [port(()), port(protocol="SCTP")])) == {}
    # A cluster IP of another range is not shown on loopback.
    elsewhere = port(cluster_addresses=(IPv4Address("172.16.0.1"),), node_port=0)
    assert dict(shared_network_addresses(str, [elsewhere])) == {}


def test_affinity_keeps_a_client_with_one_endpoint() -> None:
    sticky, any_one = (ListenedService((ONE, TWO), is_sticky) for is_sticky in (True, False))
    assert len({choose_target(sticky, "10.244.0.9") for _ in range(50)}) == 1
    assert {choose_target(sticky, f"10.244.0.{number}") for number in range(50)} == {ONE, TWO}
    assert {choose_target(any_one, "10.244.0.9") for _ in range(50)} == {ONE, TWO}


def test_a_service_without_endpoints_has_no_target() -> None:
    with pytest.raises(ConnectionRefusedError):
        choose_target(ListenedService((), False), "10.244.0.9")


class FakeNetwork:
    """Opens nothing, and knows all that is open."""

    link = "kbr0"
    namespace: NetworkPlace = MACHINE

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []

    async def listener(
        self, what: str, listen: Callable[[], Awaitable[PortListener]]
    ) -> RetryingListener:
        self.opened.append(what)
        made = RetryingListener(what, listen)
        made.close = lambda: self.closed.append(what)  # type: ignore[method-assign]
        return made


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


async def create(server: LocalServer, address: str, *endpoints: str) -> None:
    spec = {"clusterIP": address, "ports": [{"port": 80}]}
    base = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    await server.post(
        "/api/v1/namespaces/default/services", {"metadata": {"name": "web"}, "spec": spec}
    )
    labels = {"kubernetes.io/service-name": "web"}
    await server.post(
        base,
        {
            "metadata": {"name": "web", "labels": labels},
            "addressType": "IPv4",
            "ports": [{"port": 8080}],
            "endpoints": [{"addresses": [each]} for each in endpoints],
        },
    )
    await server.settle()


async def test_listeners_come_and_go_with_endpoints(server: LocalServer) -> None:
    network = FakeNetwork()
    watch = ServiceWatch(server.client, server.clock)
    proxy = UserspaceProxy(watch, network, NodePlace("node-1"), server.clock)
    server.start(watch.run())
    server.start(proxy.run())
    await server.settle()
    await create(server, "10.96.0.50", "10.244.0.2")
    await server.clock.advance(0.01)
    await server.settle()
    web = "service default/web at 10.96.0.50:80"
    assert network.opened == [web]
    await server.delete("/api/v1/namespaces/default/services/web")
    await server.settle()
    await server.clock.advance(0.01)
    await server.settle()
    assert network.closed == [web]


@pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")
async def test_a_pod_reaches_a_service_without_rules(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(table: NodeTable) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(NodeTable, "open", refuse)
    pods = NetworkNamespace(), NetworkNamespace()
    bridge = Bridge.find(tmp_path)
    try:
        await bridge.open()
        await bridge.open_server(("127.0.0.1", 1))
        spec = SandboxConfig(namespace="default", name="p", uid="u")
        address, _ = [
            (await bridge.attach(f"pod-{number}", spec, pod.path, pod.netlink()))[0]
            for number, pod in enumerate(pods)
        ]
        await create(server, "10.96.0.50", address)
        watch = ServiceWatch(server.client, server.clock)
        proxy = UserspaceProxy(watch, bridge, NodePlace("node-1"), server.clock)
        server.start(watch.run())
        server.start(proxy.run())
        await server.settle()
        listener = pods[0].opened(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind((address, 8080))
        async with await asyncio.start_server(_greet, sock=listener), asyncio.timeout(60):
            loop = asyncio.get_running_loop()
            with pods[1].opened(socket.AF_INET, socket.SOCK_STREAM) as client:
                client.setblocking(False)
                await loop.sock_connect(client, ("10.96.0.50", 80))
                assert await loop.sock_recv(client, 10) == b"hello"
    finally:
        await bridge.remove()
        for pod in pods:
            pod.end()


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    await writer.drain()
    writer.close()
