"""Fragments of packets: they pass no rule that the whole packet would not pass."""

import os
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address

import pytest
from tests.contract import test_network_policy as policies
from tests.contract.test_pod_frames import (
    IPV4,
    Forger,
    checksum,
    hardware_of_bridge,
    received,
    with_forger,
)
from tests.contract.test_service_datapath import on_a_machine

from kedge.testing.pod_network import PORT, NetworkMachine, NetworkPod

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")

DENIED = 9999
MORE = 0x2000
UDP = 17


def fragments(
    source: str, destination: str, parts: Sequence[tuple[int, bytes]], *, number: int
) -> list[bytes]:
    """Packets that are parts of one datagram, each with its offset in bytes; the last part ends
    it."""
    made = []
    for at, (offset, content) in enumerate(parts):
        more = MORE if at < len(parts) - 1 else 0
        size = 20 + len(content)
        head = struct.pack(">BBHHHBBH", 0x45, 0, size, number, more | offset // 8, 64, UDP, 0)
        head += IPv4Address(source).packed + IPv4Address(destination).packed
        made.append(head[:10] + struct.pack(">H", checksum(head)) + head[12:] + content)
    return made


def udp(port: int, size: int) -> bytes:
    return struct.pack(">HHHH", 999, port, 8 + size, 0) + b"f" * size


def in_two(content: bytes, at: int) -> list[tuple[int, bytes]]:
    return [(0, content[:at]), (at, content[at:])]


def attacks(port: int) -> dict[str, list[tuple[int, bytes]]]:
    """Ways to hide the port of a datagram from a filter that looks at one packet at a time."""
    whole, innocent = udp(port, 64), udp(PORT, 64)
    return {
        "in two": in_two(whole, 32),
        "a head alone": in_two(whole, 8),
        "a second head": [(0, innocent[:32]), (0, whole[:32]), (32, whole[32:])],
        "an overlapping head": [(0, innocent[:16]), (0, whole[:8]), (8, whole[8:])],
        "no head": [(8, whole[8:40]), (40, whole[40:])],
    }


@policies.on_a_machine
async def test_fragments_do_not_pass_a_policy(guarded: policies.GuardedMachine) -> None:
    node = await guarded.node()
    server, client = [await guarded.pod(node, name) for name in ("server", "client")]
    await guarded.put(ingress=[{"ports": [{"port": PORT, "protocol": "UDP"}]}])
    forger = Forger(client)
    guarded.machine.stack.callback(forger.close)
    to = hardware_of_bridge(node)
    with server.udp() as listening:
        listening.setblocking(False)
        listening.bind(("0.0.0.0", DENIED))
        for number, (name, parts) in enumerate(attacks(DENIED).items(), 100):
            for packet in fragments(client.address, server.address, parts, number=number):
                forger.send(IPV4, packet, to=to)
            assert await received(listening, 0.3) == "", name
    # What is allowed passes in fragments too.
    assert await _answers(forger, client, server, to)


async def _answers(forger: Forger, client: NetworkPod, server: NetworkPod, to: bytes) -> bool:
    with client.udp() as channel:
        channel.setblocking(False)
        channel.bind(("0.0.0.0", 999))
        for packet in fragments(
            client.address, server.address, in_two(udp(PORT, 64), 32), number=999
        ):
            forger.send(IPV4, packet, to=to)
        return await received(channel, 5) == server.address


@on_a_machine
async def test_fragments_cannot_carry_the_address_of_another(machine: NetworkMachine) -> None:
    node, forger, attacker, victim = await with_forger(machine)
    to = hardware_of_bridge(node)
    with victim.udp() as listening:
        listening.setblocking(False)
        listening.bind(("0.0.0.0", DENIED))
        parts = in_two(udp(DENIED, 64), 32)
        for number, senders in enumerate((("stranger", "stranger"), ("own", "stranger")), 10):
            sources = {"own": attacker.address, "stranger": "10.244.77.7"}
            for at, sender in enumerate(senders):
                made = fragments(sources[sender], victim.address, parts, number=number)
                forger.send(IPV4, made[at], to=to)
            assert await received(listening, 0.3) == "", senders
        for packet in fragments(attacker.address, victim.address, parts, number=2):
            forger.send(IPV4, packet, to=to)
        assert await received(listening, 5) == attacker.address
