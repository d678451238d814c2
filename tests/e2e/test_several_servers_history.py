"""What clients of API servers do and see is linearizable, and their watches are complete: of three
servers on etcd, while servers and members of etcd are killed, stopped for a moment, and cut off
from each other, and of one on SQLite, which is killed. Clients create, update, delete, read and
list.

KEDGE_HISTORY_SECONDS=600 makes a long run of it. Each run prints how many faults there were.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from typing import TYPE_CHECKING, Final

import pytest

from kedge.machinery.clock import SystemClock
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.store import EtcdStore
from kedge.storage.sqlite.store import SqliteStore
from kedge.testing.api_history import ApiHistory, record_writes, replayed_writes
from kedge.testing.etcd_process import LOOPBACK, EtcdMissing, EtcdProcess, three_members
from kedge.testing.member_networks import MemberNetworks
from kedge.testing.server_process import ApiServerProcess, three_servers
from kedge.testing.store_history import violations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kedge.storage.store import StoreEvent
    from kedge.testing.api_history import Fault
    from kedge.testing.etcd_process import MemberNetwork

SECONDS: Final = float(os.environ.get("KEDGE_HISTORY_SECONDS", "10"))
ROUND_SECONDS: Final = 150.0
"""A server keeps the history of five minutes in SQLite, which is compared after each round."""
CLIENTS: Final = 6
SEED: Final = int(os.environ.get("KEDGE_HISTORY_SEED", "1"))

pytestmark = [pytest.mark.timeout(240 + 2 * SECONDS)]


async def check(
    servers: Sequence[ApiServerProcess], endpoints: tuple[str, ...], faults: Sequence[Fault]
) -> None:
    """Let clients work while faults happen one after the other, then look at their history."""
    clock = SystemClock()
    store = await EtcdStore.open(EtcdConnection(endpoints=endpoints), clock)
    transports = [server.transport() for server in servers]
    clients = ApiHistory(transports, clock, SEED, CLIENTS)
    since = await clients.begin()
    history: list[StoreEvent] = []
    async with asyncio.TaskGroup() as group:
        # As it happens: it is kept for five minutes only.
        recording = group.create_task(record_writes(store, since, history))
        last = await clients.run(SECONDS, faults)
        until = await store.newest()
        while store.revision < until or history[-1].entry.revision < last:
            await clock.sleep(0.02)
        await clock.sleep(0.1)
        recording.cancel()
    for transport in transports:
        await transport.close()
    await store.close()
    conclude(clients, history, shares_deletions=True)


def conclude(
    clients: ApiHistory, history: Sequence[StoreEvent], *, shares_deletions: bool = False
) -> None:
    """Compare what clients saw with what the store says."""
    print(clients.summary(history))
    found = violations(clients.operations, history, shares_deletions=shares_deletions)
    assert list(found) == []
    assert clients.watch_violations(history) == []
    assert sum(each.outcome == "ok" for each in clients.operations) > 2 * min(SECONDS, 20)
    done = {each.kind for each in clients.operations if each.outcome == "ok"}
    assert done == {"get", "list", "put", "delete"}


def settings(directory: Path, networks: Sequence[MemberNetwork]) -> list[EtcdProcess]:
    """Start three members of etcd."""
    (directory / "etcd").mkdir()
    try:
        return three_members(directory / "etcd", networks)
    except EtcdMissing as missing:
        pytest.skip(str(missing))


async def brought_back(server: ApiServerProcess) -> None:
    """Start a server again."""
    server.spawn()
    clock = SystemClock()
    while not server.is_ready():
        if server.process is None or server.process.poll() is not None:
            server.spawn()  # it met etcd without a leader
        await clock.sleep(0.05)


async def test_servers_and_members_are_killed(tmp_path: Path) -> None:
    clock = SystemClock()
    members = settings(tmp_path, (LOOPBACK,) * 3)
    endpoints = tuple(member.endpoint for member in members)
    servers: list[ApiServerProcess] = []

    async def kill(chance: random.Random) -> str:
        server = chance.choice(servers)
        number = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
        await asyncio.to_thread(server.end, number)
        await clock.sleep(chance.uniform(0, 0.5))
        await brought_back(server)
        return f"server {number.name}"

    async def kill_member(chance: random.Random) -> str:
        member = chance.choice(members)
        await asyncio.to_thread(member.kill)
        await clock.sleep(chance.uniform(0, 1))
        member.spawn()
        await asyncio.to_thread(member.wait)
        return "member SIGKILL"

    async def stop_member(chance: random.Random) -> str:
        """Servers go to the next member, and repeat what this one may still carry out."""
        member = chance.choice(members)
        member.pause()
        await clock.sleep(chance.uniform(0.1, min(6.0, SECONDS / 4)))
        member.go_on()
        return "member SIGSTOP"

    async def stop(chance: random.Random) -> str:
        server = chance.choice(servers)
        server.send(signal.SIGSTOP)
        await clock.sleep(chance.uniform(0.05, 1.5))
        server.send(signal.SIGCONT)
        return "server SIGSTOP"

    try:
        servers += three_servers(tmp_path, f"etcd://{','.join(endpoints)}", [("127.0.0.1", ())] * 3)
        await check(servers, endpoints, [kill, kill_member, stop, stop_member])
    finally:
        for each in servers:
            each.end()
        for member in members:
            member.kill()


async def test_a_server_on_sqlite_is_killed(tmp_path: Path) -> None:
    clock, left, number = SystemClock(), SECONDS, 0
    while left > 0:
        number += 1
        server = ApiServerProcess(tmp_path / f"s{number}", "sqlite")
        server.directory.mkdir(mode=0o700)

        async def kill(chance: random.Random, server: ApiServerProcess = server) -> str:
            number = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            await asyncio.to_thread(server.end, number)
            await brought_back(server)
            return f"server {number.name}"

        try:
            server.spawn()
            await asyncio.to_thread(server.wait)
            transport = server.transport()
            clients = ApiHistory([transport], clock, SEED + number, CLIENTS)
            since = await clients.begin()
            await clients.run(min(left, ROUND_SECONDS), [kill])
            await transport.close()
        finally:
            server.end()
        store = await SqliteStore.open(server.directory / "store.db", clock)
        history = await replayed_writes(store, since)
        await store.close()
        conclude(clients, history)
        left -= ROUND_SECONDS


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and the program ip"
)
async def test_servers_and_members_are_cut_off(tmp_path: Path) -> None:
    """Each is in a network namespace of its own, as a machine; links between them are cut."""
    clock = SystemClock()
    networks = MemberNetworks(6)
    servers: list[ApiServerProcess] = []
    members: list[EtcdProcess] = []

    async def cut(chance: random.Random) -> str:
        number = chance.randrange(6)
        networks.cut_off(number)
        await clock.sleep(chance.uniform(0.1, 2.5))
        networks.join(number)
        await clock.sleep(chance.uniform(0.1, 0.8))
        return "member cut off" if number < 3 else "server cut off"

    async def cut_two(chance: random.Random) -> str:
        one, other = chance.sample(range(6), 2)
        networks.cut_off(one)
        networks.cut_off(other)
        await clock.sleep(chance.uniform(0.1, 1.5))
        networks.join(one)
        await clock.sleep(chance.uniform(0, 0.3))
        networks.join(other)
        return "two cut off"

    with networks.opened() as opened:
        try:
            members += settings(tmp_path, opened[:3])
            inside = [
                f"{network.peer_address}:{member.client_port}"
                for network, member in zip(opened, members, strict=False)
            ]
            places = [(network.client_address, network.program) for network in opened[3:]]
            servers += three_servers(tmp_path, f"etcd://{','.join(inside)}", places)
            endpoints = tuple(member.endpoint for member in members)
            await check(servers, endpoints, [cut, cut, cut_two])
        finally:
            for each in servers:
                each.end()
            for member in members:
                member.kill()
