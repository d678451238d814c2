"""The speed of this machine at this moment, so that figures of different hours can be compared.

A fixed loop of Python is timed by its processor time, the start of kubectl by the clock, if kubectl
is installed, and a small write with fdatasync(2) by the clock.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

LOOP_TURNS = 300
LOOP_ITEMS = 60
RUNS = 5
SYNCS = 50
BLOCK = b"x" * 4096


class MachineSpeed(NamedTuple):
    """Times of the same work at every run."""

    loop_ms: float
    """Processor time of the fixed loop, the least of some runs."""
    kubectl_ms: float | None
    """Time from the call to the end of `kubectl version --client`."""
    fdatasync_ms: float
    load: float
    """Processes that run or want to, over the last minute."""

    def line(self) -> str:
        kubectl = "not installed" if self.kubectl_ms is None else f"{self.kubectl_ms:.0f} ms"
        return (
            f"machine: {os.cpu_count()} cores, load {self.load:.1f}; fixed Python loop "
            f"{self.loop_ms:.1f} ms of processor time, kubectl's start {kubectl}, "
            f"fdatasync {self.fdatasync_ms:.2f} ms"
        )


def machine_speed() -> MachineSpeed:
    return MachineSpeed(
        loop_ms=min(loop_ms() for _ in range(RUNS)),
        kubectl_ms=kubectl_ms(),
        fdatasync_ms=fdatasync_ms(),
        load=os.getloadavg()[0],
    )


def loop_ms() -> float:
    """Return the processor time of the fixed loop: calls, dictionaries, lists and JSON, the work
    of a server, so that a busy neighbour in the caches slows both by as much."""
    began = process_time()
    kept = {}
    for turn in range(LOOP_TURNS):
        items = [
            {"name": f"item-{n}", "at": [turn, n], "text": "x" * 40} for n in range(LOOP_ITEMS)
        ]
        kept[turn % 50] = json.loads(json.dumps(items))
    return (process_time() - began) * 1e3


def kubectl_ms() -> float | None:
    if shutil.which("kubectl") is None:
        return None
    taken = []
    for _ in range(RUNS):
        began = perf_counter()
        subprocess.run(["kubectl", "version", "--client"], capture_output=True, check=False)
        taken.append(perf_counter() - began)
    return min(taken) * 1e3


def fdatasync_ms() -> float:
    """Return the median time of a synced append of 4 KiB."""
    taken = []
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        for _ in range(SYNCS):
            began = perf_counter()
            file.write(BLOCK)
            file.flush()
            os.fdatasync(file.fileno())
            taken.append(perf_counter() - began)
    return statistics.median(taken) * 1e3


if __name__ == "__main__":
    print(machine_speed().line())
