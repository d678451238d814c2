"""Packets that meet the rules of network policies, in a namespace that stands for the machine.

Each test runs with the setting `bridge-nf-call-iptables` off and on: Docker turns it on.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.service_types import Service, ServicePort, ServiceSpec
from kedge.api.discovery_v1.endpoint_slice import Endpoint, EndpointPort, EndpointSlice
from kedge.api.model import ObjectMeta
from kedge.client.informer import Key
from kedge.node.network import forwarding
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.policy_table import PolicyTable
from kedge.node.policies.hosted_ports import hosted_ports
from kedge.node.policies.policy_datapath import PolicyDatapath
from kedge.node.policies.policy_enforcer import enforced_policy
from kedge.node.policies.policy_objects import NamedPodPort, NetworkPolicy, PolicyPod
from kedge.node.services.service_ports import EndpointTarget
from kedge.node.services.service_rules import pinned_rules
from kedge.testing.pod_network import (
    PORT,
    NetworkMachine,
    NetworkNode,
    NetworkPod,
    ask,
    ask_udp,
    outsider,
    run_on_machine,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")

ADDRESS = "10.96.0.50"
NODE_PORT = 30080
DENIED_SECONDS = 0.4
ALLOWED_SECONDS = 5.0
Test = Callable[["GuardedMachine"], Awaitable[None]]


class GuardedMachine:
    """A machine whose nodes enforce policies."""

    def __init__(self, machine: NetworkMachine) -> None:
        self.machine = machine
        self.datapaths: dict[str, PolicyDatapath] = {}
        self._written: set[str] = set()

    async def node(self, name: str = "node-1") -> NetworkNode:
        node = await self.machine.node(name)
        hosted = hosted_ports(("127.0.0.1", 6443), node.bridge.gateway)
        self.datapaths[name] = PolicyDatapath(node.bridge.network, hosted)
        for each in ("default", "other", "kube-system"):
            drain(self.datapaths[name].put_namespace(each, {"kubernetes.io/metadata.name": each}))
        return node

    async def pod(self, node: NetworkNode, name: str, **labels: str) -> NetworkPod:
        pod = await self.machine.server(node, name)
        await self.label(pod, **labels)
        return pod

    async def label(self, pod: NetworkPod, namespace: str = "default", **labels: str) -> None:
        known = PolicyPod(
            namespace,
            pod.name,
            {"name": pod.name, **labels},
            IPv4Address(pod.address),
            (NamedPodPort("serve", "TCP", PORT), NamedPodPort("ask", "UDP", PORT)),
        )
        for each in self.datapaths.values():
            drain(each.put_pod(known))
        await self.write()

    async def put(self, name: str = "p", **spec: Any) -> None:
        whole = {"podSelector": {"matchLabels": {"name": "server"}}, **spec}
        document = {"metadata": {"name": name, "namespace": "default"}, "spec": whole}
        policy = msgspec.convert(document, NetworkPolicy)
        for each in self.datapaths.values():
            drain(each.put_policy(Key("default", name), enforced_policy(policy)))
        await self.write()

    async def remove(self, name: str = "p") -> None:
        for each in self.datapaths.values():
            drain(each.remove_policy(Key("default", name)))
        await self.write()

    async def write(self) -> None:
        for node in self.machine.nodes:
            content, table = self.datapaths[node.name].content, node.bridge.policies
            if node.name in self._written:
                await table.apply(content.change)
            else:
                await table.rewrite(content.everything)
            self._written.add(node.name)
            content.confirm()


def drain(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def on_a_machine(test: Test) -> Callable[..., None]:
    @pytest.mark.parametrize("bridged", ["0", "1"])
    def run(bridged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(forwarding, "_BEFORE", tmp_path / "run" / "forwarding")
        run_on_machine(lambda machine: test(GuardedMachine(machine)), tmp_path, bridged)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def reaches(
    client: NetworkPod, server: NetworkPod | str, port: int = PORT, within: float = ALLOWED_SECONDS
) -> bool:
    address = server if isinstance(server, str) else server.address
    try:
        await ask(client.tcp(), address, port, within=within)
    except TimeoutError:
        return False
    return True


async def is_denied(client: NetworkPod, server: NetworkPod | str, port: int = PORT) -> bool:
    return not await reaches(client, server, port, DENIED_SECONDS)


async def reaches_udp(client: NetworkPod, server: NetworkPod, within: float) -> bool:
    with client.udp() as channel, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            await ask_udp(channel, server.address, PORT)
            return True
    return False


def patience(expected: bool) -> float:
    """Seconds to wait for an answer: few if none is expected."""
    return ALLOWED_SECONDS if expected else DENIED_SECONDS


async def reached(
    client: NetworkPod, server: NetworkPod, *, tcp: bool, udp: bool
) -> tuple[bool, bool]:
    """Return whether the server is reached by TCP and by UDP, as expected or not. Both at once: one
    after the other took 25 of 30 seconds on a busy machine."""
    by_tcp, by_udp = await asyncio.gather(
        reaches(client, server, within=patience(tcp)), reaches_udp(client, server, patience(udp))
    )
    return by_tcp, by_udp


def service() -> Service:
    ports = [ServicePort(port=80, protocol="TCP", nodePort=NODE_PORT)]
    spec = ServiceSpec(type="NodePort", clusterIP=ADDRESS, ports=ports)
    return Service(metadata=ObjectMeta(name="web", namespace="default"), spec=spec)


def endpoints(pod: NetworkPod) -> EndpointSlice:
    return EndpointSlice(
        metadata=ObjectMeta(name="web-1"),
        addressType="IPv4",
        ports=[EndpointPort(name="", port=PORT, protocol="TCP")],
        endpoints=[Endpoint(addresses=[pod.address], nodeName=pod.node.name)],
    )


def peer(**labels: str) -> Mapping[str, Any]:
    return {"podSelector": {"matchLabels": labels}}


@on_a_machine
async def test_a_pod_that_ingress_isolates_is_reached_only_by_its_peers(
    machine: GuardedMachine,
) -> None:
    node = await machine.node()
    server, friend, stranger = [
        await machine.pod(node, name) for name in ("server", "friend", "stranger")
    ]
    assert await reaches(stranger, server)
    await machine.put()
    assert await is_denied(friend, server)
    await machine.put(ingress=[{"from": [peer(name="friend")]}])
    assert await reaches(friend, server)
    assert await is_denied(stranger, server)
    assert await reaches(server, stranger)
    await machine.label(stranger, name="friend")
    assert await reaches(stranger, server)
    await machine.remove()
    await machine.label(stranger)
    assert await reaches(stranger, server)


@on_a_machine
async def test_protocols_ports_ranges_and_names_are_told_apart(machine: GuardedMachine) -> None:
    node = await machine.node()
    server, client = [await machine.pod(node, name) for name in ("server", "client")]
    for port, tcp, udp in (
        ({"port": PORT}, True, False),
        ({"port": PORT, "protocol": "UDP"}, False, True),
        ({"port": PORT, "protocol": "SCTP"}, False, False),
        ({"protocol": "UDP"}, False, True),
        ({"port": PORT - 1}, False, False),
        ({"port": 1, "endPort": PORT - 1}, False, False),
        ({"port": 1, "endPort": PORT}, True, False),
        ({"port": PORT, "endPort": 65535}, True, False),
        ({"port": PORT + 1, "endPort": 65535}, False, False),
        ({"port": "serve"}, True, False),
        ({"port": "serve", "protocol": "UDP"}, False, False),
        ({"port": "ask", "protocol": "UDP"}, False, True),
        ({"port": "other"}, False, False),
    ):
        await machine.put(ingress=[{"ports": [port]}])
        assert await reached(client, server, tcp=tcp, udp=udp) == (tcp, udp), port
        await machine.put(
            podSelector=peer(name="client")["podSelector"],
            policyTypes=["Egress"],
            egress=[{"ports": [port]}],
        )
        assert await reached(client, server, tcp=tcp, udp=udp) == (tcp, udp), port


@on_a_machine
async def test_blocks_of_addresses_with_exceptions(machine: GuardedMachine) -> None:
    node = await machine.node()
    server, client = [await machine.pod(node, name) for name in ("server", "client")]
    whole, own = "0.0.0.0/0", f"{client.address}/32"
    for blocks, expected in (
        ([{"cidr": whole}], True),
        ([{"cidr": own}], True),
        ([{"cidr": whole, "except": [own]}], False),
        ([{"cidr": whole, "except": ["10.0.0.0/8"]}], False),
        ([{"cidr": whole, "except": [own]}, {"cidr": own}], True),
        ([{"cidr": "128.0.0.0/1"}], False),
        ([{"cidr": "0.0.0.0/1"}], True),
        ([{"cidr": "2001:db8::/32"}], False),
    ):
        await machine.put(ingress=[{"from": [{"ipBlock": each} for each in blocks]}])
        found = await reaches(client, server, within=patience(expected))
        assert found == expected, blocks


@on_a_machine
async def test_both_ends_must_allow_a_connection_and_answers_pass(machine: GuardedMachine) -> None:
    node = await machine.node()
    server, client = [await machine.pod(node, name) for name in ("server", "client")]
    await machine.put("server", ingress=[{"from": [peer(name="client")]}], policyTypes=["Ingress"])
    deny = {"podSelector": peer(name="client")["podSelector"], "policyTypes": ["Egress", "Ingress"]}
    await machine.put("client", **deny)
    assert await is_denied(client, server)
    await machine.put("client", **deny, egress=[{"to": [peer(name="server")]}])
    assert await reaches(client, server)
    assert await is_denied(server, client)


@on_a_machine
async def test_services_lead_to_the_pods_that_policies_see(machine: GuardedMachine) -> None:
    node = await machine.node()
    server, client = [await machine.pod(node, name) for name in ("server", "client")]
    await node.carry(service(), endpoints(server))
    await machine.put(ingress=[{"from": [peer(name="client")], "ports": [{"port": PORT}]}])
    assert await reaches(client, ADDRESS, 80)
    await machine.put(ingress=[{"ports": [{"port": 80}]}])
    assert await is_denied(client, ADDRESS, 80)
    # A pod reaches itself whatever its policies say, also through its Service.
    await machine.put(policyTypes=["Ingress", "Egress"])
    assert await reaches(server, ADDRESS, 80)


@on_a_machine
async def test_programs_of_the_machine_reach_isolated_pods(machine: GuardedMachine) -> None:
    node = await machine.node()
    server = await machine.pod(node, "server")
    await node.carry(service(), endpoints(server))
    await machine.put(policyTypes=["Ingress", "Egress"])
    assert await ask(socket.socket(), server.address, PORT)
    assert await ask(socket.socket(), ADDRESS, 80)


@on_a_machine
async def test_clients_from_outside_are_seen_with_their_own_address(
    machine: GuardedMachine,
) -> None:
    node = await machine.node()
    server = await machine.pod(node, "server")
    await node.carry(service(), endpoints(server))
    async with outsider() as other:
        await machine.put(ingress=[{"from": [{"podSelector": {}}]}])
        channel = other.opened(socket.AF_INET, socket.SOCK_STREAM)
        with pytest.raises(TimeoutError):
            await ask(channel, "192.0.2.1", NODE_PORT, DENIED_SECONDS)
        await machine.put(ingress=[{"from": [{"ipBlock": {"cidr": "192.0.2.9/32"}}]}])
        channel = other.opened(socket.AF_INET, socket.SOCK_STREAM)
        assert await ask(channel, "192.0.2.1", NODE_PORT)


@on_a_machine
async def test_a_connection_ends_when_it_is_no_longer_allowed(machine: GuardedMachine) -> None:
    node = await machine.node()
    server, client = [await machine.pod(node, name) for name in ("server", "client")]
    with client.udp() as channel:
        await ask_udp(channel, server.address, PORT)
        await machine.put(ingress=[])
        _drop_answers(channel)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask_udp(channel, server.address, PORT), DENIED_SECONDS)
        await machine.put(ingress=[{}])
        await ask_udp(channel, server.address, PORT)


def _drop_answers(channel: socket.socket) -> None:
    """Forget answers to questions that were asked twice."""
    with contextlib.suppress(BlockingIOError):
        while channel.recv(100):
            pass


@on_a_machine
async def test_pods_of_two_nodes(machine: GuardedMachine) -> None:
    first, second = await machine.node("node-1"), await machine.node("node-2")
    server = await machine.pod(first, "server")
    friend, stranger = [await machine.pod(second, name) for name in ("friend", "stranger")]
    await machine.put(ingress=[{"from": [peer(name="friend")]}])
    assert await reaches(friend, server)
    assert await is_denied(stranger, server)
    await machine.put(
        "stranger", podSelector=peer(name="stranger")["podSelector"], policyTypes=["Egress"]
    )
    assert await is_denied(stranger, friend)
    assert await reaches(server, stranger)


@on_a_machine
async def test_programs_of_the_machine_are_reached_if_egress_allows_them(
    machine: GuardedMachine,
) -> None:
    """The API server and the DNS server are no pods, but policies are written as if they were."""
    node = await machine.node()
    client = await machine.pod(node, "server")
    gateway = node.bridge.gateway
    for address, protocol, port, target in (
        ("10.96.0.1", "TCP", 443, EndpointTarget(IPv4Address("127.0.0.1"), 6443)),
        ("10.96.0.10", "TCP", 53, EndpointTarget(gateway, 53)),
    ):
        rules = pinned_rules(IPv4Address(address), protocol, port, target)
        node.datapath.put(address, rules)
        await machine.machine.stack.enter_async_context(
            await asyncio.start_server(_greet, str(target.address), target.port)
        )
    await node.bridge.table.apply(node.datapath.change)
    node.datapath.confirm()
    in_system = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    dns = {"podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}, "namespaceSelector": in_system}
    for to, ports, server, names in (
        (None, [{"port": 53, "protocol": "TCP"}], False, True),
        (None, [{"port": 53, "protocol": "UDP"}], False, False),
        ([dns], None, False, True),
        ([dns], [{"port": "dns-tcp"}], False, True),
        ([dns], [{"port": 54}], False, False),
        ([{"namespaceSelector": {}}], None, False, True),
        ([{"podSelector": {}}], None, False, False),
        ([{"ipBlock": {"cidr": "10.96.0.10/32"}}], None, False, True),
        ([{"ipBlock": {"cidr": "10.96.0.1/32"}}], [{"port": 443}], True, False),
        ([{"ipBlock": {"cidr": "127.0.0.1/32"}}], [{"port": 6443}], True, False),
        (None, [{"port": 443}], True, False),
    ):
        rule: Mapping[str, Any] = {"to": to, "ports": ports}
        await machine.put(policyTypes=["Egress"], egress=[rule])
        found = await reaches(client, "10.96.0.1", 443, patience(server))
        assert found == server, rule
        found = await reaches(client, "10.96.0.10", 53, patience(names))
        assert found == names, rule
    await machine.put(policyTypes=["Egress"])
    assert await is_denied(client, str(gateway), 53)


async def _greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    await writer.drain()
    writer.close()


@on_a_machine
async def test_rules_outlive_the_agent_and_the_next_one_takes_them_over(
    machine: GuardedMachine,
) -> None:
    node = await machine.node()
    server, client = [await machine.pod(node, name) for name in ("server", "client")]
    await machine.put()
    node.bridge.policies.close()
    assert await is_denied(client, server)
    table = PolicyTable(node.bridge.link)
    await table.rewrite(machine.datapaths["node-1"].content.everything)
    assert await is_denied(client, server)
    table.close()
    await machine.remove("p")
    await node.bridge.remove()
    with contextlib.closing(NftablesSocket()) as channel:
        assert channel.tables() == []
    machine.machine.nodes.clear()
    for each in node.pods:
        each.inside.end()
