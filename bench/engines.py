"""The cost of a write on each storage engine: ConfigMaps are created through the API, in one run.

Prints the rate and latencies at the client, and the processor time of the server and of etcd.

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
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

from cluster import Cluster, Home, processor_seconds
from machine import machine_speed

from kedge.testing.etcd_process import EtcdProcess

CALLERS = (1, 16)
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


def measure(cluster: Cluster, etcd: EtcdProcess | None, callers: int, count: int) -> str:
    threads = [Caller(cluster, f"c{callers}-{n}", count // callers) for n in range(callers)]
    pids = [cluster.pid] + ([etcd.process.pid] if etcd and etcd.process else [])
    before = [processor_seconds(pid) for pid in pids]
    start = perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    elapsed = perf_counter() - start
    spent = [processor_seconds(pid) - then for pid, then in zip(pids, before, strict=True)]
    taken = sorted(each for thread in threads for each in thread.taken)
    p50, p99 = (taken[int(len(taken) * part)] * 1000 for part in (0.5, 0.99))
    costs = [f"{each / len(taken) * 1e6:9,.0f}" for each in spent] + ["-"]
    return f"{len(taken) / elapsed:8,.0f} {p50:8.2f} {p99:8.2f} {costs[0]:>9} {costs[1]:>9}"


@contextmanager
def engine(name: str, directory: Path) -> Iterator[tuple[Cluster, EtcdProcess | None]]:
    """A cluster on an engine."""
    etcd = None
    if name == "etcd":
        (directory / "etcd").mkdir()
        etcd = EtcdProcess(directory / "etcd")
        etcd.start()
    home = Home(directory)
    home.up(etcd.url if etcd else name)
    try:
        yield home.running(), etcd
    finally:
        home.down()
        if etcd:
            etcd.remove()


def main(count: int) -> None:
    print(machine_speed().line())
    print(
        f"{'engine':7} {'callers':>7} {'writes/s':>8} {'p50 ms':>8} {'p99 ms':>8}"
        f" {'server µs':>9} {'etcd µs':>9} {'load':>6}"
    )
    for name in ("sqlite", *(("etcd",) if shutil.which("etcd") else ())):
        with (
            tempfile.TemporaryDirectory() as directory,
            engine(name, Path(directory)) as (cluster, etcd),
        ):
            measure(cluster, etcd, 4, 100)
            for callers in CALLERS:
                line = measure(cluster, etcd, callers, count)
                print(f"{name:7} {callers:7} {line} {os.getloadavg()[0]:6.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
