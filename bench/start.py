"""How soon a cluster is ready after `kedge up`, and how much memory its server holds.

Cold is a start in an empty directory: keys, certificates and the database are made. Warm is another
start of the same cluster. The times are those of the command, from its call to its return.
"""

import argparse
import statistics
from time import perf_counter, sleep

from apibench import Api, Bench, Load
from cluster import Cluster, Home, home

SETTLING = 2.0
"""Seconds after which a server that has nothing to do is idle."""


def main() -> None:
    flags = parser().parse_args()
    colds, warms = [], []
    for _ in range(flags.runs):
        with home() as place:
            colds.append(timed(place, flags.store))
            place.down()
            warms.append(timed(place, flags.store))
    print(f"{'ready after':14}{'median s':>10}{'best s':>10}{'worst s':>10}  ({flags.runs} runs)")
    for name, taken in (("cold start", colds), ("warm start", warms)):
        print(f"{name:14}{statistics.median(taken):10.2f}{min(taken):10.2f}{max(taken):10.2f}")
    with home() as place:
        place.up(flags.store)
        weigh(place.running(), flags.pods)


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    flags.add_argument("--runs", type=int, default=5)
    flags.add_argument("--pods", type=int, default=1000, help="pods to weigh the server with")
    return flags


def timed(place: Home, store: str) -> float:
    began = perf_counter()
    place.up(store)
    return perf_counter() - began


def weigh(cluster: Cluster, pods: int) -> None:
    sleep(SETTLING)
    print(f"resident, idle: {cluster.resident_mb():.0f} MB")
    bench = Bench(Api(cluster.url, cluster.token), Load(pods=pods))
    bench.prepare()
    bench.fill()
    sleep(SETTLING)
    print(f"resident, with {pods:,} pods: {cluster.resident_mb():.0f} MB")


if __name__ == "__main__":
    main()
