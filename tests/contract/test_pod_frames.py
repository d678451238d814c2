"""Frames that a pod forges: they reach nobody, and limits of the pod hold."""

import asyncio
import os
import socket
import struct
from ipaddress import IPv4Address

import pytest
from tests.contract.test_service_datapath import on_a_machine

from kedge.machinery.clock import SystemClock
from kedge.node.network.netlink import Netlink
from kedge.node.network.ruleset import QueryLimit
from kedge.testing.pod_network import NetworkMachine, NetworkNode, NetworkPod, ask, ask_udp

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")

IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
EVERYBODY = b"\xff" * 6
PORT = 7777
_FREE_BIND = 78


class Forger:
    """A process of a pod with the capability NET_RAW."""

    def __init__(self, pod: NetworkPod) -> None:
        self._socket = pod.inside.opened(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind(("eth0", 0))
        self.hardware = self._socket.getsockname()[4]

    def send(
        self, kind: int, content: bytes, *, to: bytes = EVERYBODY, sender: bytes = b""
    ) -> None:
        self._socket.send(to + (sender or self.hardware) + struct.pack(">H", kind) + content)

    def close(self) -> None:
        self._socket.close()


def datagram(source: str, destination: str, port: int = PORT) -> bytes:
    """An IPv4 packet with a UDP datagram."""
    udp = struct.pack(">HHHH", 999, port, 8 + 6, 0) + b"forged"
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
    head += IPv4Address(source).packed + IPv4Address(destination).packed
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + udp


def checksum(head: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(head) // 2}H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(~total & 0xFFFF)


def arp_answer(hardware: bytes, address: str, asker: str) -> bytes:
    head = struct.pack(">HHBBH", 1, IPV4, 6, 4, 2)
    return head + hardware + IPv4Address(address).packed + EVERYBODY + IPv4Address(asker).packed


async def received(channel: socket.socket, within: float = 0.5) -> str:
    """Return the address of the next sender; empty if none comes."""
    try:
        async with asyncio.timeout(within):
            _, sender = await asyncio.get_running_loop().sock_recvfrom(channel, 100)
            return str(sender[0])
    except TimeoutError:
        return ""


def listening(machine: NetworkMachine, node: NetworkNode) -> socket.socket:
    """A program of the machine."""
    made = machine.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    made.setblocking(False)
    made.bind((str(node.bridge.gateway), PORT))
    return made


async def with_forger(
    machine: NetworkMachine,
) -> tuple[NetworkNode, Forger, NetworkPod, NetworkPod]:
    node = await machine.node()
    attacker, victim = await node.pod("attacker"), await machine.server(node, "victim")
    forger = Forger(attacker)
    machine.stack.callback(forger.close)
    return node, forger, attacker, victim


def hardware_of(pod: NetworkPod) -> bytes:
    with pod.inside.opened(socket.AF_PACKET, socket.SOCK_RAW) as channel:
        channel.bind(("eth0", 0))
        address: bytes = channel.getsockname()[4]
        return address


@on_a_machine
async def test_a_pod_cannot_send_to_another_one_past_the_machine(machine: NetworkMachine) -> None:
    """Network policies see only what the machine routes."""
    node, forger, attacker, victim = await with_forger(machine)
    with victim.udp() as server:
        server.setblocking(False)
        server.bind(("0.0.0.0", PORT))
        packet = datagram(attacker.address, victim.address)
        for to in (hardware_of(victim), EVERYBODY):
            forger.send(IPV4, packet, to=to)
            assert await received(server) == ""
        forger.send(IPV4, packet, to=hardware_of_bridge(node))
        assert await received(server, within=5) == attacker.address


@on_a_machine
async def test_a_pod_cannot_send_from_the_address_of_others(machine: NetworkMachine) -> None:
    node, forger, attacker, victim = await with_forger(machine)
    server, gateway = listening(machine, node), str(node.bridge.gateway)
    machine_address = hardware_of_bridge(node)
    strangers = (victim.address, gateway, "127.0.0.1", "127.0.0.2", "0.0.0.0", "8.8.8.8")
    for stranger in (*strangers, "10.244.77.7"):
        forger.send(IPV4, datagram(stranger, gateway), to=machine_address)
        assert await received(server) == "", stranger
    forger.send(IPV4, datagram(attacker.address, gateway), to=machine_address)
    assert await received(server, within=5) == attacker.address


@on_a_machine
async def test_a_pod_cannot_send_with_the_hardware_address_of_another(
    machine: NetworkMachine,
) -> None:
    node, forger, attacker, victim = await with_forger(machine)
    server, gateway = listening(machine, node), str(node.bridge.gateway)
    # The bridge would learn that the victim is at the port of the attacker.
    for _ in range(3):
        forger.send(IPV4, datagram(attacker.address, gateway), sender=hardware_of(victim))
    assert await received(server) == ""
    assert (await ask(socket.socket(), victim.address, 8080))[0] == "victim"


@on_a_machine
async def test_a_pod_cannot_take_the_packets_of_another_by_arp(machine: NetworkMachine) -> None:
    node, forger, attacker, victim = await with_forger(machine)
    gateway = str(node.bridge.gateway)
    client = await node.pod("client")
    assert (await ask(socket.socket(), victim.address, 8080))[0] == "victim"
    await SystemClock().sleep(
        1.2
    )  # for a second, the kernel itself does not believe another answer
    for claimed, asker in ((victim.address, gateway), (gateway, client.address)):
        for hardware in (forger.hardware, hardware_of(victim)):
            forger.send(ARP, arp_answer(hardware, claimed, asker), to=hardware_of_bridge(node))
            forger.send(ARP, arp_answer(hardware, claimed, asker))
    assert (await ask(socket.socket(), victim.address, 8080))[0] == "victim"
    assert (await ask(client.tcp(), victim.address, 8080))[0] == "victim"
    with client.udp() as channel:
        assert await ask_udp(channel, victim.address, 8080) == "victim"
    others = {known[0]: known[3] for known in neighbours() if known[0] != attacker.address}
    assert others[victim.address] == hardware_of(victim).hex(":")
    assert forger.hardware.hex(":") not in others.values()


@on_a_machine
async def test_a_pod_does_not_reach_the_machine_by_ipv6(machine: NetworkMachine) -> None:
    node, _, attacker, _ = await with_forger(machine)
    link = socket.if_nametoindex(node.bridge.link)
    local = link_local(node.bridge.link)
    if not local:
        pytest.skip("this kernel has no IPv6")
    server = machine.stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
    server.setblocking(False)
    # The address may still be tentative.
    server.setsockopt(socket.IPPROTO_IPV6, _FREE_BIND, 1)
    server.bind((local, PORT, 0, link))
    with attacker.inside.opened(socket.AF_INET6, socket.SOCK_DGRAM) as client:
        index = interface_of(attacker)
        for _ in range(4):
            await sent(client, (local, PORT, 0, index))
            assert await received(server) == ""


@on_a_machine
async def test_a_pod_that_floods_the_dns_server_is_limited_alone(machine: NetworkMachine) -> None:
    node, _, attacker, victim = await with_forger(machine)
    table = node.bridge.table
    table.scope = table.scope._replace(query_limit=QueryLimit(PORT, 5, 10))
    await table.rewrite(node.datapath.everything)
    server, gateway = listening(machine, node), str(node.bridge.gateway)
    with attacker.udp() as flood, victim.udp() as modest:
        for _ in range(500):
            flood.sendto(b"?", (gateway, PORT))
        modest.sendto(b"?", (gateway, PORT))
        senders = []
        while sender := await received(server):
            senders.append(sender)
    assert senders.count(victim.address) == 1
    assert 5 <= senders.count(attacker.address) <= 40


def interface_of(pod: NetworkPod) -> int:
    with Netlink(socket.socket(fileno=pod.inside.netlink())) as netlink:
        return netlink.index("eth0")


async def sent(client: socket.socket, to: tuple[str, int, int, int]) -> None:
    """Send a datagram as soon as the client has an address."""
    async with asyncio.timeout(10):
        while True:
            try:
                client.sendto(b"?", to)
                return
            except OSError:
                await SystemClock().sleep(0.1)


def hardware_of_bridge(node: NetworkNode) -> bytes:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as channel:
        channel.bind((node.bridge.link, 0))
        address: bytes = channel.getsockname()[4]
        return address


def neighbours() -> list[list[str]]:
    """The machine's table of ARP: address, kind, flags, hardware address and more."""
    with open("/proc/thread-self/net/arp") as file:
        return [line.split() for line in file][1:]


def link_local(link: str) -> str:
    try:
        with open("/proc/thread-self/net/if_inet6") as file:
            fields = [line.split() for line in file]
    except OSError:
        return ""
    found = (each[0] for each in fields if each[5] == link and each[0].startswith("fe80"))
    text = next(found, "")
    return ":".join(text[at : at + 4] for at in range(0, 32, 4)) if text else ""
