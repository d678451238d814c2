"""What clients do and see at the same time is linearizable, and watches are complete: on SQLite,
on three members of etcd of which one is killed, cut off, or slow, and on a PostgreSQL that is.

KEDGE_HISTORY_SECONDS=600 makes a long run of it.
"""

import asyncio
import os
import random
import shutil
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest

from kedge.machinery.clock import SystemClock
from kedge.storage.etcd import client as etcd_client
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.store import EtcdStore
from kedge.storage.postgresql import session as postgres_session
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.store import PostgresStore
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import Store, StoreEvent
from kedge.testing.etcd_process import EtcdProcess, three_members
from kedge.testing.member_networks import MemberNetworks
from kedge.testing.postgresql_process import PostgresProcess
from kedge.testing.store_history import (
    PREFIX,
    HistoryClient,
    StoreOperation,
    violations,
    watch_violations,
)

SECONDS: Final = float(os.environ.get("KEDGE_HISTORY_SECONDS", "3"))
CLIENTS: Final = 3
"""Clients of each store."""

pytestmark = [pytest.mark.timeout(60 + 3 * SECONDS)]
Fault = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stuck member is left after a second, so that a short run sees it."""
    monkeypatch.setattr(etcd_client, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(postgres_session, "CALL_SECONDS", 1.0)


async def watched(store: Store, since: int, seen: list[StoreEvent]) -> None:
    async with aclosing(store.watch(PREFIX, since=since)) as events:
        async for event in events:
            seen.append(event)


async def recorded(
    stores: list[Store], fault: Fault | None = None
) -> tuple[list[StoreOperation], list[StoreEvent], list[list[StoreEvent]]]:
    """Let clients work on stores, with a fault in between; returns what they did, what the store
    says about it, and what watches saw."""
    clock = SystemClock()
    since = stores[0].revision
    clients = [
        HistoryClient(store, clock, f"s{number}c{client}", random.Random(10 * number + client))
        for number, store in enumerate(stores)
        for client in range(CLIENTS)
    ]
    seen: list[list[StoreEvent]] = [[] for _ in stores]
    async with asyncio.TaskGroup() as group:
        watches = [
            group.create_task(watched(store, since, into))
            for store, into in zip(stores, seen, strict=True)
        ]
        work = [group.create_task(client.run(SECONDS)) for client in clients]
        if fault is not None:
            work.append(group.create_task(fault()))
        await asyncio.wait(work)
        last = await clients[0].finish()
        while any(not each or each[-1].entry.revision < last.revision for each in seen):
            await clock.sleep(0.01)
        for watch in watches:
            watch.cancel()
    history: list[StoreEvent] = []
    async with aclosing(stores[-1].watch(PREFIX, since=since)) as events:
        while not history or history[-1].entry.revision < last.revision:
            history.append(await anext(events))
    return [each for client in clients for each in client.operations], history, seen


async def check(
    stores: list[Store], fault: Fault | None = None, *, shares_deletions: bool = False
) -> list[StoreOperation]:
    operations, history, seen = await recorded(stores, fault)
    outcomes = {each.outcome for each in operations}
    print(f"{len(operations)} operations, {len(history)} writes, outcomes {sorted(outcomes)}")
    assert list(violations(operations, history, shares_deletions=shares_deletions)) == []
    for each in seen:
        assert list(watch_violations(each, history)) == []
    assert sum(each.outcome == "ok" for each in operations) > 50
    return operations


async def test_sqlite_is_linearizable_and_watches_are_complete(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", SystemClock())
    await check([store, store])
    await store.close()


@pytest.fixture
def members(tmp_path: Path, etcd: EtcdProcess) -> Iterator[list[EtcdProcess]]:
    """Three members on loopback; `etcd` says whether the machine has etcd at all."""
    started = three_members(tmp_path)
    yield started
    for each in started:
        each.kill()


async def check_members(members: list[EtcdProcess], fault: Fault) -> list[StoreOperation]:
    """Two servers, which begin with different members: the first one is the one that fails."""
    endpoints = [each.endpoint for each in members]
    orders = (tuple(endpoints), (*endpoints[1:], endpoints[0]))
    stores: list[Store] = [
        await EtcdStore.open(EtcdConnection(endpoints=order), SystemClock()) for order in orders
    ]
    try:
        return await check(stores, fault, shares_deletions=True)
    finally:
        for store in stores:
            await store.close()


async def test_a_member_is_killed_and_comes_back(members: list[EtcdProcess]) -> None:
    clock = SystemClock()

    async def fault() -> None:
        await clock.sleep(SECONDS / 4)
        members[0].kill()
        await clock.sleep(SECONDS / 3)
        members[0].spawn()

    await check_members(members, fault)


async def test_a_member_is_slow(members: list[EtcdProcess]) -> None:
    clock = SystemClock()

    async def fault() -> None:
        for pause in (0.2, 0.6, 1.5):
            await clock.sleep(SECONDS / 10)
            members[0].pause()
            await clock.sleep(pause)
            members[0].go_on()

    await check_members(members, fault)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and the program ip"
)
@pytest.mark.usefixtures("etcd")
async def test_a_member_is_cut_off_from_the_others(tmp_path: Path) -> None:
    clock = SystemClock()
    networks = MemberNetworks(3)

    async def fault() -> None:
        await clock.sleep(SECONDS / 4)
        networks.cut_off(0)
        await clock.sleep(SECONDS / 2)
        networks.join(0)

    with networks.opened() as opened:
        members = three_members(tmp_path, opened)
        try:
            await check_members(members, fault)
        finally:
            for each in members:
                each.kill()


async def check_postgresql(server: PostgresProcess, fault: Fault) -> None:
    """Two servers of kedge in one schema."""
    connection = PostgresConnection(address=server.address)
    stores: list[Store] = [await PostgresStore.open(connection, SystemClock()) for _ in range(2)]
    try:
        await check(stores, fault)
        # Nothing was given out twice or left out.
        revision = stores[0].revision
        changes = server.query(f"SELECT count(*), max(revision) FROM {server.schema}.changes")
        assert changes == f"{revision - 1}|{revision}"
    finally:
        for store in stores:
            await store.close()


async def test_postgresql_is_killed_and_comes_back(postgresql: PostgresProcess) -> None:
    clock = SystemClock()

    async def fault() -> None:
        for _ in range(3):
            await clock.sleep(SECONDS / 6)
            postgresql.kill()
            await asyncio.to_thread(postgresql.start)

    await check_postgresql(postgresql, fault)


async def test_postgresql_is_slow(postgresql: PostgresProcess) -> None:
    clock = SystemClock()

    async def fault() -> None:
        for pause in (0.2, 0.6, 1.5):
            await clock.sleep(SECONDS / 10)
            postgresql.pause()
            await clock.sleep(pause)
            postgresql.go_on()

    await check_postgresql(postgresql, fault)


async def test_connections_of_postgresql_are_cut(postgresql: PostgresProcess) -> None:
    clock = SystemClock()

    async def fault() -> None:
        for _ in range(20):
            await clock.sleep(SECONDS / 25)
            await asyncio.to_thread(
                postgresql.query,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'kedge'",
            )

    await check_postgresql(postgresql, fault)
