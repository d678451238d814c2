"""Measure how the server grows: up to 50,000 pods on 1,000 simulated nodes; print a table.

At each size, pods of Deployments are added until there are that many and all are Ready. Then the
same operations are measured as at the size before: their cost should not depend on the number of
pods. Everything but the containers is real: the API, the store on disk, scheduler, controllers,
heartbeats and usage reports of all nodes. --plot draws the figures.

    growth.py --sizes 5000 20000 50000 --plot docs/pictures/growth.svg
    growth.py --store etcd --servers 3
"""

import argparse
import asyncio
import json
import os
import signal
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from time import perf_counter, sleep
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from apibench import Api, Caller, Load, need_wrk
from apibench import Bench as ApiBench
from cluster import Cluster, Home, home, processor_seconds, resident_mb
from line_plot import Panel, draw
from machine import machine_speed

from kedge.testing.etcd_process import EtcdProcess

PATIENCE = 3600.0
OF_ONE_DEPLOYMENT = 1000
PAGE = 500
CHANGES = 100
"""Events that a watch has missed when it resumes."""
ADDED = b'{"type":"ADDED"'
RETRY_SECONDS = 0.05
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"

Figures = dict[str, float]

COLUMNS = {
    "pods": ("pods", ",.0f"),
    "ready_s": ("to Ready, s", ",.1f"),
    "pod_cpu_ms": ("CPU of a pod, ms", ".2f"),
    "etcd_cpu_ms": ("of etcd, ms", ".2f"),
    "resident_mb": ("resident, MB", ",.0f"),
    "pod_kb": ("memory of a pod, KB", ".1f"),
    "get_cpu_us": ("CPU of a get, µs", ".0f"),
    "get_p99_ms": ("get under writes, p99, ms", ".1f"),
    "patch_cpu_us": ("CPU of a patch, µs", ",.0f"),
    "page_ms": ("page of 500, ms", ".1f"),
    "list_s": ("list in pages, s", ".2f"),
    "resume_s": ("500 watches resume, s", ".2f"),
    "restart_s": ("answers after kill -9, s", ".2f"),
}
"""By figure: its name in the table and the plot, and how it is written."""

PLOTTED = ("pod_cpu_ms", "pod_kb", "get_cpu_us", "get_p99_ms", "patch_cpu_us", "page_ms")


def main() -> None:
    flags = parser().parse_args()
    need_wrk()
    print(machine_speed().line(), flush=True)
    with engine(flags.store) as etcd, home() as place:
        store = etcd.url if etcd else flags.store
        several = [f"--servers={flags.servers}"] if flags.servers > 1 else []
        nodes = f"--simulated-nodes={flags.nodes}"
        place.up(store, nodes, "--wait=600s", "--gateway=off", *several)
        figures = Growth(place, flags, etcd).run()
    print(machine_speed().line())
    if flags.json:
        flags.json.write_text(json.dumps(figures, indent=2) + "\n")
    if flags.plot:
        flags.plot.write_text(draw("pods", [panel(name, figures) for name in PLOTTED]))


@contextmanager
def engine(store: str) -> Iterator[EtcdProcess | None]:
    """Start an etcd that flushes to disk, if the store is one."""
    if store != "etcd":
        yield None
        return
    etcd = EtcdProcess(Path(tempfile.mkdtemp(prefix="kedge-bench-")))
    etcd.start()
    try:
        yield etcd
    finally:
        etcd.remove()


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--store", choices=("sqlite", "etcd"), default="sqlite")
    flags.add_argument("--servers", type=int, default=1, help="API servers, with etcd")
    flags.add_argument("--nodes", type=int, default=1000, help="how many to simulate")
    flags.add_argument("--sizes", type=int, nargs="+", default=[5000, 10_000, 20_000, 50_000])
    flags.add_argument("--watchers", type=int, default=500, help="watches that resume at once")
    flags.add_argument("--seconds", type=int, default=3, help="time of an operation")
    flags.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    flags.add_argument("--plot", type=Path, metavar="FILE", help="draw them as SVG")
    return flags


def panel(name: str, figures: Sequence[Figures]) -> Panel:
    title, _ = COLUMNS[name]
    return Panel(title, [(each["pods"], each[name]) for each in figures])


class Usage(NamedTuple):
    """The processor time and memory of a process so far."""

    processor_seconds: float
    resident_mb: float


def shares(before: Mapping[str, Usage], after: Mapping[str, Usage], seconds: float) -> str:
    """Say how busy each process was for so many seconds, and how large it is."""
    parts = []
    for name, now in after.items():
        busy = (now.processor_seconds - before[name].processor_seconds) / seconds
        parts.append(f"{name} {busy:.0%} of a core, {now.resident_mb:,.0f} MB")
    return "; ".join(parts)


class Growth:
    """One run: a cluster that becomes larger."""

    def __init__(self, place: Home, flags: argparse.Namespace, etcd: EtcdProcess | None) -> None:
        self._place = place
        self._etcd = etcd
        self._flags = flags
        self._cluster: Cluster = place.running()
        self._api = Api(self._cluster.url, self._cluster.token)
        self._caller = Caller(self._api)
        self._empty_mb = self._cluster.resident_mb()
        load = Load(**asdict(Load(pods=1, seconds=flags.seconds)))
        self._load = ApiBench(self._api, load)
        self._load.prepare()
        self._load.fill()
        self._pods = 0

    def run(self) -> list[Figures]:
        print(f"{self._flags.nodes} nodes: {self._empty_mb:.0f} MB", flush=True)
        print("  ".join(title for title, _ in COLUMNS.values()), flush=True)
        rows = []
        for size in self._flags.sizes:
            row = self._at(size)
            cells = [f"{row[name]:{form}}".rjust(len(t)) for name, (t, form) in COLUMNS.items()]
            print("  ".join(cells), flush=True)
            rows.append(row)
        return rows

    def _at(self, size: int) -> Figures:
        row: Figures = {"pods": size}
        before = self._usage()
        row |= self._grow(size)
        print(shares(before, self._usage(), row["ready_s"]), flush=True)
        sleep(10)  # events and statuses that were held back
        row["resident_mb"] = self._cluster.resident_mb()
        row["pod_kb"] = (row["resident_mb"] - self._empty_mb) * 1024 / size
        row["get_cpu_us"] = self._cpu_us("get")
        row["patch_cpu_us"] = self._cpu_us("patch")
        row["get_p99_ms"] = self._get_under_writes()
        row |= self._pages()
        row["resume_s"] = self._resume()
        row["restart_s"] = self._restart()
        return row

    def _grow(self, size: int) -> Figures:
        """Add Deployments until there are so many pods, all Ready."""
        added, cpu, began = size - self._pods, self._cluster.processor_seconds(), perf_counter()
        etcd = self._etcd_seconds()
        while self._pods < size:
            replicas = min(OF_ONE_DEPLOYMENT, size - self._pods)
            self._caller.ensure(DEPLOYMENTS, deployment(f"web-{self._pods}", replicas))
            self._pods += replicas
        end = began + PATIENCE
        while self._ready() < size:
            if perf_counter() > end:
                sys.exit(f"{size} pods were not Ready after {PATIENCE:.0f} s")
            sleep(0.5)
        used = self._cluster.processor_seconds() - cpu
        return {
            "ready_s": perf_counter() - began,
            "pod_cpu_ms": used / added * 1e3,
            "etcd_cpu_ms": (self._etcd_seconds() - etcd) / added * 1e3,
        }

    def _etcd_seconds(self) -> float:
        process = self._etcd.process if self._etcd else None
        seconds: float = processor_seconds(process.pid) if process else 0.0
        return seconds

    def _usage(self) -> dict[str, Usage]:
        pids = {f"server {number}": pid for number, pid in enumerate(self._cluster.pids, 1)}
        if self._etcd and self._etcd.process:
            pids["etcd"] = self._etcd.process.pid
        return {name: Usage(processor_seconds(pid), resident_mb(pid)) for name, pid in pids.items()}

    def _ready(self) -> int:
        found = self._caller.get(DEPLOYMENTS)["items"]
        return sum(each.get("status", {}).get("readyReplicas", 0) for each in found)

    def _cpu_us(self, operation: str) -> float:
        """The processor time of a request, without that of heartbeats and reports."""
        idle = self._idle_share()
        before, began = self._cluster.processor_seconds(), perf_counter()
        figures = self._load.run(operation)
        used = self._cluster.processor_seconds() - before - idle * (perf_counter() - began)
        each: float = used / figures["requests"] * 1e6
        return each

    def _idle_share(self) -> float:
        before = self._cluster.processor_seconds()
        sleep(10)
        used: float = self._cluster.processor_seconds() - before
        return used / 10

    def _get_under_writes(self) -> float:
        writes = Thread(target=self._load.run, args=("patch",))
        writes.start()
        figures = self._load.run("get")
        writes.join()
        p99_ms: float = figures["p99_ms"]
        return p99_ms

    def _pages(self) -> Figures:
        """List all pods as kubectl does, in pages of 500."""
        path, times = f"/api/v1/pods?limit={PAGE}", []
        following = ""
        while True:
            began = perf_counter()
            page = self._caller.get(path + following)
            times.append(perf_counter() - began)
            token = page["metadata"].get("continue")
            if not token:
                return {"page_ms": sorted(times)[len(times) // 2] * 1e3, "list_s": sum(times)}
            following = f"&continue={token}"

    def _resume(self) -> float:
        """The time until each of many watches has the events that it missed."""
        page = self._caller.get("/api/v1/pods?limit=1")
        version = page["metadata"]["resourceVersion"]
        for number in range(CHANGES):
            document = {"kind": "ConfigMap", "apiVersion": "v1"}
            meta = {"name": f"change-{self._pods}-{number}"}
            self._caller.ensure(
                "/api/v1/namespaces/bench/configmaps", document | {"metadata": meta}
            )
        path = f"/api/v1/namespaces/bench/configmaps?watch=1&resourceVersion={version}"
        return asyncio.run(resume(self._api, path, self._flags.watchers))

    def _restart(self) -> float:
        """The time from the end of the server by SIGKILL until it answers a get again."""
        os.kill(self._cluster.pid, signal.SIGKILL)
        began = perf_counter()
        while perf_counter() < began + 120:
            with suppress(OSError):
                caller = Caller(self._api)
                caller.get("/api/v1/namespaces/bench/pods/one")
                taken = perf_counter() - began
                break
            sleep(0.02)
        else:
            sys.exit("the server did not come back after kill -9")
        # Of several servers, another one may answer before the connections of this one are reset.
        while True:
            with suppress(OSError):
                self._caller = Caller(self._api)
                if self._ready() >= self._pods:
                    break
            sleep(1)
        sleep(20)  # nodes and controllers take up their work again
        self._cluster = self._place.running_again(PATIENCE)
        return taken


async def resume(api: Api, path: str, watchers: int) -> float:
    # Without verification: to load the certificates of the machine would take longer than the rest.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    began = perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(watchers):
            tasks.create_task(until_caught_up(api, path, tls))
    return perf_counter() - began


async def until_caught_up(api: Api, path: str, tls: ssl.SSLContext) -> None:
    """Open a watch, and return when it has delivered the changes. A server refuses connections
    above some number that have not yet proved who they are: clients try again."""
    address = urlsplit(api.server)
    head = f"GET {path} HTTP/1.1\r\nHost: bench\r\n"
    headers = "".join(f"{name}: {value}\r\n" for name, value in api.headers().items())
    while True:
        with suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(
                address.hostname, address.port, ssl=tls, limit=1 << 20
            )
            writer.write(f"{head}{headers}\r\n".encode())
            await read_changes(reader)
            writer.close()
            return
        await asyncio.sleep(RETRY_SECONDS)


async def read_changes(reader: asyncio.StreamReader) -> None:
    missing, rest = CHANGES, b""
    while missing > 0:
        data = await reader.read(1 << 16)
        if not data:
            raise ConnectionError("a watch ended early")
        # A marker may be cut apart by the end of the data.
        missing -= (rest + data).count(ADDED)
        rest = data[1 - len(ADDED) :]


def deployment(name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    container = {"name": "main", "image": "app:1", "resources": resources}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
    return head | {"spec": spec}


if __name__ == "__main__":
    main()
