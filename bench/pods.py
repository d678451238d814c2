"""Measure the start and the deletion of pods, and kedge's own usage; print a table with bars.

The cluster has one node and the image `host`. Times run from the sending of a request over HTTPS to
the arrival of the event at a watch. On a busy machine, processor time says more than elapsed time.
Some figures need root.
"""

import argparse
import http.client
import json
import os
import shutil
import ssl
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Any
from urllib.parse import urlsplit

from cluster import Cluster, Home, home

PODS = "/api/v1/namespaces/default/pods"
PARTS = ("server", "agent", "supervisor")
PATIENCE = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
OBEYS = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"


def main() -> None:
    flags = parser().parse_args()
    with home() as place:
        began = perf_counter()
        place.up("sqlite", "--nodes=1")
        show("kedge up to Ready", f"{perf_counter() - began:.2f} s", "0.7 s")
        cluster = place.running()
        with watching(cluster) as pods:
            machine = Machine(place, cluster)
            sleep(1)
            one_by_one(pods, machine, flags.pods)
            for number in flags.crowds:
                crowd(pods, machine, number)
            if shutil.which("kubectl"):
                command(pods, place, cluster)
            weigh(pods, machine)
            idle(pods, machine, flags.idle)


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--pods", type=int, default=50, help="how many to start one by one")
    flags.add_argument("--crowds", type=int, nargs="*", default=[30, 100], help="how many at once")
    flags.add_argument("--idle", type=float, default=30.0, help="seconds to do nothing")
    return flags


def show(what: str, figure: str, bar: str = "", rest: str = "") -> None:
    print(f"{what:32}{figure:>14}   {'< ' + bar if bar else '':10}{rest}", flush=True)


class Connection:
    """One connection to the API, kept open."""

    def __init__(self, cluster: Cluster) -> None:
        parts = urlsplit(cluster.url)
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        self._http = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, context=tls, timeout=PATIENCE
        )
        self._headers = {
            "Authorization": f"Bearer {cluster.token}",
            "Content-Type": "application/json",
        }

    def open(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body)
        self._http.request(method, path, data, self._headers)
        return self._http.getresponse()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.open(method, path, body)
        document = json.loads(answer.read())
        if answer.status >= 400:
            raise RuntimeError(document.get("message"))
        return document


class Pods:
    """Makes and deletes pods, and knows when what became of them was to be seen."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = Connection(cluster)
        self._seen: dict[tuple[str, str], float] = {}
        self._changed = threading.Condition()
        self._made = 0

    def follow(self, stream: http.client.HTTPResponse) -> None:
        for line in stream:
            event = json.loads(line)
            now, name = perf_counter(), event["object"]["metadata"]["name"]
            phase = event["object"].get("status", {}).get("phase", "")
            with self._changed:
                for what in (event["type"], phase):
                    self._seen.setdefault((name, what), now)
                self._changed.notify_all()

    def create(self, script: str = OBEYS) -> tuple[str, float]:
        """Its name, and when it was asked for."""
        self._made += 1
        name = f"bench-{self._made}"
        container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
        began = perf_counter()
        spec = {"containers": [container]}
        self._api.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        return name, began

    def delete(self, name: str) -> float:
        began = perf_counter()
        self._api.call("DELETE", f"{PODS}/{name}")
        return began

    def when(self, name: str, what: str) -> float:
        """When a pod was first seen in a phase, or deleted."""
        with self._changed:
            if not self._changed.wait_for(lambda: (name, what) in self._seen, PATIENCE):
                raise RuntimeError(f"{name} was not {what} after {PATIENCE:g} s")
            return self._seen[name, what]


@contextmanager
def watching(cluster: Cluster) -> Iterator[Pods]:
    pods = Pods(cluster)
    stream = Connection(cluster).open("GET", f"{PODS}?watch=true")
    threading.Thread(target=pods.follow, args=[stream], daemon=True).start()
    yield pods


class Machine:
    """The processes of kedge, and what they have used."""

    def __init__(self, place: Home, cluster: Cluster) -> None:
        agent = (place.state / "nodes" / "node-1" / "node.pid").read_text().split()[0]
        runtime = f"{place.state}/nodes/node-1/runtime"
        self.pids = dict(zip(PARTS, (cluster.pid, int(agent), _found(runtime)), strict=True))

    def spent(self) -> dict[str, float]:
        """Milliseconds of processor time so far."""
        return {part: processor_time(pid) for part, pid in self.pids.items()}

    def resident(self) -> dict[str, float]:
        """Megabytes."""
        return {part: resident(pid) for part, pid in self.pids.items()}


def _found(word: str) -> int:
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if word in (each / "cmdline").read_text().split("\0"):
                return int(each.name)
        except OSError:
            continue
    raise RuntimeError("there is no supervisor")


def processor_time(pid: int) -> float:
    """Milliseconds that a process has used."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) * 1000 / TICKS


def resident(pid: int) -> float:
    """Megabytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


@contextmanager
def accounted(machine: Machine, per: int) -> Iterator[Callable[[], str]]:
    """Says what was spent for each of so many pods."""
    before = machine.spent()

    def told() -> str:
        after = machine.spent()
        spent = {part: (after[part] - before[part]) / per for part in PARTS}
        return "cpu ms per pod: " + ", ".join(f"{p} {ms:.1f}" for p, ms in spent.items())

    yield told


def one_by_one(pods: Pods, machine: Machine, number: int) -> None:
    starts, ends = [], []
    with accounted(machine, number) as told:
        for _ in range(number):
            name, began = pods.create()
            starts.append(1000 * (pods.when(name, "Running") - began))
            sleep(0.05)
            began = pods.delete(name)
            ends.append(1000 * (pods.when(name, "DELETED") - began))
        rest = told()
    p99 = statistics.quantiles(starts, n=100)[98] if number > 1 else starts[0]
    show("create to Running, p50", f"{statistics.median(starts):.0f} ms", "60 ms", rest)
    show("create to Running, p99", f"{p99:.0f} ms", "120 ms")
    show("graceful delete, p50", f"{statistics.median(ends):.0f} ms", "100 ms")


def crowd(pods: Pods, machine: Machine, number: int) -> None:
    bars = {30: "0.7 s", 100: "2.5 s"}
    with accounted(machine, number) as told:
        began = perf_counter()
        names = [pods.create()[0] for _ in range(number)]
        last = max(pods.when(name, "Running") for name in names)
        show(f"{number} pods at once", f"{last - began:.2f} s", bars.get(number, ""), told())
    with accounted(machine, number) as told:
        began = perf_counter()
        for name in names:
            pods.delete(name)
        last = max(pods.when(name, "DELETED") for name in names)
        show(f"{number} pods deleted", f"{last - began:.2f} s", "", told())


def command(pods: Pods, place: Home, cluster: Cluster) -> None:
    name, _ = pods.create()
    pods.when(name, "Running")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(_kubeconfig(cluster), file)
        file.flush()
        words = ["kubectl", f"--kubeconfig={file.name}"]
        execs = [_timed([*words, "exec", name, "--", "true"]) for _ in range(11)]
    alone = [_timed(["kubectl", "version", "--client"]) for _ in range(5)]
    rest = f"of which kubectl's own start {statistics.median(alone):.0f} ms"
    show("kubectl exec true, p50", f"{statistics.median(execs):.0f} ms", "150 ms", rest)
    pods.when(name, "Running")
    pods.delete(name)


def _kubeconfig(cluster: Cluster) -> dict[str, Any]:
    server = {"server": cluster.url, "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": server}],
        "users": [{"name": "bench", "user": {"token": cluster.token}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }


def _timed(words: list[str]) -> float:
    began = perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    return 1000 * (perf_counter() - began)


def weigh(pods: Pods, machine: Machine) -> None:
    names = [pods.create()[0] for _ in range(50)]
    for name in names:
        pods.when(name, "Running")
    sleep(2)
    bars = {"supervisor": "15 MB", "agent": "80 MB"}
    for part, size in machine.resident().items():
        show(f"{part} with 50 pods", f"{size:.1f} MB", bars.get(part, ""))
    for name in names:
        pods.delete(name)
    for name in names:
        pods.when(name, "DELETED")


def idle(pods: Pods, machine: Machine, seconds: float) -> None:
    names = [pods.create("exec sleep 1000")[0] for _ in range(10)]
    for name in names:
        pods.when(name, "Running")
    sleep(3)
    before, began = machine.spent(), perf_counter()
    sleep(seconds)
    took = 1000 * (perf_counter() - began)
    shares = {part: 100 * (machine.spent()[part] - before[part]) / took for part in PARTS}
    rest = ", ".join(f"{part} {share:.2f} %" for part, share in shares.items())
    show("idle with ten pods", f"{sum(shares.values()):.2f} % cpu", "1 % cpu", rest)


if __name__ == "__main__":
    main()
