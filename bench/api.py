"""Measure the API server of a temporary cluster under load, everything on; print one page.

TLS and tokens, controllers, scheduler and a LimitRange are on. With --peer, another API server gets
the same work in the same run, operation by operation, and the page shows the ratios. On a machine
that runs other programs too, compare only ratios, and those of processor time first:
--peer-processes names the processes of the peer on this machine, for instance those of
kube-apiserver and etcd.

    api.py --pods 5000 --rounds 3 --peer https://127.0.0.1:6443 --peer-token TOKEN \\
        --peer-processes 4711,4712
"""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from apibench import Api, Bench, Figures, add_load, load_of, need_wrk
from cluster import home, processor_seconds, resident_mb
from machine import machine_speed

FIGURE = {"watch": "p50_ms"}
"""The figure that an operation is judged by, if not its requests per second."""

RESIDENT_SHARE = 0.25
CREATES = ("create", "distinct")


class Goal(NamedTuple):
    """The promise of the design for an operation; None where it promises nothing."""

    times: float
    """Requests per second, as a multiple of the peer's."""
    p99_share: float | None = None
    """The 99th percentile, as a share of the peer's."""
    p99_ms: float | None = None


GOALS = {
    "create": Goal(3, p99_share=0.5),
    "get": Goal(10),
    "list": Goal(15),
    "table": Goal(10, p99_ms=200),
    "patch": Goal(6),
}


class Contender:
    """One of the servers that are measured."""

    def __init__(
        self, name: str, api: Api, flags: argparse.Namespace, processes: Sequence[int]
    ) -> None:
        self.name = name
        self.rounds: dict[str, list[Figures]] = {}
        self._processes = processes
        load = load_of(flags)
        # Creating is measured by itself, so that everybody's lists are equally long.
        self._creating = Bench(api, load, "bench-create")
        self._reading = Bench(api, load, "bench")
        self._creating.prepare()
        self._reading.prepare()

    def fill(self) -> None:
        self._reading.fill()

    def run(self, operation: str) -> Figures:
        """Do an operation for some seconds. Its processor time is that of all processes of the
        server, background work included, for each request, or for each event of a watcher."""
        bench = self._creating if operation in CREATES else self._reading
        before = self._processor_seconds()
        figures = bench.run(operation)
        taken = self._processor_seconds() - before
        times = figures.get("requests", figures.get("events", 0))
        if self._processes and times:
            figures["cpu_us"] = taken / times * 1e6
        self.rounds.setdefault(operation, []).append(figures)
        return figures

    def results(self) -> dict[str, Figures]:
        """The median of the rounds, figure by figure."""
        return {
            operation: {name: statistics.median(each[name] for each in all_) for name in all_[0]}
            for operation, all_ in self.rounds.items()
        }

    def resident_mb(self) -> float:
        total: float = sum(resident_mb(pid) for pid in self._processes)
        return total

    def _processor_seconds(self) -> float:
        total: float = sum(processor_seconds(pid) for pid in self._processes)
        return total


def main() -> None:
    flags = parser().parse_args()
    need_wrk()
    print(machine_speed().line())
    with home() as place:
        place.up(flags.store)
        cluster = place.running()
        kedge = Contender("kedge", Api(cluster.url, cluster.token), flags, [cluster.pid])
        contenders = [kedge]
        if flags.peer:
            api = Api(flags.peer, flags.peer_token)
            contenders.append(Contender("peer", api, flags, flags.peer_processes))
        measure(contenders, flags)
        memory = {one.name: one.resident_mb() for one in contenders}
    results = {one.name: one.results() for one in contenders}
    print("\n".join(table(results)))
    print("\n".join(memory_lines(memory)))
    print(machine_speed().line())
    if flags.json:
        flags.json.write_text(json.dumps(results | {"resident_mb": memory}))


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    flags.add_argument("--rounds", type=int, default=1, help="turns; the median counts")
    flags.add_argument("--peer", metavar="URL", help="another API server to compare with")
    flags.add_argument("--peer-token", default="", metavar="TOKEN")
    flags.add_argument(
        "--peer-processes",
        default=(),
        type=pids,
        metavar="PID,PID",
        help="its processes on this machine, for its processor time and memory",
    )
    add_load(flags)
    return flags


def pids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def measure(contenders: list[Contender], flags: argparse.Namespace) -> None:
    for one in contenders:
        one.fill()
    for _ in range(flags.rounds):
        for operation in flags.only:
            for one in contenders:
                one.run(operation)


def table(results: Mapping[str, Mapping[str, Figures]]) -> list[str]:
    lines = [
        f"{'':9}{'server':8}{'ops/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'CPU µs':>11}{'errors':>8}"
        f"{'times':>8}{'CPU':>8}  goal"
    ]
    for operation, ours in results["kedge"].items():
        lines.append(f"{operation:9}{'kedge':8}{row(ours)}{own_verdict(operation, ours)}")
        if "peer" in results:
            theirs = results["peer"][operation]
            ratios = f"{advantage(operation, ours, theirs):8.1f}{processor_ratio(ours, theirs):>8}"
            verdict = peer_verdict(operation, ours, theirs)
            lines.append(f"{'':9}{'peer':8}{row(theirs)}{ratios}  {verdict}")
    return lines


def row(figures: Figures) -> str:
    rate = f"{figures['rps']:,.1f}" if "rps" in figures else "-"
    cpu = f"{figures['cpu_us']:,.0f}" if "cpu_us" in figures else "-"
    bad = figures.get("errors", figures.get("missed", 0))
    return f"{rate:>10}{figures['p50_ms']:>10.2f}{figures['p99_ms']:>10.2f}{cpu:>11}{bad:>8.0f}"


def advantage(operation: str, ours: Figures, theirs: Figures) -> float:
    """How many times better kedge is; below 1 it is worse."""
    name = FIGURE.get(operation, "rps")
    better, worse = (theirs, ours) if name in FIGURE.values() else (ours, theirs)
    return better[name] / worse[name] if worse[name] else float("inf")


def processor_ratio(ours: Figures, theirs: Figures) -> str:
    """The processor time of the peer as a multiple of ours."""
    if "cpu_us" not in theirs or not ours.get("cpu_us"):
        return "-"
    return f"{theirs['cpu_us'] / ours['cpu_us']:.1f}"


def own_verdict(operation: str, ours: Figures) -> str:
    goal = GOALS.get(operation)
    if goal is None or goal.p99_ms is None:
        return ""
    return f"{'':16}  {verdict(ours['p99_ms'] <= goal.p99_ms)} p99 {goal.p99_ms:g} ms"


def peer_verdict(operation: str, ours: Figures, theirs: Figures) -> str:
    goal = GOALS.get(operation)
    if goal is None:
        return ""
    found = f"{verdict(advantage(operation, ours, theirs) >= goal.times)} {goal.times:g} times"
    if goal.p99_share is not None:
        share = ours["p99_ms"] / theirs["p99_ms"]
        found += f", {verdict(share <= goal.p99_share)} p99 {share:.2f} of {goal.p99_share:g}"
    return found


def verdict(is_reached: bool) -> str:
    return "reached" if is_reached else "MISSED"


def memory_lines(memory: Mapping[str, float]) -> list[str]:
    lines = [f"resident afterwards: kedge {memory['kedge']:.0f} MB"]
    if theirs := memory.get("peer"):
        share = memory["kedge"] / theirs
        lines.append(
            f"  peer {theirs:.0f} MB; share {share:.2f}, "
            f"{verdict(share <= RESIDENT_SHARE)} {RESIDENT_SHARE}"
        )
    return lines


if __name__ == "__main__":
    main()
