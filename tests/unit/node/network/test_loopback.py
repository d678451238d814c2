"""Pods that share the machine's network, on the machine's own loopback addresses."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from kedge.api.builtin.service_networks import LOOPBACK_PODS, LOOPBACK_SERVICES
from kedge.node.network.loopback import LoopbackNetwork
from kedge.node.runtime.runtime import PortMapping, RuntimeFailure, SandboxConfig
from kedge.testing.clock import FakeClock


@pytest.fixture
def network(tmp_path: Path) -> Iterator[LoopbackNetwork]:
    made = LoopbackNetwork(tmp_path)
    yield made
    made.close()


def pod(name: str, *ports: PortMapping) -> SandboxConfig:
    return SandboxConfig(namespace="default", name=name, uid=name, ports=ports)


@contextmanager
def listening(address: str, port: int = 0) -> Iterator[int]:
    with closing(socket.create_server((address, port))) as server:
        yield server.getsockname()[1]


def test_nodes_of_one_machine_have_their_services_apart(tmp_path: Path) -> None:
    one, two = (LoopbackNetwork(tmp_path / name) for name in ("one", "two"))
    assert one.services != two.services
    assert one.services in LOOPBACK_SERVICES
    assert one.service_address("10.96.0.10") == str(one.dns) == str(one.services[10])
    assert one.service_address("None") == "None"
    two.close()
    again = LoopbackNetwork(tmp_path / "two")
    assert again.services == two.services
    one.close()
    again.close()


async def test_each_pod_has_an_address_of_its_own(network: LoopbackNetwork) -> None:
    [one] = await network.attach("one", pod("one"), "", -1)
    [two] = await network.attach("two", pod("two"), "", -1)
    assert one != two
    assert network.network.subnet_of(LOOPBACK_PODS)
    assert all(network.address_of(name) == ip for name, ip in (("one", one), ("two", two)))
    await network.detach("one")
    assert network.address_of("one") == ""


async def test_the_next_agent_keeps_network_and_addresses(tmp_path: Path) -> None:
    before = LoopbackNetwork(tmp_path)
    [address] = await before.attach("one", pod("one"), "", -1)
    await before.attach("gone", pod("gone"), "", -1)
    before.close()
    after = LoopbackNetwork(tmp_path)
    await after.detach_others({"one"})
    await after.adopt("one", pod("one"), address)
    assert (after.network, after.gateway) == (before.network, before.gateway)
    assert (after.address_of("one"), after.address_of("gone")) == (address, "")
    after.close()


def test_another_network_is_taken_if_a_node_of_the_cluster_has_this_one(
    network: LoopbackNetwork,
) -> None:
    first = network.network
    assert network.release()
    network.reserve([first])
    assert network.network != first
    network.prefer(first)
    assert network.network == first
    network.prefer(IPv4Network("10.244.3.0/24"))
    assert network.network == first


async def test_a_node_with_pods_keeps_its_network(network: LoopbackNetwork) -> None:
    await network.attach("one", pod("one"), "", -1)
    assert not network.release()


async def test_ports_that_two_pods_declare_are_told(network: LoopbackNetwork) -> None:
    with listening("127.0.0.1") as number:
        # No program has this port at the addresses of the pods.
        ports = PortMapping(container_port=number), PortMapping(container_port=53, protocol="SCTP")
        await network.attach("one", pod("one", *ports), "", -1)
        assert network.collisions("one") == []
        [address] = await network.attach("two", pod("two", *ports[:1]), "", -1)
        assert network.collisions("two") == [
            f"port {number} (TCP) is also declared by the pod default/one: pods of this node share"
            f" the machine's network, so its program must bind to {address}, the pod's address"
            " (status.podIP)"
        ]
    assert network.collisions("nobody") == []


async def test_a_port_that_a_program_uses_is_told(network: LoopbackNetwork) -> None:
    with listening("0.0.0.0") as number:
        declared = PortMapping(container_port=number)
        await network.attach("one", pod("one", declared), "", -1)
        [said] = network.collisions("one")
    assert said.startswith(f"port {number} (TCP) is in use by another program: ")


async def test_a_host_port_leads_to_the_pod(network: LoopbackNetwork) -> None:
    # Below the ports that the kernel gives to other tests.
    host_port = _free_port()
    [address] = await network.attach("one", pod("one"), "", -1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"pod")
        writer.close()

    async with await asyncio.start_server(answer, address, 0) as server:
        inside = server.sockets[0].getsockname()[1]
        port = PortMapping(container_port=inside, host_port=host_port, host_ip="127.0.0.1")
        await network.attach("one", pod("one", port), "", -1)
        reader, writer = await asyncio.open_connection("127.0.0.1", host_port)
        assert await reader.read() == b"pod"
        writer.close()
    await network.detach("one")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", host_port)


async def test_a_host_port_in_use_is_an_error(network: LoopbackNetwork) -> None:
    with listening("127.0.0.1") as taken:
        port = PortMapping(container_port=1, host_port=taken, host_ip="127.0.0.1")
        with pytest.raises(RuntimeFailure, match="cannot set up the network of the pod"):
            await network.attach("one", pod("one", port), "", -1)
    assert network.address_of("one") == ""


async def test_a_listener_is_retried_until_its_port_is_free(tmp_path: Path) -> None:
    clock = FakeClock()
    network = LoopbackNetwork(tmp_path, clock)
    attempts: list[int] = []
    opened = asyncio.Event()

    class Listener:
        def close(self) -> None:
            pass

    async def listen() -> Listener:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("in use")
        opened.set()
        return Listener()

    await network.listener("a service", listen)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(network.run())
        while not opened.is_set():
            await clock.advance(1)
        running.cancel()
    network.close()
    assert len(attempts) == 3


def _free_port() -> int:
    """A port that no other process gets by chance."""
    for port in range(20_000 + os.getpid() % 5_000, 30_000):
        with closing(socket.socket()) as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
