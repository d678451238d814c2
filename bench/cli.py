"""How soon short commands answer: wall and processor time of `kedge get pods`.

The bar: 150 ms from the start of the process to its end, the shortest of the runs, since other
programs of the machine can only make a run longer. Processor time tells what a busy machine hides.

    bench/cli.py --runs 20
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from time import perf_counter
from typing import Final

BAR_MILLISECONDS: Final = 150.0
COMMANDS: Final = (("get", "pods"), ("get", "pods", "-o", "json"), ("version",), ("get", "--help"))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="kedge-bench-") as home:
        os.environ |= {"HOME": home, "KUBECONFIG": f"{home}/config"}
        for name in ("STATE", "CACHE"):
            os.environ[f"XDG_{name}_HOME"] = f"{home}/{name.lower()}"
        kedge("up", "--name=bench", "--nodes=0")
        try:
            found = [measure(command, runs) for command in COMMANDS]
        finally:
            kedge("down", "--name=bench", "--purge")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    return 1 if found[0] > BAR_MILLISECONDS else 0


def measure(command: tuple[str, ...], runs: int) -> float:
    """Print the times of a command; returns the shortest in milliseconds."""
    wall, cpu = [], []
    for _ in range(runs):
        before, begun = spent(), perf_counter()
        kedge(*command)
        wall.append((perf_counter() - begun) * 1000)
        cpu.append((spent() - before) * 1000)
    bar = f" (bar {BAR_MILLISECONDS:.0f})" if command == COMMANDS[0] else ""
    print(
        f"kedge {' '.join(command):20} shortest {min(wall):.0f} ms{bar}, median"
        f" {sorted(wall)[runs // 2]:.0f} ms; processor time {min(cpu):.0f} ms"
    )
    return min(wall)


def spent() -> float:
    """Return the processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def kedge(*arguments: str) -> None:
    command = [sys.executable, "-m", "kedge", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
