"""Measure how evenly the scheduler spreads the usage of pods, with and without measured usage.

A cluster of 50 nodes fills up with 2,000 pods during twelve simulated hours; 500 more come and
leave again. The same pods come at the same moments three times. They are placed by requests only;
by usage, which every node reports once a minute, as `kedge node` does by default; and by an oracle
that knows the usage of every pod in the last hour in advance. The oracle does not know which pods
will leave or come, and it cannot move pods: it shows about how much the knowledge of usage can
gain.
"""

import argparse
import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, pi, sin
from random import Random
from statistics import fmean, mean
from time import process_time
from typing import Any, Final, NamedTuple, Protocol

from kedge.api.core_v1 import node
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.scheduler.cycle import CycleState, Placement, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.load import CpuAndMemory
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.usage import PodUsage

NODES: Final = 50
PODS: Final = 2_000
LEAVING: Final = 500
"""Pods that come besides, and go again."""
MINUTES: Final = 12 * 60
DAY: Final = 24 * 60
MINUTE: Final = 60.0
LOOKED_AT: Final = 60
"""The spread is looked at in each of the last so many minutes."""
FIRST_SAMPLE: Final = 10
"""Seconds after which something is known of a pod."""
GIBIBYTE: Final = 1 << 30
BAR: Final = 0.5
"""The spread by usage is to be at most this share of that by requests only."""
SLOWEST: Final = 0.005
"""Seconds of processor time that a decision may take."""


@dataclass(frozen=True)
class Scenario:
    """The size of a cluster and the shape of its workloads."""

    cores: int
    workloads: int
    quiet: int = 0
    """For so many hours before the end no pod comes; pods still go."""
    best_effort: float = 0.5
    """The share of workloads that ask for nothing."""
    gibibytes: int = 4
    """Memory for each core."""
    unrest: float = 0.2
    """How much the usage of a pod changes from one minute to the next."""

    def __str__(self) -> str:
        return (
            f"{self.cores:5}{self.gibibytes:6}{self.workloads:7}{self.best_effort:6.0%}"
            f"{self.unrest:8}{f'-{self.quiet} h' if self.quiet else 'end':>7}"
        )


HEADER: Final = (
    "cores GiB/c  loads  b.e.  unrest  until seed  cpu |"
    " requests  usage oracle | usage oracle | usage oracle"
)
SCENARIOS: Final = (
    *(Scenario(*each) for each in product((16, 32), (100, 200), (0, 2))),
    Scenario(16, 100, quiet=2, best_effort=0.2),
    Scenario(32, 100, quiet=2, gibibytes=2),
    Scenario(16, 100, unrest=0.4),
)


@dataclass(frozen=True)
class Workload:
    """Pods of one controller: they ask for the same, use about the same, and share a rhythm."""

    name: str
    cores: float
    gibibytes: float
    requests: dict[str, str]
    rhythm: list[float]
    unrest: list[float]


@dataclass(frozen=True)
class Guest:
    """A pod, when it comes and goes, and what it wants to use in each minute."""

    pod: Pod
    uid: str
    comes: float
    goes: float
    cores: list[float]
    memory: int


class Outcome(NamedTuple):
    spread: float
    """Most loaded node minus least loaded, in percent of a node: the mean over the last hour's
    minutes."""
    hourly: float
    """The same of what each node used in that hour on average."""
    load: float
    """Of the whole cluster then, in percent."""
    decisions: list[float]
    """Seconds of processor time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[8])
    seeds = parser.parse_args().seeds
    # As the server does: what is there already is not looked through for garbage.
    gc.set_threshold(20_000, 20, 50)
    print(
        "Most loaded node minus least loaded, cpu, in points of a node; then shares of 'requests'"
    )
    print(f"{'':49} |{'each minute':>23} |{'each minute':>13} |{'hour on mean':>13}\n{HEADER}")
    rows = [compared(scenario, seed) for scenario in SCENARIOS for seed in seeds]
    shares = [each for each in rows if each is not None]
    for what, part in (("each minute", 0), ("the hour's mean", 2)):
        usage, oracle = ([each[part + who] for each in shares] for who in (0, 1))
        print(
            f"{what}: at most {BAR} of requests only in {sum(each <= BAR for each in usage)} of "
            f"{len(usage)}, mean {mean(usage):.2f}, worst {max(usage):.2f}; "
            f"the oracle in {sum(each <= BAR for each in oracle)}, mean {mean(oracle):.2f}"
        )
    times(SCENARIOS[0])


def compared(scenario: Scenario, seed: int) -> tuple[float, float, float, float] | None:
    """The spread by usage and by the oracle as shares of that by requests, of minutes, then of the
    hour; None if the pods ask for more than there is."""
    guests = list(arrivals(scenario, Random(seed)))
    gc.freeze()
    kinds = (Requests, Usage, Oracle)
    try:
        blind, seeing, best = (run(scenario, guests, kind(scenario)) for kind in kinds)
    except Full:
        print(f"{scenario}{seed:5}  not compared: some pod's requests fit on no node")
        return None
    shares = (
        seeing.spread / blind.spread,
        best.spread / blind.spread,
        seeing.hourly / blind.hourly,
        best.hourly / blind.hourly,
    )
    print(
        f"{scenario}{seed:5}{blind.load:4.0f}% |{blind.spread:9.1f}{seeing.spread:7.1f}"
        f"{best.spread:7.1f} |{shares[0]:6.2f}{shares[1]:7.2f} |{shares[2]:6.2f}{shares[3]:7.2f}"
        f"{'' if shares[0] <= BAR else '  missed'}",
        flush=True,
    )
    return shares


def times(scenario: Scenario) -> None:
    """Processor time of decisions: of five times the same, the quickest."""
    guests = list(arrivals(scenario, Random(1)))
    gc.freeze()
    for name, kind in (("requests only", Requests), ("by usage", Usage)):
        rounds = [run(scenario, guests, kind(scenario)).decisions for _ in range(5)]
        taken = [min(each) for each in zip(*rounds, strict=True)]
        print(
            f"CPU ms a decision, {name}: {mean(taken) * 1e3:.2f}, longest {max(taken) * 1e3:.2f} "
            f"({max(map(max, rounds)) * 1e3:.2f} with garbage collection and the machine's noise)"
        )
        assert mean(taken) < max(taken) < SLOWEST


def workloads(scenario: Scenario, random: Random) -> Iterator[Workload]:
    """As in real clusters: a few use most of the processor time, many ask for nothing, others
    mostly for too much, and most have their busy hours at the same time of the day."""
    moods = [random.lognormvariate(0, scenario.unrest) for _ in range(20_000)]
    for number in range(scenario.workloads):
        cores = min(random.lognormvariate(-2.4, 1.1), 3.0)
        gibibytes = min(random.lognormvariate(-0.5, 0.8), 6.0)
        cpu, memory = (random.lognormvariate(0.1, 0.7) for _ in range(2))
        requests = {
            "cpu": f"{max(round(cores * cpu * 1000), 10)}m",
            "memory": f"{max(round(gibibytes * memory * 1024), 16)}Mi",
        }
        swing, noon = random.uniform(0, 0.6), random.gauss(0, 0.15)
        rhythm = [1 + swing * sin(2 * pi * (minute / DAY + noon)) for minute in range(MINUTES)]
        asks = random.random() >= scenario.best_effort
        yield Workload(f"w{number}", cores, gibibytes, requests if asks else {}, rhythm, moods)


def arrivals(scenario: Scenario, random: Random) -> Iterator[Guest]:
    """Replicas of a workload come several at once; some pods do not stay."""
    kinds = list(workloads(scenario, random))
    left, number = PODS + LEAVING, 0
    leaving = set(random.sample(range(left), LEAVING))
    last = (MINUTES - max(scenario.quiet * 60, 5)) * MINUTE
    while left:
        kind = random.choice(kinds)
        replicas = min(random.choice((1, 1, 2, 3, 5, 8, 20)), left)
        moment = random.uniform(0, last)
        for _ in range(replicas):
            yield Guest(
                a_pod(number, kind),
                f"uid-{number}",
                moment + random.uniform(0, 2.0),
                random.uniform(moment + MINUTE, MINUTES * MINUTE) if number in leaving else inf,
                course(random, kind),
                round(kind.gibibytes * random.uniform(0.7, 1.3) * GIBIBYTE),
            )
            number += 1
        left -= replicas


def course(random: Random, kind: Workload) -> list[float]:
    """Minute by minute: a level of its own, the rhythm that it shares, and unrest."""
    level = kind.cores * random.lognormvariate(0, 0.4)
    begin = random.randrange(len(kind.unrest) - MINUTES)
    unrest = kind.unrest[begin : begin + MINUTES]
    return [level * now * mood for now, mood in zip(kind.rhythm, unrest, strict=True)]


class Full(Exception):
    """Some pod fits nowhere."""


class Chooser(Protocol):
    """Chooses the nodes of pods."""

    def place(self, guest: Guest) -> str: ...

    def remove(self, uid: str) -> None: ...

    def hear(self, name: str, guests: Sequence[Guest], moment: float) -> None:
        """Take the report of a node, with the pods that run there."""


def run(scenario: Scenario, guests: Sequence[Guest], chooser: Chooser) -> Outcome:
    """Let all pods come and go; returns how evenly the nodes were loaded in the end."""
    homes: dict[str, dict[str, Guest]] = {f"node-{number}": {} for number in range(NODES)}
    where: dict[str, str] = {}
    decisions: list[float] = []
    seen: list[list[float]] = []
    for moment, what, number in happenings(guests):
        if what == "report":
            name = f"node-{number}"
            chooser.hear(name, [*homes[name].values()], moment)
        elif what == "look":
            minute = int(moment // MINUTE) - 1
            seen.append([used(scenario, here.values(), minute) for here in homes.values()])
        elif what == "comes":
            guest = guests[number]
            begun = process_time()
            name = chooser.place(guest)
            decisions.append(process_time() - begun)
            homes[name][guest.uid], where[guest.uid] = guest, name
        else:
            uid = guests[number].uid
            del homes[where[uid]][uid]
            chooser.remove(uid)
    hourly = [mean(each) for each in zip(*seen, strict=True)]
    point = scenario.cores / 100
    return Outcome(
        mean(max(each) - min(each) for each in seen) / point,
        (max(hourly) - min(hourly)) / point,
        mean(hourly) / point,
        decisions,
    )


def happenings(guests: Sequence[Guest]) -> list[tuple[float, str, int]]:
    """Return the events of a run: the time, the kind, and the number of the guest or node.

    Reports that no placement reads before the next report are left out.
    """
    found: list[tuple[float, str, int]] = []
    for number, guest in enumerate(guests):
        found.append((guest.comes, "comes", number))
        if guest.goes < inf:
            found.append((guest.goes, "goes", number))
    busy = {int(guest.comes // MINUTE) for guest in guests}
    for minute in sorted(busy | {each - 1 for each in busy}):
        found += [(minute * MINUTE + n * MINUTE / NODES, "report", n) for n in range(NODES)]
    looks = range(MINUTES - LOOKED_AT + 1, MINUTES + 1)
    found += [(minute * MINUTE, "look", 0) for minute in looks]
    return sorted(found)


def used(scenario: Scenario, guests: Iterable[Guest], minute: int) -> float:
    """The cores that pods use together: no more than there are."""
    return min(sum(each.cores[minute] for each in guests), scenario.cores)


class Requests:
    """The scheduler without measured usage."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.snapshot, self.turn = Snapshot(), CycleState(1)
        for number in range(NODES):
            self.snapshot.put_node(a_node(number, scenario))

    def place(self, guest: Guest) -> str:
        demand = PodDemand(guest.pod)
        decision = decide(demand, self.snapshot, self.turn)
        if not isinstance(decision, Placement):
            raise Full
        self.snapshot.place(demand, decision.node)
        return decision.node

    def remove(self, uid: str) -> None:
        self.snapshot.remove(uid)
        self.snapshot.usage.remove_pod(uid)

    def hear(self, name: str, guests: Sequence[Guest], moment: float) -> None:
        """It does not listen."""


class Usage(Requests):
    """The scheduler, to which every node reports."""

    def hear(self, name: str, guests: Sequence[Guest], moment: float) -> None:
        minute = int(moment // MINUTE)
        here = [each for each in guests if moment - each.comes >= FIRST_SAMPLE]
        wanted = sum(each.cores[minute] for each in here)
        granted = min(1.0, self.scenario.cores / wanted) if wanted else 1.0
        for each in here:
            age, memory = moment - each.comes, each.memory
            now = CpuAndMemory(int(each.cores[minute] * granted * 1000) + 1, memory)
            usual = CpuAndMemory(int(usual_cores(each, minute) * 1000) + 1, memory)
            measured = PodUsage(now, usual, minute=age >= 60, hour=age >= 3600)
            self.snapshot.measure_pod(each.uid, measured)
        memory = sum(each.memory for each in here)
        self.snapshot.measure_node(name, CpuAndMemory(int(wanted * granted * 1000), memory))


def usual_cores(guest: Guest, minute: int) -> float:
    """The mean of the last hour's minutes, or of all so far."""
    return fmean(guest.cores[max(int(guest.comes // MINUTE), minute - 59) : minute + 1])


class Oracle:
    """Puts each pod where, of the pods that are there, least will be used in the last hour."""

    def __init__(self, scenario: Scenario) -> None:
        memory = scenario.cores * scenario.gibibytes * GIBIBYTE
        names = [f"node-{number}" for number in range(NODES)]
        self.cpu = dict.fromkeys(names, scenario.cores * 1000)
        self.memory = dict.fromkeys(names, memory)
        """Bytes that no pod has requested."""
        self.load = dict.fromkeys(names, 0.0)
        self.homes: dict[str, tuple[str, PodDemand, float]] = {}

    def place(self, guest: Guest) -> str:
        demand, load = PodDemand(guest.pod), sum(guest.cores[-LOOKED_AT:])
        fitting = (
            name
            for name, cpu in self.cpu.items()
            if cpu >= demand.cpu and self.memory[name] >= demand.memory
        )
        name = min(fitting, key=self.load.__getitem__, default=None)
        if name is None:
            raise Full
        self.homes[guest.uid] = name, demand, load
        self._count(name, demand, load, 1)
        return name

    def remove(self, uid: str) -> None:
        self._count(*self.homes.pop(uid), -1)

    def _count(self, name: str, demand: PodDemand, load: float, sign: int) -> None:
        self.cpu[name] -= sign * demand.cpu
        self.memory[name] -= sign * demand.memory
        self.load[name] += sign * load

    def hear(self, name: str, guests: Sequence[Guest], moment: float) -> None:
        """It knows."""


def a_node(number: int, scenario: Scenario) -> Any:
    name = f"node-{number}"
    memory = scenario.cores * scenario.gibibytes
    amounts = {"cpu": str(scenario.cores), "memory": f"{memory}Gi", "pods": "110"}
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
