"""Limits of processor time without control groups."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kedge.machinery.clock import SystemClock
from kedge.supervisor.container import cpu_throttle
from kedge.supervisor.container.cpu_throttle import (
    CpuThrottle,
    ThrottleState,
    continue_all,
    cores,
    everyone,
    processor_time,
    settle,
    stop_all,
)
from kedge.supervisor.loop import EventLoop, Timer
from kedge.supervisor.machine_capabilities import KERNEL, USERNS, of_level

MACHINE = of_level(USERNS)


def usage(limit: float, rate: float, seconds: float, *, late: float = 0.0) -> list[float]:
    """The processor time at the end of each cycle of a program that always runs at a rate, and the
    time of that; every timer is late."""
    state, now, total, found = ThrottleState(), 0.0, 0.0, [0.0]
    while now < seconds:
        ran = state.pause + late
        now, total = now + ran, total + rate * ran
        state, stop = settle(state, limit, total, now, ran=ran)
        now += stop + late if stop else 0.0
        found[0] = now
        found.append(total)
    return found


@pytest.mark.parametrize("late", [0.0, 0.01, 0.05])
@pytest.mark.parametrize(
    ("limit", "rate"),
    [(0.1, 1), (0.1, 2), (0.25, 1), (0.25, 2), (0.5, 1), (0.5, 2), (0.9, 1), (1.5, 2), (1, 16)],
)
def test_a_busy_container_gets_its_limit_within_a_tenth(
    limit: float, rate: float, late: float
) -> None:
    now, *totals = usage(limit, rate, 100, late=late)
    assert totals[-1] / now == pytest.approx(limit, rel=0.1)


@pytest.mark.parametrize("rate", [1.0, 2.0])
def test_a_sudden_burst_is_made_up_for_without_standing_still(rate: float) -> None:
    state = ThrottleState(pause=0.5)
    settled, stop = settle(state, 0.25, 0.5 * rate, 0.5, ran=0.5)
    now, total, longest = 0.5 + stop, 0.5 * rate, stop
    state = settled
    while now < 10:
        ran = state.pause
        now, total = now + ran, total + rate * ran
        state, stop = settle(state, 0.25, total, now, ran=ran)
        now, longest = now + stop, max(longest, stop)
    assert total / now == pytest.approx(0.25, rel=0.1)
    assert longest <= 1.0


def test_a_container_below_its_limit_is_never_stopped_and_measured_rarely() -> None:
    state, now, total, pauses = ThrottleState(), 0.0, 0.0, []
    for _ in range(20):
        now, total = now + state.pause, total + 0.2 * state.pause
        state, stop = settle(state, 0.25, total, now, ran=state.pause)
        assert stop == 0
        pauses.append(state.pause)
    assert pauses[-1] == 0.5


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, None),
        ({"cpu_quota": -1}, None),
        ({"cpu_quota": 25_000}, 0.25),
        ({"cpu_quota": 25_000, "cpu_period": 50_000}, 0.5),
    ],
)
def test_the_limit_is_counted_in_cores(resources: dict[str, Any], expected: float | None) -> None:
    assert cores(resources) == expected


class FakeContainer:
    """A container around a process of the test."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.alive = True
        self.written_places: list[str] = []
        self.command_pids: list[int] = []
        self.resources: dict[str, Any] = {"cpu_quota": 25_000}

    def exceed(self, reason: str, message: str) -> None: ...


@pytest.fixture
def container() -> Iterator[FakeContainer]:
    """A shell with a child."""
    process = subprocess.Popen(["sh", "-c", "sleep 1000; exit 3"], start_new_session=True)
    made = FakeContainer(process.pid)
    try:
        # Until it has executed its program, the shell that has forked it cannot stop.
        waited(lambda: program([*everyone(made)][-1]) == "sleep")
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def waited(condition: Callable[[], bool]) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + 60
    while not condition():
        assert clock.monotonic() < deadline, "this did not come true within a minute"
        os.sched_yield()


def program(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


def state(pid: int) -> bytes:
    return cpu_throttle._fields(pid)[0]


def test_all_processes_are_stopped_and_continued(container: FakeContainer) -> None:
    shell, child = everyone(container)
    assert stop_all(container) == [shell, child]
    waited(lambda: state(shell) == state(child) == b"T")
    continue_all([shell, child])
    waited(lambda: b"T" not in (state(shell), state(child)))


def test_a_process_that_was_stopped_before_stays_so(container: FakeContainer) -> None:
    shell, child = everyone(container)
    os.kill(child, signal.SIGSTOP)
    waited(lambda: state(child) == b"T")
    stopped = stop_all(container)
    assert stopped == [shell]
    waited(lambda: state(shell) == b"T")
    continue_all(stopped)
    waited(lambda: state(shell) != b"T")
    assert state(child) == b"T"


def test_many_threads_are_not_all_visited(
    container: FakeContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_throttle, "_MOST_THREADS", 1)
    assert [*everyone(container)] == [container.pid]


def test_commands_in_a_container_count(container: FakeContainer) -> None:
    container.command_pids = [os.getpid()]
    assert os.getpid() in [*everyone(container)]
    assert processor_time(os.getpid()) > 0
    assert processor_time(2**22 + 1) == 0


class FakeLoop(EventLoop):
    """Keeps its timers, for the test to call."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], object]]] = []

    def after(self, seconds: float, callback: Callable[[], object]) -> Timer:
        self.due.append((seconds, callback))
        return Timer(0, 0, callback)

    def turn(self) -> float:
        """Call the next timer, and return the seconds until the one after it."""
        self.due.pop(0)[1]()
        return self.due[0][0] if self.due else 0


class Times:
    """Pretended measurements."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.total = 0.0
        self.calls: list[str] = []
        monkeypatch.setattr(cpu_throttle, "everyone", lambda _: [1])
        monkeypatch.setattr(cpu_throttle, "processor_time", lambda _: self.total * 1e9)
        monkeypatch.setattr(cpu_throttle, "stop_all", self._stop)
        monkeypatch.setattr(cpu_throttle, "continue_all", lambda _: self.calls.append("continue"))

    def _stop(self, container: object) -> list[int]:
        self.calls.append("stop")
        return [1]


def test_a_container_is_stopped_while_it_exceeds_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    times, loop, container = Times(monkeypatch), FakeLoop(), FakeContainer(1)
    CpuThrottle(loop, MACHINE, lambda: times.now).follow(container)
    times.now, times.total = 0.1, 0.1
    assert loop.turn() == pytest.approx(0.3)
    assert times.calls == ["stop"]
    times.now += 0.3
    loop.turn()
    assert times.calls == ["stop", "continue"]
    # A resize lifts the limit.
    container.resources = {"cpu_quota": -1}
    assert loop.turn() == 1.0
    container.alive = False
    loop.turn()
    assert loop.due == []


def test_the_kernel_is_left_alone_with_its_limits() -> None:
    loop = FakeLoop()
    CpuThrottle(loop, MACHINE._replace(cpu=KERNEL)).follow(FakeContainer(1))
    assert loop.due == []
