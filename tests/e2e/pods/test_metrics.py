"""Usage of pods that really work, against what the processes themselves say they used."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from kedge.cli.cluster import process

if TYPE_CHECKING:
    from tests.e2e.conftest import Api

Json = dict[str, Any]

SLACK = 0.05
"""How far off numbers may be, as a part of them."""
UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "Ki": 1024, "Mi": 1 << 20, "Gi": 1 << 30}

# Works half of the time and says each fifth of a second when it is and how much it has worked.
BUSY = """
import os, time
while True:
    end = time.monotonic() + 0.1
    while time.monotonic() < end: pass
    print(time.time(), time.process_time(), flush=True)
    time.sleep(0.1)
"""
HOG = """
import time
kept = bytearray(b"x") * (80 << 20)
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon")][0])
import sys; sys.stdout.flush()
time.sleep(1000)
"""


def number(text: str) -> float:
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)


class Measured:
    """The pods of one namespace, as their metrics show them."""

    def __init__(self, api: Api, pods: Any, eventually: Callable[..., Any]) -> None:
        self.api = api
        self.pods = pods
        self._eventually = eventually

    def run(self, name: str, program: str) -> None:
        self.pods.create(name, container={"command": ["python3", "-c", program]})
        self._eventually(lambda: self.pods.ready(name) and self.log(name))

    def log(self, name: str) -> list[str]:
        path = f"{self.pods.path}/{name}/log"
        with self.api.open(self.api.request("GET", path)) as answer:
            text: str = answer.read().decode()
        return text.splitlines()

    def log_until(self, name: str, moment: float) -> list[str]:
        """What a busy one has said, up to after this moment."""
        self._eventually(lambda: float(self.log(name)[-1].split()[0]) > moment)
        return self.log(name)

    def windows(self, name: str) -> Json:
        path = f"/apis/metrics/v1alpha1/namespaces/{self.pods.namespace}/pods/{name}"
        found: Json = self.api.get(path)
        windows: Json = found["containers"][0]["metrics"]
        return windows

    def after(self, name: str, moment: float, within: float = 40.0) -> Json:
        """The windows of a tick that ended after this moment."""
        path = f"/apis/metrics/v1alpha1/namespaces/{self.pods.namespace}/pods/{name}"

        def fresh() -> bool:
            return self.api.serves(path) and end(self.windows(name)["10s"]) > moment

        self._eventually(fresh, within)
        return self.windows(name)


def end(window: Json) -> float:
    return datetime.fromisoformat(window["endtime"]).timestamp()


@pytest.fixture
def measured(api: Api, pods: Any, full_level: None, eventually: Callable[..., Any]) -> Measured:
    return Measured(api, pods, eventually)


def spent(lines: list[str], until: float) -> float:
    """Processor seconds that a program had used by then, between two of its lines."""
    told = [(float(at), float(used)) for at, used in (line.split() for line in lines)]
    before = max(each for each in told if each[0] <= until)
    after = min(each for each in told if each[0] > until)
    part = (until - before[0]) / (after[0] - before[0])
    return before[1] + part * (after[1] - before[1])


def test_a_busy_loop_is_as_busy_as_it_says(measured: Measured) -> None:
    measured.run("busy", BUSY)
    begun = float(measured.log("busy")[0].split()[0])
    windows = measured.after("busy", begun + 12)
    ended = end(windows["10s"])
    lines = measured.log_until("busy", ended)
    truth = (spent(lines, ended) - spent(lines, ended - 10)) / 10
    assert number(windows["10s"]["mean"]["cpu"]) == pytest.approx(truth, rel=SLACK, abs=0.01)
    ten_seconds = windows["10s"]
    mean, peak, percentile = (
        number(ten_seconds[statistic]["cpu"]) for statistic in ("mean", "max", "95th")
    )
    assert mean <= peak
    assert percentile <= peak


def test_a_memory_hog_holds_what_it_says(measured: Measured) -> None:
    measured.run("hog", HOG)
    truth = int(measured.log("hog")[0]) * 1024
    begun = datetime.fromisoformat(measured.pods.get("hog")["status"]["startTime"]).timestamp()
    windows = measured.after("hog", begun + 12)
    for name in ("10s", "1m", "1h", "1d"):
        for statistic in ("max", "95th"):
            found = number(windows[name][statistic]["memory"])
            assert found == pytest.approx(truth, rel=SLACK), (name, statistic)


def test_raw_samples_are_the_nodes_own(
    measured: Measured, node: Json, eventually: Callable[..., Any]
) -> None:
    measured.run("raw", BUSY)
    name = node["metadata"]["name"]
    path = f"/api/v1/nodes/{name}/proxy/stats/summary?only_cpu_and_memory=true"

    def mine() -> list[Json]:
        uid = measured.pods.get("raw")["metadata"]["uid"]
        return [each for each in measured.api.get(path)["pods"] if each["podRef"]["uid"] == uid]

    eventually(lambda: mine() and "usageNanoCores" in mine()[0]["containers"][0]["cpu"])
    (container,) = mine()[0]["containers"]
    at = datetime.fromisoformat(container["cpu"]["time"]).timestamp()
    lines = measured.log_until("raw", at + 1)
    used = container["cpu"]["usageCoreNanoSeconds"] / 1e9
    # Its time is told in whole seconds, and the interpreter's own start is not in the program's.
    assert spent(lines, at) - 0.1 <= used <= spent(lines, at + 1) + 0.5


@pytest.mark.skipif("KEDGE_E2E_KUBECONFIG" in os.environ, reason="the agent must be ours to kill")
def test_an_agent_that_is_killed_keeps_its_windows(
    own_cluster: Any, own_pods: Callable[[Any, str], Any], eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up("--nodes=1").api
    measured = Measured(api, own_pods(api, "default"), eventually)
    measured.run("kept", HOG)
    begun = datetime.fromisoformat(measured.pods.get("kept")["status"]["startTime"]).timestamp()
    before = measured.after("kept", begun + 12)
    agent = process.running(own_cluster.state / "nodes" / "node-1", "node")
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)
    eventually(lambda: process.birth(agent.pid) == "")
    where = f"--kubeconfig={own_cluster.kubeconfig}"
    own_cluster.kedge("up", *own_cluster.which, where, "--nodes=1")
    after = measured.after("kept", end(before["10s"]) + 15, within=60)
    assert after["1h"]["starttime"] == before["1h"]["starttime"]
    peak = number(before["1h"]["max"]["memory"])
    assert number(after["1h"]["max"]["memory"]) == pytest.approx(peak, rel=SLACK)
