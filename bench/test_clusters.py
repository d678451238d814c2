"""How soon a cluster for a test is ready, what it costs, and how long 100 of them take. Snapshots
and forks. With `--assets`, the control plane that envtest starts is measured beside it.

Wall times depend on the load of the machine; processor times hardly do. The bars are for an idle
machine with two cores.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter, sleep

import control_plane_peer

import kedge
from kedge.cluster.warm_parent import connection

TICKS = os.sysconf("SC_CLK_TCK")
FLAGS = ["--store=memory", "--gateway=off"]
SETTLING = 1.0

TESTS = """
import os
import pathlib
import pytest

WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        }}],
    },
}


@pytest.fixture(scope="session")
def kedge_settings():
    return {"nodes": 0, "wait": 60}


@pytest.mark.parametrize("number", range(COUNT))
def test_cluster(kedge_fresh_cluster, number):
    c = kedge_fresh_cluster
    c.apply(CRD)
    c.wait("crd/widgets.example.com", "Established", timeout=60)
    c.apply(WIDGET)
    assert next(iter(c.watch("widgets", timeout=60))).object["metadata"]["name"] == "a"
    spent = 0
    for pid in c.processes.values():
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += int(fields[11]) + int(fields[12])
    pathlib.Path(f"ticks-{number}").write_text(str(spent))
"""


def main() -> None:
    flags = parser().parse_args()
    began = perf_counter()
    connection.start([*FLAGS, "--nodes=0"]).close()
    line("first cluster, with the start of the warm parent", perf_counter() - began, "s", "")
    print()
    for nodes, bar in ((0, "0.10"), (1, "0.40")):
        measure(nodes, bar, flags.runs)
    if flags.assets:
        measure_peer(flags.assets, flags.runs)
    snapshots(flags.objects, flags.runs)
    hundred(flags.count, flags.workers)


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--runs", type=int, default=10)
    flags.add_argument("--count", type=int, default=100, help="clusters of the pytest run")
    flags.add_argument("--workers", type=int, default=4)
    flags.add_argument("--objects", type=int, default=1000, help="objects of a snapshot")
    flags.add_argument(
        "--assets", type=Path, help="measure the etcd and kube-apiserver of this directory, too"
    )
    return flags


def measure(nodes: int, bar: str, runs: int) -> None:
    """Print the time until a cluster is ready, its processor time and its memory."""
    taken, spent, ended, memory = [], [], [], []
    for _ in range(runs):
        began = perf_counter()
        kept = connection.start([*FLAGS, f"--nodes={nodes}"])
        taken.append(perf_counter() - began)
        spent.append(processor_seconds(kept.answer.processes))
        sleep(SETTLING)
        memory.append(private_mb(kept.answer.processes))
        began = perf_counter()
        kept.close()
        ended.append(perf_counter() - began)
    what = f"cluster with {nodes} nodes"
    line(f"{what}: ready", statistics.median(taken), "s", bar)
    line(f"{what}: processor time until ready", statistics.median(spent), "s", "")
    line(f"{what}: removed", statistics.median(ended), "s", "")
    for name in memory[0]:
        value = statistics.median(each[name] for each in memory)
        line(f"{what}: private memory of {name}", value, "MB", "25.00")
    print()


def measure_peer(assets: Path, runs: int) -> None:
    """Print the same for the control plane of envtest, which has no controllers and no nodes."""
    taken, spent, memory = [], [], []
    for _ in range(runs):
        with control_plane_peer.started(assets) as peer:
            taken.append(peer.seconds)
            spent.append(processor_seconds(peer.processes))
            sleep(SETTLING)
            memory.append(sum(private_mb(peer.processes).values()))
    line("etcd and kube-apiserver: ready", statistics.median(taken), "s", "")
    line("etcd and kube-apiserver: processor time", statistics.median(spent), "s", "")
    line("etcd and kube-apiserver: private memory", statistics.median(memory), "MB", "")
    print()


def snapshots(objects: int, runs: int) -> None:
    """Print how long it takes to bring deleted and changed objects back, and to fork a cluster."""
    restored, worked, forked = [], [], []
    with kedge.Cluster(nodes=0, testing=True, wait=60) as c:
        maps = [config_map(number, "first") for number in range(objects)]
        c.apply(maps)
        taken = c.snapshot()
        for run in range(runs):
            change(c, objects, is_deleted=bool(run % 2))
            sleep(SETTLING)
            server = {"server": c.processes["server"]}
            before, began = nanoseconds(server), perf_counter()
            c.restore(taken)
            restored.append(perf_counter() - began)
            worked.append((nanoseconds(server) - before) / 1e9)
            sleep(SETTLING)
            began = perf_counter()
            with c.fork() as other:
                forked.append(perf_counter() - began)
                assert len(other.list("cm")) >= objects
    what = f"{objects:,} objects"
    line(f"{what}: restored", statistics.median(restored) * 1000, "ms", "50.00")
    line(f"{what}: processor time of it", statistics.median(worked) * 1000, "ms", "")
    line(f"{what}: in a forked cluster", statistics.median(forked), "s", "")
    print()


def config_map(number: int, text: str) -> dict[str, object]:
    metadata = {"name": f"map-{number}"}
    data = {"text": text * 50}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def change(c: kedge.Cluster, objects: int, *, is_deleted: bool) -> None:
    for number in range(objects):
        if is_deleted:
            c.delete(f"cm/map-{number}", timeout=0)
        else:
            c.patch(f"cm/map-{number}", {"data": {"text": "second"}})


def hundred(count: int, workers: int) -> None:
    """Print the time of a pytest run in which each test has a cluster."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "test_clusters.py").write_text(TESTS.replace("COUNT", str(count)))
        plugin = ["-p", "no:kedge", "-p", "kedge.cluster.pytest_plugin", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", "-q", *plugin, "-n", str(workers), place]
        before = os.times()
        began = perf_counter()
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        took = perf_counter() - began
        after = os.times()
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        servers = sum(int(each.read_text()) for each in Path(place).glob("ticks-*")) / TICKS
    workers_spent = sum(after[2:4]) - sum(before[2:4])
    bar = "60.00" if count == 100 else ""
    line(f"{count} clusters by pytest -n {workers}", took, "s", bar)
    line("processor time of their servers", servers, "s", "")
    line("processor time of pytest and the warm parents", workers_spent, "s", "")
    left = [*Path(tempfile.gettempdir()).glob("kedge-test-*")]
    print(f"directories of clusters left: {len(left)}")


def line(what: str, value: float, unit: str, bar: str) -> None:
    print(f"{what:52}{value:10.2f} {unit:3}" + (f" bar {bar}" if bar else ""))


def processor_seconds(processes: Mapping[str, int]) -> float:
    fields = [Path(f"/proc/{pid}/stat").read_text() for pid in processes.values()]
    parts = [each.rpartition(")")[2].split() for each in fields]
    return sum(int(each[11]) + int(each[12]) for each in parts) / TICKS


def nanoseconds(processes: Mapping[str, int]) -> int:
    """Return the processor time of all threads; finer than that of /proc/PID/stat."""
    threads = [each for pid in processes.values() for each in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads)


def private_mb(processes: Mapping[str, int]) -> dict[str, float]:
    return {name: _private_kb(pid) / 1024 for name, pid in processes.items()}


def _private_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(each.split()[1]) for each in lines if each.startswith("Private_"))


if __name__ == "__main__":
    print(f"kedge {kedge.__version__}")
    main()
