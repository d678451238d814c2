"""The cost of a write on each storage engine: ConfigMaps are created through the API, in one run.

Prints the rate and latencies at the client, and the processor time of the server and of etcd or
PostgreSQL.

Usage: python bench/engines.py [writes per row]
"""

import http.client
import os
import shutil
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

from cluster import Cluster, Home, processor_seconds
from machine import machine_speed

from kedge.testing.etcd_process import EtcdProcess
from kedge.testing.postgresql_process import PostgresMissing, PostgresProcess, program

CALLERS = (1, 16, 64)
Database = EtcdProcess | PostgresProcess
VALUE = "x" * 1024
PATH = "/api/v1/namespaces/default/configmaps"


class Caller(threading.Thread):
    """Creates objects one after the other."""

    def __init__(self, cluster: Cluster, name: str, count: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._name = name
        self._count = count
        self.taken: list[float] = []

    def run(self) -> None:
        tls = ssl._create_unverified_context()
        address = urlsplit(self._cluster.url).netloc
        connection = http.client.HTTPSConnection(address, context=tls)
        headers = {
            "Authorization": f"Bearer {self._cluster.token}",
            "Content-Type": "application/json",
        }
        for number in range(self._count):
            body = f'{{"metadata":{{"name":"{self._name}-{number}"}},"data":{{"x":"{VALUE}"}}}}'
            start = perf_counter()
            connection.request("POST", PATH, body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 201:
                raise RuntimeError(f"create: {answer.status}")
            self.taken.append(perf_counter() - start)
        connection.close()


def spent_by(database: Database | None) -> float:
    """Return the processor time of all processes of a database."""
    if database is None or database.process is None:
        return 0.0
    # Connections of PostgreSQL are processes of their own.
    pid = database.process.pid
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        pids = (pid, *map(int, file.read().split()))
    return sum((processor_seconds(each) for each in pids), 0.0)


def measure(cluster: Cluster, database: Database | None, callers: int, count: int) -> str:
    threads = [Caller(cluster, f"c{callers}-{n}", count // callers) for n in range(callers)]
    before = [processor_seconds(cluster.pid), spent_by(database)]
    start = perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    elapsed = perf_counter() - start
    after = [processor_seconds(cluster.pid), spent_by(database)]
    spent = [now - then for now, then in zip(after, before, strict=True)]
    taken = sorted(each for thread in threads for each in thread.taken)
    p50, p99 = (taken[int(len(taken) * part)] * 1000 for part in (0.5, 0.99))
    costs = [f"{each / len(taken) * 1e6:,.0f}" for each in spent]
    other = costs[1] if database else "-"
    return f"{len(taken) / elapsed:8,.0f} {p50:8.2f} {p99:8.2f} {costs[0]:>9} {other:>11}"


@contextmanager
def engine(name: str, directory: Path) -> Iterator[tuple[Cluster, Database | None]]:
    """A cluster on an engine."""
    database = started(name)
    home = Home(directory)
    try:
        home.up(database.url if database else name)
        try:
            yield home.running(), database
        finally:
            home.down()
    finally:
        if database:
            database.remove()


def started(name: str) -> Database | None:
    """Start an etcd or a PostgreSQL that flushes to disk."""
    if name not in ("etcd", "postgresql"):
        return None
    directory = Path(tempfile.mkdtemp(prefix="kedge-bench-"))
    if name == "etcd":
        etcd = EtcdProcess(directory)
        etcd.start()
        return etcd
    postgresql = PostgresProcess(directory)
    postgresql.create()
    postgresql.start()
    return postgresql


def engines() -> list[str]:
    """Return the engines of this machine."""
    found = ["sqlite", *(("etcd",) if shutil.which("etcd") else ())]
    with suppress(PostgresMissing):
        program("initdb")
        found.append("postgresql")
    return found


def main(count: int) -> None:
    print(machine_speed().line())
    print(
        f"{'engine':10} {'callers':>7} {'writes/s':>8} {'p50 ms':>8} {'p99 ms':>8}"
        f" {'server µs':>9} {'database µs':>11} {'load':>6}"
    )
    for name in engines():
        with (
            tempfile.TemporaryDirectory() as directory,
            engine(name, Path(directory)) as (cluster, database),
        ):
            measure(cluster, database, 4, 100)
            for callers in CALLERS:
                line = measure(cluster, database, callers, count)
                print(f"{name:10} {callers:7} {line} {os.getloadavg()[0]:6.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
