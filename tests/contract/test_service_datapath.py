"""Connections through the rules of Services, in a network namespace that stands for the machine.

Each test runs with the setting `bridge-nf-call-iptables` off and on: Docker turns it on.
"""

import asyncio
import functools
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.service_types import (
    ClientIPConfig,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SessionAffinityConfig,
)
from kedge.api.discovery_v1.endpoint_slice import Endpoint, EndpointPort, EndpointSlice
from kedge.api.model import ObjectMeta
from kedge.node.network import conntrack, forwarding
from kedge.node.network.bridge import Bridge
from kedge.node.network.netlink import Netlink
from kedge.node.network.nftables import batch
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.ruleset import ServerLimit
from kedge.node.runtime.runtime import PortMapping
from kedge.node.services.service_ports import EndpointTarget, NodePlace, carried_ports
from kedge.node.services.service_rules import pinned_rules, service_rules
from kedge.node.services.stale_flows import stale_flows
from kedge.testing.pod_network import PORT, ask, ask_udp, outsider, run_on_machine
from kedge.testing.pod_network import NetworkMachine as Machine
from kedge.testing.pod_network import NetworkPod as Pod

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")

ADDRESS = "10.96.0.50"
NODE_PORT = 30080


Test = Callable[[Machine], Awaitable[None]]


def on_a_machine(test: Test) -> Callable[..., None]:
    """Run a test in a namespace of its own, with both settings of the bridge."""

    @pytest.mark.parametrize("bridged", ["0", "1"])
    def run(bridged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(forwarding, "_BEFORE", tmp_path / "run" / "forwarding")
        run_on_machine(test, tmp_path, bridged)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def service(protocol: str = "TCP", **spec: Any) -> Service:
    port = ServicePort(port=80, protocol=protocol, nodePort=NODE_PORT)
    whole = {"clusterIP": ADDRESS, "type": "NodePort", "ports": [port], **spec}
    return Service(metadata=ObjectMeta(name="web", namespace="default"), spec=ServiceSpec(**whole))


def endpoints(*pods: Pod, protocol: str = "TCP", **more: Any) -> EndpointSlice:
    return EndpointSlice(
        metadata=ObjectMeta(name="web-1"),
        addressType="IPv4",
        ports=[EndpointPort(name="", port=PORT, protocol=protocol)],
        endpoints=[
            Endpoint(addresses=[each.address], nodeName=each.node.name, **more) for each in pods
        ],
    )


async def names(make: Callable[[], socket.socket], host: str, port: int = 80) -> Counter[str]:
    return Counter([(await ask(make(), host, port))[0] for _ in range(24)])


@on_a_machine
async def test_a_pod_reaches_all_endpoints_and_keeps_its_address(machine: Machine) -> None:
    node = await machine.node()
    one, two = [await machine.server(node, name) for name in ("one", "two")]
    client = await node.pod("client")
    await node.carry(service(), endpoints(one, two))
    assert (await names(client.tcp, ADDRESS)).keys() == {"one", "two"}
    assert (await ask(client.tcp(), ADDRESS))[1] == client.address


@on_a_machine
async def test_a_pod_reaches_itself_through_its_service(machine: Machine) -> None:
    node = await machine.node()
    one = await machine.server(node, "one")
    await node.carry(service(), endpoints(one))
    assert await ask(one.tcp(), ADDRESS) == ["one", str(node.bridge.gateway)]


@on_a_machine
async def test_the_machine_reaches_cluster_ips_and_node_ports(machine: Machine) -> None:
    node = await machine.node()
    one, two = [await machine.server(node, name) for name in ("one", "two")]
    await node.carry(service(), endpoints(one, two))
    assert (await names(socket.socket, ADDRESS)).keys() == {"one", "two"}
    for address in ("127.0.0.1", str(node.bridge.gateway)):
        assert (await names(socket.socket, address, NODE_PORT)).keys() == {"one", "two"}


@on_a_machine
async def test_a_pod_reaches_node_ports(machine: Machine) -> None:
    node = await machine.node()
    one = await machine.server(node, "one")
    await node.carry(service(), endpoints(one))
    gateway = str(node.bridge.gateway)
    client = await node.pod("client")
    assert await ask(client.tcp(), gateway, NODE_PORT) == ["one", gateway]
    assert await ask(one.tcp(), gateway, NODE_PORT) == ["one", gateway]


@on_a_machine
async def test_connections_without_an_endpoint_are_refused_at_once(machine: Machine) -> None:
    """Also many in a row: ICMP errors are limited to a few per second."""
    node = await machine.node()
    client = await node.pod("client")
    await node.carry(service(), endpoints())
    unknown = ("10.96.7.7", 80)
    with pytest.raises(ConnectionRefusedError):
        # The bridge may need a moment to see that the link of a new pod is up.
        await ask(client.tcp(), ADDRESS)
    # A packet that is not answered is sent again after a second.
    for where in (client.tcp, socket.socket):
        for host, port in ((ADDRESS, 80), (ADDRESS, 81), unknown):
            for _ in range(20):
                with pytest.raises(ConnectionRefusedError):
                    await ask(where(), host, port, within=0.9)
    with pytest.raises(ConnectionRefusedError):
        await ask(client.tcp(), str(node.bridge.gateway), NODE_PORT, within=0.9)


@on_a_machine
async def test_datagrams_without_an_endpoint_are_refused(machine: Machine) -> None:
    node = await machine.node()
    client = await node.pod("client")
    await node.carry(service("UDP"), endpoints(protocol="UDP"))
    loop = asyncio.get_running_loop()
    with pytest.raises(ConnectionRefusedError):
        await ask(client.tcp(), ADDRESS)
    with client.udp() as channel:
        channel.setblocking(False)
        channel.connect((ADDRESS, 80))
        await loop.sock_sendall(channel, b"?")
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionRefusedError):
                await loop.sock_recv(channel, 10)


@on_a_machine
async def test_a_udp_client_moves_when_its_endpoint_goes(machine: Machine) -> None:
    node = await machine.node()
    one, two = [await machine.server(node, name) for name in ("one", "two")]
    client = await node.pod("client")
    await node.carry(service("UDP"), endpoints(one, protocol="UDP"))
    with client.udp() as channel:
        channel.bind(("0.0.0.0", 5000))
        assert await ask_udp(channel, ADDRESS) == "one"
        assert await ask_udp(channel, str(node.bridge.gateway), NODE_PORT) == "one"
        targets = await node.carry(service("UDP"), endpoints(two, protocol="UDP"))
        assert await ask_udp(channel, ADDRESS) == "one", "the flow is remembered"
        found = stale_flows(conntrack.udp_flows(), targets, node.bridge.table.scope)
        assert conntrack.delete_flows(list(found)) == 2
        assert await ask_udp(channel, ADDRESS) == "two"
        assert await ask_udp(channel, str(node.bridge.gateway), NODE_PORT) == "two"


@on_a_machine
async def test_no_connection_fails_while_the_table_is_rewritten(machine: Machine) -> None:
    """As an agent rewrites the table that it has taken over."""
    node = await machine.node()
    one, two = [await machine.server(node, name) for name in ("one", "two")]
    client = await node.pod("client")
    await node.carry(service(), endpoints(one, two))
    await ask(client.tcp(), ADDRESS)
    ways = (
        (client.tcp, ADDRESS, 80),
        (socket.socket, ADDRESS, 80),
        (socket.socket, "127.0.0.1", NODE_PORT),
    )
    over = asyncio.Event()

    async def connect(make: Callable[[], socket.socket], host: str, port: int) -> None:
        while not over.is_set():
            await ask(make(), host, port)

    async with asyncio.TaskGroup() as tasks:
        for way in ways:
            tasks.create_task(connect(*way))
        for _ in range(40):
            await node.bridge.table.rewrite(node.datapath.everything)
        over.set()


@on_a_machine
async def test_session_affinity_keeps_a_client_until_it_is_turned_off(
    machine: Machine,
) -> None:
    node = await machine.node()
    servers = [await machine.server(node, name) for name in ("one", "two", "three")]
    client = await node.pod("client")
    config = SessionAffinityConfig(clientIP=ClientIPConfig(timeoutSeconds=60))
    sticky = service(sessionAffinity="ClientIP", sessionAffinityConfig=config)
    await node.carry(sticky, endpoints(*servers))
    first = await names(client.tcp, ADDRESS)
    assert len(first) == 1
    # One client, whichever address of the service it uses.
    assert await names(client.tcp, str(node.bridge.gateway), NODE_PORT) == first
    others = [each for each in servers if each.name not in first]
    await node.carry(sticky, endpoints(*others))
    assert len(await names(client.tcp, ADDRESS)) == 1
    before = await names(client.tcp, ADDRESS)
    for _ in range(3):
        # As after a restart of the agent.
        await node.bridge.table.rewrite(node.datapath.everything)
        assert await names(client.tcp, ADDRESS) == before
    await node.carry(service(), endpoints(*servers))
    assert len(await names(client.tcp, ADDRESS)) == 3
    await node.carry(sticky, endpoints(*servers))
    assert len(await names(client.tcp, ADDRESS)) == 1


@on_a_machine
async def test_more_clients_than_sessions_are_served_too(machine: Machine) -> None:
    """Whoever forges addresses can fill the set of clients."""
    node = await machine.node()
    one = await machine.server(node, "one")
    clients = [await node.pod(f"client-{number}") for number in range(4)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch, "_DYNAMIC_SIZE", 2)
        await node.carry(service(sessionAffinity="ClientIP"), endpoints(one))
    for client in clients * 2:
        assert (await ask(client.tcp(), ADDRESS))[0] == "one"


@on_a_machine
async def test_session_affinity_ends_with_its_timeout(machine: Machine) -> None:
    node = await machine.node()
    servers = [await machine.server(node, name) for name in ("one", "two")]
    client = await node.pod("client")
    config = SessionAffinityConfig(clientIP=ClientIPConfig(timeoutSeconds=1))
    sticky = service(sessionAffinity="ClientIP", sessionAffinityConfig=config)
    await node.carry(sticky, endpoints(*servers))
    seen = set()
    for _ in range(8):
        seen.add((await ask(client.tcp(), ADDRESS))[0])
        await asyncio.sleep(1.1)  # noqa: TID251 - the kernel's clock counts
    assert seen == {"one", "two"}


@on_a_machine
async def test_policy_local_keeps_the_address_of_clients_from_outside(
    machine: Machine,
) -> None:
    node = await machine.node()
    one = await machine.server(node, "one")
    async with outsider() as other:
        tcp = functools.partial(other.opened, socket.AF_INET, socket.SOCK_STREAM)
        await node.carry(service(), endpoints(one))
        assert await ask(tcp(), "192.0.2.1", NODE_PORT) == ["one", str(node.bridge.gateway)]
        await node.carry(service(externalTrafficPolicy="Local"), endpoints(one))
        assert await ask(tcp(), "192.0.2.1", NODE_PORT) == ["one", "192.0.2.9"]
        elsewhere = endpoints(one)
        elsewhere.endpoints[0] = Endpoint(addresses=[one.address], nodeName="another")  # type: ignore[index]
        await node.carry(service(externalTrafficPolicy="Local"), elsewhere)
        with pytest.raises(TimeoutError):
            await ask(tcp(), "192.0.2.1", NODE_PORT, within=0.3)
        # Traffic from the node itself may go anywhere.
        assert (await ask(socket.socket(), "127.0.0.1", NODE_PORT))[0] == "one"


@on_a_machine
async def test_load_balancer_addresses_and_external_ips(machine: Machine) -> None:
    node = await machine.node()
    one = await machine.server(node, "one")
    client = await node.pod("client")
    balanced = Service(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=service(type="LoadBalancer", externalIPs=["198.51.100.7"]).spec,
        status=ServiceStatus(
            loadBalancer=LoadBalancerStatus(
                ingress=[LoadBalancerIngress(ip=each) for each in ("127.0.50.1", "10.97.0.5")]
            )
        ),
    )
    await node.carry(balanced, endpoints(one))
    for ask_from in (socket.socket, client.tcp):
        assert (await ask(ask_from(), "10.97.0.5"))[0] == "one"
        with pytest.raises(ConnectionRefusedError):
            await ask(ask_from(), "10.97.0.6")
    with Netlink() as netlink:
        netlink.add_default_route(
            netlink.index(node.bridge.table.scope.link), IPv4Address("10.244.0.200")
        )
    assert (await ask(socket.socket(), "127.0.50.1"))[0] == "one"
    assert (await ask(socket.socket(), "198.51.100.7"))[0] == "one"
    assert (await ask(client.tcp(), "198.51.100.7"))[0] == "one"
    limited = replace(balanced.spec, loadBalancerSourceRanges=["192.0.2.0/24"])
    await node.carry(replace(balanced, spec=limited), endpoints(one))
    with pytest.raises(TimeoutError):
        await ask(socket.socket(), "127.0.50.1", within=0.3)
    limited = replace(balanced.spec, loadBalancerSourceRanges=["192.0.2.0/24", "127.0.0.0/8"])
    await node.carry(replace(balanced, spec=limited), endpoints(one))
    assert (await ask(socket.socket(), "127.0.50.1"))[0] == "one"


@on_a_machine
async def test_a_chosen_pool_of_load_balancers_is_routed(machine: Machine) -> None:
    node = await machine.node(balancers=IPv4Network("10.98.76.0/29"))
    one = await machine.server(node, "one")
    client = await node.pod("client")
    ingress = [LoadBalancerIngress(ip="10.98.76.1")]
    balanced = replace(
        service(type="LoadBalancer"),
        status=ServiceStatus(loadBalancer=LoadBalancerStatus(ingress=ingress)),
    )
    await node.carry(balanced, endpoints(one))
    for ask_from in (socket.socket, client.tcp):
        assert (await ask(ask_from(), "10.98.76.1"))[0] == "one"
        with pytest.raises(ConnectionRefusedError):
            await ask(ask_from(), "10.98.76.2")


@on_a_machine
async def test_internal_policy_local_without_a_local_endpoint_drops(machine: Machine) -> None:
    node = await machine.node()
    one = await machine.server(node, "one")
    client = await node.pod("client")
    elsewhere = endpoints(one)
    elsewhere.endpoints[0] = Endpoint(addresses=[one.address], nodeName="another")  # type: ignore[index]
    await node.carry(service(internalTrafficPolicy="Local"), elsewhere)
    with pytest.raises(TimeoutError):
        await ask(client.tcp(), ADDRESS, within=0.3)


@on_a_machine
async def test_pods_do_not_reach_the_machines_loopback(machine: Machine) -> None:
    node = await machine.node()
    client = await node.pod("client")
    with socket.create_server(("127.0.0.1", 9999)):
        with pytest.raises((TimeoutError, OSError)):
            await ask(client.tcp(), "127.0.0.1", 9999, within=0.3)
        there = EndpointTarget(IPv4Address("127.0.0.1"), 9999)
        node.datapath.put("api", pinned_rules(IPv4Address("10.96.0.1"), "TCP", 443, there))
        await node.bridge.table.rewrite(node.datapath.everything)
        loop = asyncio.get_running_loop()
        with client.tcp() as channel:
            channel.setblocking(False)
            async with asyncio.timeout(20):
                await loop.sock_connect(channel, ("10.96.0.1", 443))


@on_a_machine
async def test_a_pinned_address_leads_to_a_program_of_the_machine(machine: Machine) -> None:
    """As for cluster DNS: a server at the gateway's address, for TCP and UDP."""
    node = await machine.node()
    client = await node.pod("client")
    gateway, dns = node.bridge.gateway, IPv4Address("10.96.0.10")
    for protocol in ("TCP", "UDP"):
        rules = pinned_rules(dns, protocol, 53, EndpointTarget(gateway, 5353))
        node.datapath.put(protocol, rules)
    # The Service has no endpoints of its own.
    await node.carry(service("UDP", clusterIP=str(dns), ports=[ServicePort(port=53)]))
    with (
        socket.create_server((str(gateway), 5353)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
    ):
        server.bind((str(gateway), 5353))
        loop = asyncio.get_running_loop()
        loop.add_reader(server, lambda: server.sendto(b"here", server.recvfrom(100)[1]))
        for family in (client.udp, functools.partial(socket.socket, type=socket.SOCK_DGRAM)):
            with family() as channel:
                assert await ask_udp(channel, str(dns), 53) == "here"
        for family in (client.tcp, socket.socket):
            with family() as channel:
                channel.setblocking(False)
                async with asyncio.timeout(20):
                    await loop.sock_connect(channel, (str(dns), 53))
        loop.remove_reader(server)


@on_a_machine
async def test_one_pod_cannot_take_all_connections_of_the_api_server(
    machine: Machine,
) -> None:
    node = await machine.node()
    greedy, modest = await node.pod("greedy"), await node.pod("modest")
    server = IPv4Address("10.96.0.1")
    table = node.bridge.table
    loop = asyncio.get_running_loop()

    async def connect(pod: Pod, host: str = str(server), port: int = 443) -> None:
        channel = machine.stack.enter_context(pod.tcp())
        channel.setblocking(False)
        async with asyncio.timeout(3):
            await loop.sock_connect(channel, (host, port))

    with socket.create_server(("", 9999)):
        there = EndpointTarget(IPv4Address("127.0.0.1"), 9999)
        table.scope = table.scope._replace(server_limit=ServerLimit(*there, 3))
        node.datapath.put("api", pinned_rules(server, "TCP", 443, there))
        await table.rewrite(node.datapath.everything)
        for _ in range(3):
            await connect(greedy)
        gateway = str(node.bridge.gateway)
        for host, port in ((str(server), 443), (gateway, 9999)):
            # With bridge-nf-call-iptables, a refusal does not find back through the translation.
            with pytest.raises((ConnectionRefusedError, TimeoutError)):
                await connect(greedy, host, port)
        await connect(modest)
        await connect(modest, gateway, 9999)


@on_a_machine
async def test_host_ports_work_without_an_agent(machine: Machine) -> None:
    node = await machine.node()
    mapping = PortMapping(container_port=PORT, host_port=8088)
    one = await machine.server(node, "one", mapping)
    other = PortMapping(container_port=PORT, host_port=8088, protocol="UDP")
    await machine.server(node, "two", other)
    node.bridge.close()
    gateway = str(node.bridge.gateway)
    for address in ("127.0.0.1", gateway):
        assert (await ask(socket.socket(), address, 8088))[0] == "one"
    assert (await ask(one.tcp(), gateway, 8088))[0] == "one"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        assert await ask_udp(client, gateway, 8088) == "two"
    node.bridge = Bridge.find(machine.directory / node.name)


@on_a_machine
async def test_the_next_agent_takes_the_table_over(machine: Machine) -> None:
    node = await machine.node()
    one = await machine.server(node, "one")
    client = await node.pod("client")
    await node.carry(service(), endpoints(one))
    node.bridge.close()
    assert (await ask(client.tcp(), ADDRESS))[0] == "one"
    node.bridge = Bridge.find(machine.directory / node.name)
    await node.bridge.open()
    assert node.bridge.table.was_taken_over
    assert (await ask(client.tcp(), ADDRESS))[0] == "one"
    assert (await ask(socket.socket(), ADDRESS))[0] == "one"
    await node.bridge.table.rewrite(node.datapath.everything)
    assert (await ask(client.tcp(), ADDRESS))[0] == "one"
    await node.carry(service(), endpoints())
    with pytest.raises(ConnectionRefusedError):
        await ask(client.tcp(), ADDRESS)


@on_a_machine
async def test_nodes_of_one_machine_reach_each_others_pods_and_services(
    machine: Machine,
) -> None:
    first, second = await machine.node("node-1"), await machine.node("node-2")
    one, two = await machine.server(first, "one"), await machine.server(second, "two")
    for each in (first, second):
        await each.carry(service(), endpoints(one, two))
    assert await ask(one.tcp(), two.address, PORT) == ["two", one.address]
    for pod in (one, two):
        assert (await names(pod.tcp, ADDRESS)).keys() == {"one", "two"}
        for node in (first, second):
            gateway = str(node.bridge.gateway)
            assert (await names(pod.tcp, gateway, NODE_PORT)).keys() == {"one", "two"}
    for node in (first, second):
        assert (await names(socket.socket, str(node.bridge.gateway), NODE_PORT)).keys() == {
            "one",
            "two",
        }
    assert (await names(socket.socket, ADDRESS)).keys() == {"one", "two"}


@on_a_machine
async def test_two_clusters_of_one_machine_do_not_disturb_each_other(
    machine: Machine,
) -> None:
    first, second = await machine.node("first"), await machine.node("second")
    one, two = await machine.server(first, "one"), await machine.server(second, "two")
    await first.carry(service(), endpoints(one))
    await second.carry(service(), endpoints(two))
    assert (await names(one.tcp, ADDRESS)).keys() == {"one"}
    assert (await names(two.tcp, ADDRESS)).keys() == {"two"}
    assert (await names(socket.socket, ADDRESS)).keys() == {"one"}, "the first one came first"
    assert not second.bridge.table.must_change_owner()
    await first.remove()
    machine.nodes.remove(first)
    assert second.bridge.table.must_change_owner()
    await second.bridge.table.rewrite(second.datapath.everything)
    assert (await names(socket.socket, ADDRESS)).keys() == {"two"}


@on_a_machine
async def test_many_services_change_at_once_and_nothing_is_left(machine: Machine) -> None:
    node = await machine.node()
    one = await machine.server(node, "one")
    for number in range(300):
        made = service(clusterIP=f"10.96.1.{number % 250 + 1}", type="ClusterIP")
        named = Service(metadata=ObjectMeta(name=f"s{number}"), spec=made.spec)
        ports = carried_ports(named, [endpoints(one)], NodePlace(node.name))
        node.datapath.put(f"s{number}", service_rules(f"s{number}", ports))
    await node.bridge.table.apply(node.datapath.change)
    node.datapath.confirm()
    assert (await ask(socket.socket(), "10.96.1.250"))[0] == "one"
    for name in node.datapath.names():
        node.datapath.remove(name)
    await node.bridge.table.apply(node.datapath.change)
    node.datapath.confirm()
    with pytest.raises(ConnectionRefusedError):
        await ask(socket.socket(), "10.96.1.250")
    await node.remove()
    machine.nodes.remove(node)
    channel = NftablesSocket()
    assert channel.tables() == []
    channel.close()
