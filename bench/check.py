"""Compare the processor time of each API operation with that of the last accepted commit.

Both versions run at the same time and get the same load in turns, so that the machine, its other
work and its speed at this hour are the same for both. A figure is the processor time of the server
for one request, the least of some rounds. Exits with 1 if an operation takes over 15 % more than
accepted; --accept makes the present commit the accepted one instead.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from api import Contender
from apibench import Api, Load, need_wrk
from cluster import Cluster, home
from machine import machine_speed
from regressions import ALLOWED_GROWTH, regressions, report

CHECKOUT = Path(__file__).parent.parent
ACCEPTED = Path(__file__).parent / "accepted.json"
OPERATIONS = ("get", "list", "table", "patch", "create", "distinct")
"""Creates are last: a version that creates more pods has more work behind it, such as events."""
PODS = 1000

Figures = Mapping[str, float]
"""Microseconds of processor time by operation."""


def main() -> None:
    flags = parser().parse_args()
    need_wrk()
    print(machine_speed().line())
    if flags.accept:
        accept(flags)
        return
    commit = json.loads(ACCEPTED.read_text())["commit"]
    with sources_of(commit) as accepted, home(accepted) as before, home() as after:
        before.up("sqlite")
        after.up("sqlite")
        was, now = in_turns([before.running(), after.running()], flags)
    print(f"processor time of a request, least of {flags.rounds} rounds; accepted: {commit[:8]}")
    print("\n".join(report(now, was)))
    if grown := regressions(now, was):
        sys.exit(
            f"{', '.join(grown)}: over {ALLOWED_GROWTH:.0%} more processor time than accepted. "
            "Find the cause, or accept it: commit, then bench/check.py --accept"
        )


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--seconds", type=int, default=2, help="time of an operation in a round")
    flags.add_argument("--accept", action="store_true", help="accept the present commit")
    return flags


def accept(flags: argparse.Namespace) -> None:
    """Write the present commit and its figures to `accepted.json`."""
    if git("status", "--porcelain", "--", "src"):
        sys.exit("src has changes that are not committed: commit them, then accept the commit")
    with home() as place:
        place.up("sqlite")
        [figures] = in_turns([place.running()], flags)
    rounded = {operation: round(figure, 1) for operation, figure in figures.items()}
    accepted = {"commit": git("rev-parse", "HEAD"), "cpu_us": rounded}
    ACCEPTED.write_text(json.dumps(accepted, indent=2) + "\n")
    print(f"wrote {ACCEPTED}: {accepted}")


def git(*arguments: str) -> str:
    run = ["git", *arguments]
    done = subprocess.run(run, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(run)}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextmanager
def sources_of(commit: str) -> Iterator[Path]:
    """Yield a directory with the sources of a commit of this checkout."""
    if subprocess.run(["git", "cat-file", "-e", commit], cwd=CHECKOUT, check=False).returncode:
        sys.exit(f"the accepted commit {commit} is not in this checkout: git fetch --unshallow")
    with tempfile.TemporaryDirectory(prefix="kedge-accepted-") as directory:
        archive = Path(directory) / "src.tar"
        git("archive", f"--output={archive}", commit, "src")
        subprocess.run(["tar", "-xf", archive, "-C", directory], check=True)
        # Compiled once, as those of an installation are.
        compile_all = [sys.executable, "-m", "compileall", "-qq", "-j", "0", directory]
        subprocess.run(compile_all, check=False)
        yield Path(directory) / "src"


def in_turns(clusters: list[Cluster], flags: argparse.Namespace) -> list[Figures]:
    """Return the figures of each cluster."""
    load = argparse.Namespace(**asdict(Load(pods=PODS, seconds=flags.seconds)))
    servers = [
        Contender(str(number), Api(each.url, each.token), load, [each.pid])
        for number, each in enumerate(clusters)
    ]
    for server in servers:
        server.fill()
    for operation in OPERATIONS:
        for _ in range(flags.rounds):
            for server in servers:
                server.run(operation)
    return [
        {name: min(each["cpu_us"] for each in rounds) for name, rounds in server.rounds.items()}
        for server in servers
    ]


if __name__ == "__main__":
    main()
