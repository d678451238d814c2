"""Measure the API server of a temporary cluster under load, with TLS and tokens; print a table.

With --peer, another API server gets the same work in the same run, operation by operation, and the
table shows the ratios. On a machine that runs other programs too, compare only the ratios.
"""

import argparse
import json
import statistics
from collections.abc import Mapping

from apibench import Api, Bench, Figures, add_load, load_of, need_wrk
from cluster import home

FIGURE = {"watch": "p50_ms"}
"""The figure that an operation is judged by, if not its requests per second."""


class Contender:
    """One of the servers that are measured."""

    def __init__(self, name: str, api: Api, flags: argparse.Namespace) -> None:
        self.name = name
        self.rounds: dict[str, list[Figures]] = {}
        load = load_of(flags)
        # Creating is measured by itself, so that everybody's lists are equally long.
        self._creating = Bench(api, load, "bench-create")
        self._reading = Bench(api, load, "bench")
        self._creating.prepare()
        self._reading.prepare()

    def fill(self) -> None:
        self._reading.fill()

    def run(self, operation: str) -> None:
        bench = self._creating if operation == "create" else self._reading
        self.rounds.setdefault(operation, []).append(bench.run(operation))

    def results(self) -> dict[str, Figures]:
        """The median of the rounds, figure by figure."""
        return {
            operation: {name: statistics.median(each[name] for each in all_) for name in all_[0]}
            for operation, all_ in self.rounds.items()
        }


def main() -> None:
    flags = parser().parse_args()
    need_wrk()
    with home() as place:
        place.up(flags.store)
        cluster = place.running()
        kedge = Contender("kedge", Api(cluster.url, cluster.token), flags)
        contenders = [kedge]
        if flags.peer:
            contenders.append(Contender("peer", Api(flags.peer, flags.peer_token), flags))
        measure(contenders, flags)
        memory = cluster.resident_mb()
    results = {one.name: one.results() for one in contenders}
    print("\n".join(table(results)))
    print(f"kedge ({flags.store}) holds {memory:.0f} MB afterwards.")
    if flags.json:
        flags.json.write_text(json.dumps(results | {"kedge_resident_mb": memory}))


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    flags.add_argument("--rounds", type=int, default=1, help="turns; the median counts")
    flags.add_argument("--peer", metavar="URL", help="another API server to compare with")
    flags.add_argument("--peer-token", default="", metavar="TOKEN")
    add_load(flags)
    return flags


def measure(contenders: list[Contender], flags: argparse.Namespace) -> None:
    for one in contenders:
        one.fill()
    for _ in range(flags.rounds):
        for operation in flags.only:
            for one in contenders:
                one.run(operation)


def table(results: Mapping[str, Mapping[str, Figures]]) -> list[str]:
    lines = [
        f"{'':8}{'server':8}{'ops/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'errors':>8}{'ratio':>8}"
    ]
    for operation in results["kedge"]:
        for server, figures in results.items():
            ratio = ""
            if server == "peer":
                ratio = (
                    f"{advantage(operation, results['kedge'][operation], figures[operation]):.1f}"
                )
            lines.append(f"{operation:8}{server:8}{row(figures[operation])}{ratio:>8}")
    return lines


def row(figures: Figures) -> str:
    rate = f"{figures['rps']:,.1f}" if "rps" in figures else "-"
    bad = figures.get("errors", figures.get("missed", 0))
    return f"{rate:>10}{figures['p50_ms']:>10.2f}{figures['p99_ms']:>10.2f}{bad:>8.0f}"


def advantage(operation: str, ours: Figures, theirs: Figures) -> float:
    """How many times better kedge is; below 1 it is worse."""
    name = FIGURE.get(operation, "rps")
    better, worse = (theirs, ours) if name in FIGURE.values() else (ours, theirs)
    return better[name] / worse[name] if worse[name] else float("inf")


if __name__ == "__main__":
    main()
