"""How fast the stores write: operations per second, latencies and processor time of this process
by number of callers. etcd and PostgreSQL are measured if the machine has them.

Usage: python bench/store.py [seconds per row]
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from kedge.machinery.clock import SystemClock
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.store import EtcdStore
from kedge.storage.memory import MemoryStore
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.store import PostgresStore
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import Store
from kedge.testing.etcd_process import EtcdProcess
from kedge.testing.postgresql_process import PostgresMissing, PostgresProcess, program

VALUE = os.urandom(3072)
CALLERS = (1, 16, 64, 128)
KEYS_PER_CALLER = 50

Deed = Callable[[Store, int, int], Coroutine[Any, Any, None]]


async def create(store: Store, caller: int, turn: int) -> None:
    await store.put(f"/registry/pods/ns-{caller}/pod-{turn}", VALUE, expect=0)


class Update:
    """Writes the same few keys again and again."""

    def __init__(self) -> None:
        self._revisions: dict[str, int] = {}

    async def __call__(self, store: Store, caller: int, turn: int) -> None:
        key = f"/registry/leases/ns-{caller}/lease-{turn % KEYS_PER_CALLER}"
        entry = await store.put(key, VALUE, expect=self._revisions.get(key, 0))
        self._revisions[key] = entry.revision


async def get(store: Store, caller: int, turn: int) -> None:
    found = await store.get(f"/registry/nodes/node-{turn % KEYS_PER_CALLER}")
    assert found is not None


async def caller_loop(
    store: Store, deed: Deed, caller: int, until: float, taken: list[float]
) -> None:
    turn = 0
    while (start := perf_counter()) < until:
        await deed(store, caller, turn)
        taken.append(perf_counter() - start)
        turn += 1


async def count_events(store: Store, seen: list[int]) -> None:
    async with aclosing(store.watch("", since=store.revision)) as watch:
        async for event in watch:
            seen.append(event.entry.revision)


async def measure(store: Store, deed: Deed, callers: int, seconds: float) -> str:
    taken: list[float] = []
    seen: list[int] = []
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(count_events(store, seen))
        start, busy = perf_counter(), process_time()
        async with asyncio.TaskGroup() as crowd:
            for caller in range(callers):
                crowd.create_task(caller_loop(store, deed, caller, start + seconds, taken))
        elapsed, busy = perf_counter() - start, process_time() - busy
        watching.cancel()
    taken.sort()
    p50, p99 = (taken[int(len(taken) * part)] * 1000 for part in (0.5, 0.99))
    return (
        f"{len(taken) / elapsed:9,.0f} {p50:8.2f} {p99:8.2f} {taken[-1] * 1000:8.2f}"
        f" {busy / len(taken) * 1e6:8,.0f} {len(seen):9,}"
    )


async def run(seconds: float) -> None:
    print(
        f"{'store':10} {'deed':7} {'callers':>7} {'ops/s':>9} {'p50 ms':>8} {'p99 ms':>8}"
        f" {'max ms':>8} {'CPU µs':>8} {'watched':>9}"
    )
    print(f"load average {os.getloadavg()[0]:.1f}")
    for name in engines():
        for callers in CALLERS:
            for deed_name, deed in (("create", create), ("update", Update()), ("get", get)):
                with tempfile.TemporaryDirectory() as directory, database(name) as process:
                    store = await opened(name, Path(directory), process)
                    await fill(store)
                    line = await measure(store, deed, callers, seconds)
                    await store.close()
                print(f"{name:10} {deed_name:7} {callers:7} {line}", flush=True)


async def fill(store: Store) -> None:
    for turn in range(KEYS_PER_CALLER):
        await store.put(f"/registry/nodes/node-{turn}", VALUE, expect=0)


def engines() -> list[str]:
    """Return the stores of this machine."""
    found = ["memory", "sqlite", *(("etcd",) if shutil.which("etcd") else ())]
    with suppress(PostgresMissing):
        program("initdb")
        found.append("postgresql")
    return found


@contextmanager
def database(name: str) -> Iterator[EtcdProcess | PostgresProcess | None]:
    """Run an etcd or a PostgreSQL that flushes to disk, if it is to be measured."""
    if name not in ("etcd", "postgresql"):
        yield None
        return
    directory = Path(tempfile.mkdtemp(prefix="kedge-bench-"))
    process: EtcdProcess | PostgresProcess
    if name == "etcd":
        process = EtcdProcess(directory)
    else:
        process = PostgresProcess(directory)
        process.create()
    process.start()
    try:
        yield process
    finally:
        process.remove()


async def opened(
    name: str, directory: Path, process: EtcdProcess | PostgresProcess | None
) -> Store:
    if name == "memory":
        return MemoryStore(SystemClock())
    if isinstance(process, EtcdProcess):
        return await EtcdStore.open(EtcdConnection(endpoints=(process.endpoint,)), SystemClock())
    if process is not None:
        connection = PostgresConnection(address=process.address)
        return await PostgresStore.open(connection, SystemClock())
    return await SqliteStore.open(directory / "state.db", SystemClock())


if __name__ == "__main__":
    asyncio.run(run(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0))
