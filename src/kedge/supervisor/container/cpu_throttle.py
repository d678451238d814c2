"""Limits of processor time without control groups, enforced with SIGSTOP and SIGCONT.

A container that exceeds its limit runs for a slice, is stopped, and continues when its usage over
slice and stop is down to the limit. Usage is measured, not estimated, and an excess that a late
check missed is made up for, so that the average holds. A container that stays below its limit is
only measured, and rarely.

Parents are stopped before their children, and continued after them. So no process of the container
finds a stopped child when it waits for one: only a spurious SIGCHLD is visible. Processes that the
container itself has stopped stay so.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from kedge.supervisor.container.sampled_limits import LimitedContainer
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.machine_capabilities import SAMPLED, MachineCapabilities

_PERIOD: Final = 0.1
"""Seconds of a slice with its stop, like the period of control groups."""
_LEAST_SLICE: Final = 0.005
_MOST_PAUSE: Final = 0.5
"""Seconds between two measurements of a container that does not exceed its limit."""
_LONGEST_STOP: Final = 1.0
_CREDIT_SECONDS: Final = 0.5
"""The time for which an unused limit stays available: a stop may last longer than planned if the
machine is busy."""
_MOST_DEBT_SECONDS: Final = 10.0
"""The excess that is made up for: more is forgiven, or a container would stay slow for long."""
_UNLIMITED_SECONDS: Final = 1.0
"""A resize may set a limit; it is looked for at this interval."""
_MOST_THREADS: Final = 4096
"""Threads of a container that one look visits, so that many of them do not stop the supervisor."""
_PART: Final = 20
"""At most one part in so many of the supervisor's time is spent on one container."""
_JIFFY: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_STOPPED: Final = (b"T", b"t")
_UNLIMITED: Final = -1


class ThrottleState(NamedTuple):
    """The account of one container, at a measurement."""

    total: float = 0.0
    """Its processor time so far, in seconds."""
    at: float = 0.0
    """When that was measured."""
    debt: float = 0.0
    """Seconds of processor time above the limit; less than 0 is a credit."""
    pause: float = _LEAST_SLICE
    """Seconds until the next measurement."""


class ThrottleDecision(NamedTuple):
    """The decision after a slice."""

    state: ThrottleState
    stop: float
    """Seconds to stop the container; 0 if it does not exceed its limit."""


def settle(
    before: ThrottleState, limit: float, total: float, now: float, *, ran: float
) -> ThrottleDecision:
    """Return the account after a slice, and how long to stop a container with this limit in cores.
    It `ran` for that long of the time since the measurement before."""
    used = max(total - before.total, 0.0)
    debt = before.debt + used - limit * (now - before.at)
    debt = min(max(debt, -limit * _CREDIT_SECONDS), limit * _MOST_DEBT_SECONDS)
    rate = used / max(ran, 1e-6)
    stop = _stop_seconds(debt, used, ran, limit) if debt > 0 else 0.0
    pause = _slice_seconds(limit, rate, debt, before.pause)
    state = ThrottleState(total, now, debt, pause)
    return ThrottleDecision(state, stop)


def _stop_seconds(debt: float, used: float, ran: float, limit: float) -> float:
    """Return the time that pays the debt, or a part of it: a container with a large debt runs at
    half its limit meanwhile instead of standing still."""
    whole, halved = debt / limit, 2 * used / limit - ran
    return min(whole, max(halved, _PERIOD), _LONGEST_STOP)


def _slice_seconds(limit: float, rate: float, debt: float, last: float) -> float:
    """Return the time in which a container at this rate uses its share of a period and its credit;
    a container below its limit is measured ever more rarely."""
    seconds = 2 * last if rate <= limit else (limit * _PERIOD - min(debt, 0.0)) / rate
    return min(max(seconds, _LEAST_SLICE), _MOST_PAUSE)


class CpuThrottle:
    """Enforces the cpu limits of running containers, if no control group does."""

    def __init__(
        self,
        loop: EventLoop,
        machine: MachineCapabilities,
        now: Callable[[], float] = time.monotonic,  # noqa: TID251 no event loop of asyncio here
    ) -> None:
        self._loop = loop
        self._is_used = machine.cpu == SAMPLED
        self._now = now

    def follow(self, container: LimitedContainer) -> None:
        """Enforce the limit of a container until it ends."""
        if self._is_used:
            self._run(container, ThrottleState(at=self._now()))

    def _run(self, container: LimitedContainer, state: ThrottleState) -> None:
        """Let a container run for a slice."""
        begun = self._now()
        self._loop.after(state.pause, lambda: self._measure(container, state, begun))

    def _measure(self, container: LimitedContainer, state: ThrottleState, begun: float) -> None:
        if not container.alive:
            return
        limit = cores(container.resources)
        if limit is None:
            self._run(container, ThrottleState(at=self._now(), pause=_UNLIMITED_SECONDS))
            return
        before = self._now()
        found = [*everyone(container)]
        total = sum(map(processor_time, found)) / 1e9
        now = self._now()
        settled, stop = settle(state, limit, total, now, ran=now - begun)
        stopped = stop_all(container) if stop else []
        least = (self._now() - before) * _PART
        settled = settled._replace(pause=max(settled.pause, least))
        if stop:
            resume = partial(self._resume, container, settled, stopped)
            self._loop.after(max(stop, least), resume)
        else:
            self._run(container, settled)

    def _resume(
        self, container: LimitedContainer, state: ThrottleState, stopped: list[int]
    ) -> None:
        if container.alive:
            continue_all(stopped)
            self._run(container, state)


def cores(resources: dict[str, Any]) -> float | None:
    """Return the cpu limit of a container in cores; None if it has none."""
    quota = resources.get("cpu_quota")
    if quota is None or quota == _UNLIMITED:
        return None
    return int(quota) / int(resources.get("cpu_period", 100_000))


def everyone(container: LimitedContainer) -> Iterator[int]:
    """Yield the processes of a container, and of commands in it, parents before their children.
    Children are looked for after the caller has dealt with their parent."""
    found, left = [container.pid, *container.command_pids], _MOST_THREADS
    for pid in found:
        if left <= 0:
            return
        yield pid
        with contextlib.suppress(OSError):
            threads = os.listdir(f"/proc/{pid}/task")[:left]
            left -= len(threads)
            for thread in threads:
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    found += map(int, file.read().split())


def stop_all(container: LimitedContainer) -> list[int]:
    """Stop the processes of a container; return those that were not stopped already."""
    found = []
    for pid in everyone(container):
        with contextlib.suppress(OSError):
            if _fields(pid)[0] not in _STOPPED:
                found.append(pid)
                os.kill(pid, signal.SIGSTOP)
    return found


def continue_all(stopped: list[int]) -> None:
    """Continue stopped processes, children first."""
    for pid in reversed(stopped):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def processor_time(pid: int) -> int:
    """Return the nanoseconds of processor time of a process and of its children that it has waited
    for; 0 if it has ended."""
    try:
        fields = _fields(pid)
        own = time.clock_gettime_ns((~pid << 3) | 2)
        return own + (int(fields[13]) + int(fields[14])) * _JIFFY
    except (OSError, IndexError):
        return 0


def _fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()
