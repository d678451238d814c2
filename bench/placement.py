"""How evenly the scheduler spreads what pods really use, with and without looking at it.

A cluster of 50 nodes fills up with 2,000 pods during six simulated hours, some of which leave
again. Half of the pods ask for nothing, the others for something else than they use; a few
workloads use most of the processor time, as they do in real clusters. Every node reports once a
minute, as `kedge node` does by default. The same pods arrive at the same moments in both runs, from
the same seed; only the second run is told what was measured.
"""

import argparse
import gc
import heapq
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import pi, sin
from random import Random
from statistics import mean
from time import process_time
from typing import Any, NamedTuple

from kedge.api.core_v1 import node, pod
from kedge.api.core_v1.pod import Pod
from kedge.scheduler.cycle import Placement, Turn, decide
from kedge.scheduler.demand import Demand
from kedge.scheduler.receivers import NodeReports, PodReports
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.usage import (
    Container,
    Meta,
    NodeReport,
    PodReport,
    Reading,
    Window,
    Windows,
)

NODES = 50
PODS = 2_000
LEAVING = 500
"""Pods that come besides, and go again."""
CORES = 32
GIBIBYTES = 128
MINUTES = 6 * 60
MINUTE = 60.0
LOOKED_AT = 60
"""The spread is looked at in each of the last so many minutes."""


@dataclass(frozen=True)
class Workload:
    """Pods of one controller: they ask for the same, and use about the same."""

    name: str
    cores: float
    gibibytes: float
    requests: dict[str, str]


@dataclass(frozen=True)
class Guest:
    """A pod, when it comes and goes, and what it uses in each minute between."""

    pod: Pod
    comes: float
    goes: float
    cores: list[float]
    gibibytes: float


class Outcome(NamedTuple):
    spread: float
    """Most loaded node minus least loaded, in percent of a node, on average of the last hour."""
    worst: float
    """The largest of these."""
    busiest: float
    """The load of the most loaded node."""
    decision: float
    """Seconds of processor time for each decision, on average; then the longest."""
    longest: float
    report: float
    """Seconds of processor time for taking in what one node reports."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    guests = list(arrivals(Random(seed)))
    # As the server does: what is there already is not looked through for garbage.
    gc.set_threshold(20_000, 20, 50)
    gc.freeze()
    blind, seeing = (run(guests, usage=usage) for usage in (False, True))
    print(f"{NODES} nodes, {len(guests)} pods of which {LEAVING} leave, seed {seed}")
    print(f"{'':40}{'requests only':>16}{'by usage':>16}")
    rows = (
        ("spread of node cpu, last hour, points", 1, blind.spread, seeing.spread),
        ("  the worst minute", 1, blind.worst, seeing.worst),
        ("cpu of the busiest node, percent", 1, blind.busiest, seeing.busiest),
        ("CPU ms a decision, on average", 1e3, blind.decision, seeing.decision),
        ("  the longest", 1e3, blind.longest, seeing.longest),
        ("CPU ms for one node's report", 1e3, blind.report, seeing.report),
    )
    for what, factor, one, other in rows:
        print(f"{what:40}{one * factor:16.2f}{other * factor:16.2f}")
    share = seeing.spread / blind.spread
    print(f"the spread is {share:.2f} of that by requests only (at most 0.50)")
    assert share <= 0.5
    assert seeing.decision < 0.005


def workloads(random: Random) -> Iterator[Workload]:
    """As in real clusters: half ask for nothing, others mostly for too much."""
    for number in range(200):
        cores = min(random.lognormvariate(-1.8, 1.1), 3.0)
        gibibytes = min(random.lognormvariate(-0.5, 0.8), 6.0)
        requests = {}
        if number % 2:
            cpu, memory = (random.lognormvariate(0.1, 0.7) for _ in range(2))
            requests = {
                "cpu": f"{max(round(cores * cpu * 1000), 10)}m",
                "memory": f"{max(round(gibibytes * memory * 1024), 16)}Mi",
            }
        yield Workload(f"w{number}", cores, gibibytes, requests)


def arrivals(random: Random) -> Iterator[Guest]:
    """Replicas of a workload come several at once; some pods do not stay."""
    kinds = list(workloads(random))
    left, number = PODS + LEAVING, 0
    leaving = set(random.sample(range(left), LEAVING))
    last = (MINUTES - 5) * MINUTE
    while left:
        kind = random.choice(kinds)
        replicas = min(random.choice((1, 1, 2, 3, 5, 8, 20)), left)
        moment = random.uniform(0, last)
        for _ in range(replicas):
            goes = random.uniform(moment, last) + MINUTE if number in leaving else float("inf")
            yield Guest(
                a_pod(number, kind),
                moment + random.uniform(0, 2.0),
                goes,
                course(random, kind.cores),
                kind.gibibytes * random.uniform(0.7, 1.3),
            )
            number += 1
        left -= replicas


def course(random: Random, cores: float) -> list[float]:
    """Minute by minute: a level of its own, a slow wave, and some unrest."""
    level, phase = cores * random.lognormvariate(0, 0.4), random.random()
    return [
        level * (1 + 0.3 * sin(2 * pi * (minute / MINUTES + phase))) * random.lognormvariate(0, 0.2)
        for minute in range(MINUTES)
    ]


def run(guests: Sequence[Guest], *, usage: bool) -> Outcome:
    """Let all pods come and go; returns how evenly the nodes were loaded in the end."""
    cluster = Cluster(usage=usage)
    events: list[tuple[float, int, Any]] = []
    for number, guest in enumerate(guests):
        events.append((guest.comes, number, cluster.comes))
        if guest.goes < float("inf"):
            events.append((guest.goes, number, cluster.goes))
    for number in range(NODES):
        offset = number * MINUTE / NODES
        events += [(minute * MINUTE + offset, number, cluster.reports) for minute in range(MINUTES)]
    heapq.heapify(events)
    seen: list[list[float]] = []
    while events:
        moment, number, happens = heapq.heappop(events)
        if happens == cluster.reports:
            cluster.reports(number, moment)
            minute = int(moment // MINUTE)
            if number == NODES - 1 and minute >= MINUTES - LOOKED_AT:
                seen.append(cluster.loads(minute))
        else:
            happens(guests[number], moment)
    spreads = [max(each) - min(each) for each in seen]
    return Outcome(
        mean(spreads),
        max(spreads),
        max(map(max, seen)),
        mean(cluster.decisions),
        max(cluster.decisions),
        mean(cluster.taken or [0.0]),
    )


class Cluster:
    """Nodes, the pods on them, and the scheduler's idea of both."""

    def __init__(self, *, usage: bool) -> None:
        self.snapshot = Snapshot()
        for number in range(NODES):
            self.snapshot.put_node(a_node(number))
        self.usage = usage
        self.turn = Turn(1)
        self.nodes, self.pods = NodeReports(self.snapshot), PodReports(self.snapshot)
        self.guests: dict[str, dict[str, Guest]] = {f"node-{n}": {} for n in range(NODES)}
        self.past: dict[str, list[float]] = {}
        """What each pod has used, in rising order."""
        self.decisions: list[float] = []
        self.taken: list[float] = []

    def comes(self, guest: Guest, moment: float) -> None:
        begun = process_time()
        demand = Demand(guest.pod)
        decision = decide(demand, self.snapshot, self.turn)
        assert isinstance(decision, Placement), decision.message
        self.snapshot.place(demand, decision.node)
        self.decisions.append(process_time() - begun)
        self.guests[decision.node][demand.uid] = guest

    def goes(self, guest: Guest, moment: float) -> None:
        uid = guest.pod.metadata.uid
        del self.guests[self.snapshot.home(uid)][uid]
        self.snapshot.remove(uid)
        self.snapshot.usage.remove_pod(uid)

    def reports(self, number: int, moment: float) -> None:
        """A node tells what it and its pods used, if anybody listens."""
        if not self.usage:
            return
        name = f"node-{number}"
        here = [each for each in self.guests[name].values() if moment - each.comes >= 10]
        pods = [self.pod_report(each, moment) for each in here]
        machine = node_report(name, here, int(moment // MINUTE))
        begun = process_time()
        for each in pods:
            self.pods.put(each)
        self.nodes.put(machine)
        self.taken.append(process_time() - begun)

    def pod_report(self, guest: Guest, moment: float) -> PodReport:
        """What a pod has used by then; a window that it has not filled says so."""
        meta, cores = guest.pod.metadata, guest.cores[int(moment // MINUTE)]
        past = self.past.setdefault(meta.uid, [])
        insort(past, cores)
        usual = past[-(-95 * len(past) // 100) - 1]
        memory = f"{round(guest.gibibytes * (1 << 20))}Ki"
        age = moment - guest.comes
        windows = Windows(
            minute=_window(cores, memory, age < 60),
            hour=_window(usual, memory, age < 3600),
            day=_window(usual, memory, True),
        )
        return PodReport(Meta(meta.name, meta.namespace, meta.uid), (Container(windows),))

    def loads(self, minute: int) -> list[float]:
        """What each node's pods use, in percent of the node."""
        return [
            100 * sum(each.cores[minute] for each in here.values()) / CORES
            for here in self.guests.values()
        ]


def node_report(name: str, guests: Sequence[Guest], minute: int) -> NodeReport:
    cores = sum(each.cores[minute] for each in guests)
    memory = f"{round(sum(each.gibibytes for each in guests) * (1 << 20))}Ki"
    window = _window(cores, memory, False)
    return NodeReport(Meta(name), Windows(seconds=window, minute=window))


def _window(cores: float, memory: str, partial: bool) -> Window:
    reading = Reading(f"{round(cores * 1e9)}n", memory)
    return Window("2026-01-01T00:00:00Z" if partial else "", reading, reading)


def a_node(number: int) -> Any:
    name = f"node-{number}"
    amounts = {"cpu": str(CORES), "memory": f"{GIBIBYTES}Gi", "pods": "110"}
    return node.RESOURCE.from_document(
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
    )


def a_pod(number: int, kind: Workload) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": kind.name, "uid": kind.name}
    meta = {
        "name": f"{kind.name}-{number}",
        "namespace": "default",
        "uid": f"uid-{number}",
        "labels": {"app": kind.name},
        "ownerReferences": [owner | {"controller": True}],
    }
    container: dict[str, Any] = {"name": "c", "image": "i"}
    if kind.requests:
        container["resources"] = {"requests": kind.requests}
    return pod.RESOURCE.from_document({"metadata": meta, "spec": {"containers": [container]}})


if __name__ == "__main__":
    main()
