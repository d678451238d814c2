"""How long the kernel rules of network policies take, in a namespace of the benchmark's own.

From nothing: 1,000 policies of 100 namespaces, with 10,000 pods in the cluster and 200 of them on
the node. One changed label of a pod: computed and written, with 100 and with 10,000 pods. The bar
for the whole way from the API to the packet is 100 ms, so this part must stay far below, and must
not grow with the pods. One packet: the time to open a connection to a pod that no policy selects,
and to one that ten policies select.

    bench/policies.py [--pods N] [--policies N] [--changes N]
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import msgspec

from kedge.client.informer import Key
from kedge.node.network.policy_table import PolicyTable
from kedge.node.policies.policy_datapath import PolicyDatapath
from kedge.node.policies.policy_enforcer import enforced_policy
from kedge.node.policies.policy_objects import NetworkPolicy, PolicyPod
from kedge.testing.network import run_elsewhere
from kedge.testing.pod_network import PORT, NetworkMachine, NetworkPod, run_on_machine

BAR_SECONDS = 0.02
BAR_RATIO = 3.0
FEW = 100
NAMESPACES = 100
HERE = 200
CONNECTIONS = 500


def drain(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def policy(number: int) -> tuple[Key, NetworkPolicy]:
    """One of ten policies of a namespace: for a tenth of its pods, from its own or another one."""
    key = Key(f"n{number % NAMESPACES}", f"p{number // NAMESPACES}")
    peer = {"podSelector": {"matchLabels": {"app": str(number % 10)}}}
    other = {"namespaceSelector": {"matchLabels": {"ns": f"n{number % 7}"}}, **peer}
    spec = {
        "podSelector": {"matchLabels": {"app": str(number // NAMESPACES % 10)}},
        "ingress": [{"from": [peer, other], "ports": [{"port": 80}, {"port": 443}]}],
    }
    document = {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec}
    return key, msgspec.convert(document, NetworkPolicy)


def pod(number: int, label: int | None = None) -> PolicyPod:
    first = IPv4Address("10.244.0.2") if number < HERE else IPv4Address("10.250.0.0")
    labels = {"app": str(number % 10 if label is None else label)}
    return PolicyPod(f"n{number % NAMESPACES}", f"pod{number}", labels, first + number)


async def measure(pods: int, policies: int, changes: int) -> tuple[float, float]:
    """Return the seconds for everything, and for one changed label."""
    table = PolicyTable("kbr1")
    datapath = PolicyDatapath(IPv4Network("10.244.0.0/24"), [])
    begun = perf_counter()
    for number in range(NAMESPACES):
        drain(datapath.put_namespace(f"n{number}", {"ns": f"n{number}"}))
    for number in range(policies):
        key, made = policy(number)
        drain(datapath.put_policy(key, enforced_policy(made)))
    for number in range(pods):
        drain(datapath.put_pod(pod(number)))
    await table.rewrite(datapath.content.everything)
    datapath.content.confirm()
    everything = perf_counter() - begun
    took = []
    for change in range(changes):
        begun = perf_counter()
        drain(datapath.put_pod(pod(7, change % 10)))
        await table.apply(datapath.content.change)
        datapath.content.confirm()
        took.append(perf_counter() - begun)
    table.remove()
    return everything, median(took)


async def connect(client: NetworkPod, server: NetworkPod) -> float:
    """Return the median seconds to open a connection and read the answer."""
    loop, took = asyncio.get_running_loop(), []
    for _ in range(CONNECTIONS):
        with client.tcp() as channel:
            channel.setblocking(False)
            begun = perf_counter()
            await loop.sock_connect(channel, (server.address, PORT))
            await loop.sock_recv(channel, 100)
            took.append(perf_counter() - begun)
    return median(took)


async def measure_packets(machine: NetworkMachine) -> tuple[float, float]:
    node = await machine.node()
    client, free, guarded = [await machine.server(node, each) for each in ("client", "a", "b")]
    datapath = PolicyDatapath(node.bridge.network, [])
    for each in (client, free, guarded):
        drain(
            datapath.put_pod(PolicyPod("x", each.name, {"n": each.name}, IPv4Address(each.address)))
        )
    for number in range(10):
        peer: dict[str, Any] = {"podSelector": {"matchLabels": {"n": str(number)}}}
        if number == 9:
            peer = {"podSelector": {}}
        spec = {"podSelector": {"matchLabels": {"n": "b"}}, "ingress": [{"from": [peer]}]}
        made = msgspec.convert({"metadata": {"namespace": "x"}, "spec": spec}, NetworkPolicy)
        drain(datapath.put_policy(Key("x", str(number)), enforced_policy(made)))
    await node.bridge.policies.rewrite(datapath.content.everything)
    return await connect(client, free), await connect(client, guarded)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--policies", type=int, default=1_000)
    parser.add_argument("--changes", type=int, default=100)
    given = parser.parse_args()
    figures: dict[int, tuple[float, float]] = {}
    packets: list[float] = []

    async def work() -> None:
        for pods in (FEW, given.pods):
            figures[pods] = await measure(pods, given.policies, given.changes)

    async def send(machine: NetworkMachine) -> None:
        packets.extend(await measure_packets(machine))

    run_elsewhere(work)
    for pods, (everything, one) in figures.items():
        print(
            f"{pods:6,} pods, {given.policies:,} policies: everything {everything * 1000:8.1f} ms,"
            f" one changed label {one * 1000:.3f} ms"
        )
    ratio = figures[given.pods][1] / figures[FEW][1]
    print(f"one changed label costs {ratio:.2f} times as much with {given.pods:,} pods")
    with tempfile.TemporaryDirectory() as directory:
        run_on_machine(send, Path(directory), "0")
    free, guarded = packets
    print(
        f"a connection to a pod without policies {free * 1e6:.0f} µs,"
        f" to one of ten policies {guarded * 1e6:.0f} µs"
    )
    return 0 if figures[given.pods][1] < BAR_SECONDS and ratio < BAR_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
