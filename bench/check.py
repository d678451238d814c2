"""Compare the processor time of each API operation with the last accepted figures.

Figures are processor time of the server for one request, in units of a fixed Python loop timed
beside each round (`bench/machine.py`), so that a slower or busier machine counts as such. The best
of some rounds counts. Exits with 1 if an operation takes over 15 % more than accepted;
--accept writes the figures of this run to `bench/accepted.json` instead.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from api import Contender
from apibench import Api, Load, need_wrk
from cluster import home
from machine import RUNS, loop_ms, machine_speed
from regressions import ALLOWED_GROWTH, regressions, report

ACCEPTED = Path(__file__).parent / "accepted.json"
OPERATIONS = ("create", "get", "list", "table", "patch")
PODS = 1000


def main() -> None:
    flags = parser().parse_args()
    need_wrk()
    print(machine_speed().line())
    now = measured(flags.rounds, flags.seconds)
    if flags.accept:
        ACCEPTED.write_text(json.dumps(now, indent=2) + "\n")
        print(f"wrote {ACCEPTED}: {now}")
        return
    accepted: dict[str, float] = json.loads(ACCEPTED.read_text())
    print("\n".join(report(now, accepted)))
    if grown := regressions(now, accepted):
        sys.exit(
            f"{', '.join(grown)}: over {ALLOWED_GROWTH:.0%} more processor time than accepted. "
            "Find the cause, or accept the figures: bench/check.py --accept"
        )


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--seconds", type=int, default=2, help="time of an operation in a round")
    flags.add_argument("--accept", action="store_true", help="write the figures of this run")
    return flags


def measured(rounds: int, seconds: int) -> dict[str, float]:
    """Return, by operation, the processor time of a request as a multiple of the fixed loop."""
    load = argparse.Namespace(**asdict(Load(pods=PODS, seconds=seconds)))
    found: dict[str, list[float]] = {}
    with home() as place:
        place.up("sqlite")
        cluster = place.running()
        server = Contender("kedge", Api(cluster.url, cluster.token), load, [cluster.pid])
        server.fill()
        for _ in range(rounds):
            for operation in OPERATIONS:
                before = quick_loop_ms()
                figures = server.run(operation)
                loop = (before + quick_loop_ms()) / 2
                found.setdefault(operation, []).append(figures["cpu_us"] / 1e3 / loop)
    return {operation: round(min(all_), 6) for operation, all_ in found.items()}


def quick_loop_ms() -> float:
    least: float = min(loop_ms() for _ in range(RUNS))
    return least


if __name__ == "__main__":
    main()
