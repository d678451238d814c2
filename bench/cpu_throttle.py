"""Processor time of containers whose cpu limit is enforced without control groups.

Each row is a busy program under the throttle of the supervisor, beside a number of busy loops, in
percent of its limit. A limit promises no more than a busy machine has: the column `free` is the
same program without a limit, right before, if it got less than the limit. Each program and each
loop has a session of its own, so that schedulers which share by session treat them alike.

    bench/cpu_throttle.py [--seconds N] [--loops N ...] [--limits N ...]
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, NamedTuple

from kedge.supervisor.container import cpu_throttle
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.machine_capabilities import USERNS, of_level

LOOP = "while :; do :; done"
THREADS = """
def work():
    while True:
        hashlib.sha256(bytes(1 << 20))
for _ in range(2):
    threading.Thread(target=work).start()
work()
"""
PROGRAMS = {
    "one thread": [sys.executable, "-c", "while True: pass"],
    "four processes": ["sh", "-c", f"for i in 1 2 3; do {LOOP} & done; {LOOP}"],
    "a shell that forks": ["sh", "-c", "while :; do /bin/true; done"],
    "three threads": [sys.executable, "-c", "import hashlib, threading\n" + THREADS],
}
WARM_UP_SECONDS = 2.0


class BusyContainer(NamedTuple):
    """A container around a process of the bench."""

    pid: int
    resources: dict[str, Any]
    alive: bool = True
    command_pids: tuple[int, ...] = ()
    written_places: tuple[str, ...] = ()

    def exceed(self, reason: str, message: str) -> None:
        raise AssertionError("cpu limits kill nothing")


def main() -> None:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--seconds", type=float, default=10.0)
    flags.add_argument("--loops", type=int, nargs="+", default=[0, 2])
    flags.add_argument("--limits", type=float, nargs="+", default=[0.25, 0.5])
    given = flags.parse_args()
    loop = EventLoop()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors")
    print(f"{'program':20}{'loops':>8}{'limit':>8}{'got, %':>10}{'free, %':>10}{'cost, %':>10}")
    for count in given.loops:
        with loops(count):
            for name, command in PROGRAMS.items():
                for limit in given.limits:
                    free, _ = measured(loop, command, None, min(given.seconds, 3.0))
                    got, cost = measured(loop, command, limit, given.seconds)
                    row = f"{name:20}{count:8}{limit:8g}{100 * got / limit:10.1f}"
                    row += f"{100 * min(free / limit, 1):10.1f}{100 * cost:10.2f}"
                    print(row, flush=True)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors")


def measured(
    loop: EventLoop, command: list[str], limit: float | None, seconds: float
) -> tuple[float, float]:
    """Return the cores that a program got, and those that the throttle took."""
    with program(command) as pid:
        resources = {} if limit is None else {"cpu_quota": int(limit * 100_000)}
        container = BusyContainer(pid, resources)
        throttle = cpu_throttle.CpuThrottle(loop, of_level(USERNS)) if limit else None
        return rates(loop, container, throttle, seconds)


def rates(
    loop: EventLoop, container: BusyContainer, throttle: Any, seconds: float
) -> tuple[float, float]:
    marks: list[tuple[float, float, float]] = []

    def mark(then: Callable[[], object]) -> None:
        total = sum(map(cpu_throttle.processor_time, cpu_throttle.everyone(container)))
        marks.append((loop.now(), total / 1e9, process_time()))
        then()

    if throttle is not None:
        throttle.follow(container)
    loop.after(WARM_UP_SECONDS, lambda: mark(lambda: loop.after(seconds, lambda: mark(loop.stop))))
    loop.run()
    (began, used, spent), (ended, used_then, spent_then) = marks
    return (used_then - used) / (ended - began), (spent_then - spent) / (ended - began)


@contextlib.contextmanager
def program(command: list[str]) -> Iterator[int]:
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def loops(count: int) -> Iterator[None]:
    """Keep processors busy with so many loops."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(program(["sh", "-c", LOOP]))
        yield


if __name__ == "__main__":
    main()
