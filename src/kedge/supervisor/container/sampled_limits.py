"""Limits of containers without control groups: their processes are measured from time to time.

The kernel refuses nothing here, so a container that exceeds a limit is killed at the next check.
Its memory is measured in two steps. The sum over its processes of what each has resident is cheap,
and never too low; but processes that have forked share pages, and the sum counts those several
times. The exact value takes the kernel milliseconds per gigabyte, so it is read only if the sum is
above the limit.
"""

import contextlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from kedge.supervisor.kernel import processes
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.machine_capabilities import SAMPLED, MachineCapabilities

_LEAST_SECONDS: Final = 0.1
_MOST_SECONDS: Final = 1.0
"""Between two checks of a container: an idle one is looked at each second."""
_GROWTH_PER_SECOND: Final = 256 << 20
"""Bytes that a program may well fill in a second; checks come before it can reach its limit so."""
_MOST_PROCESSES: Final = 4096
"""Processes that one check visits, so that a fork bomb does not stop the supervisor."""
_UNLIMITED: Final = -1


class LimitedContainer(Protocol):
    """A container whose limits are checked."""

    @property
    def alive(self) -> bool: ...

    @property
    def pid(self) -> int: ...

    @property
    def command_pids(self) -> Iterable[int]:
        """The first processes of commands that are executed in it."""
        ...

    @property
    def resources(self) -> dict[str, Any]:
        """Its limits, which may change."""
        ...

    def exceed(self, reason: str, message: str) -> None:
        """Kill all its processes, and record why."""
        ...


class SampledUsage(NamedTuple):
    """The usage of a container at one check."""

    processes: int
    memory: int
    """Bytes of anonymous and shared memory."""
    is_exact: bool = False
    """False if pages that its processes share may be counted several times."""


class SampledLimits:
    """Checks the limits of running containers that the kernel does not enforce."""

    def __init__(self, loop: EventLoop, machine: MachineCapabilities) -> None:
        self._loop = loop
        self._memory = machine.memory == SAMPLED
        self._pids = machine.pids == SAMPLED

    def follow(self, container: LimitedContainer) -> None:
        """Check the limits of a container until it ends."""
        if self._memory or self._pids:
            self._later(container, _LEAST_SECONDS, 0)

    def _later(self, container: LimitedContainer, seconds: float, memory: int) -> None:
        self._loop.after(seconds, lambda: self._check(container, seconds, memory))

    def _check(self, container: LimitedContainer, seconds: float, before: int) -> None:
        if not container.alive:
            return
        limit, most = self._limits(container.resources)
        if limit is None and most is None:
            # A resize may set them.
            self._later(container, _MOST_SECONDS, 0)
            return
        pids = _processes(container)
        usage = SampledUsage(len(pids), sum(map(resident, pids)))
        if limit is not None and usage.memory > limit:
            usage = SampledUsage(len(pids), sum(map(proportional, pids)), is_exact=True)
        found = excess(limit, most, usage)
        if found is not None:
            container.exceed(*found)
            return
        self._later(container, pause(limit, usage, before, seconds), usage.memory)

    def _limits(self, resources: dict[str, Any]) -> tuple[int | None, int | None]:
        """Return the sampled limits of memory and of processes."""
        memory = resources.get("memory_limit") if self._memory else None
        most = resources.get("pids_limit") if self._pids else None
        return (
            None if memory in (None, _UNLIMITED) else int(memory),
            None if most in (None, _UNLIMITED) else int(most),
        )


def excess(limit: int | None, most: int | None, usage: SampledUsage) -> tuple[str, str] | None:
    """Return reason and message if a container exceeds its limits of memory and processes."""
    if limit is not None and usage.memory > limit:
        return "OOMKilled", f"it used {usage.memory} bytes of memory; its limit is {limit}"
    if most is not None and usage.processes > most:
        return "Error", f"it had {usage.processes} processes; its limit is {most}"
    return None


def pause(limit: int | None, usage: SampledUsage, before: int, last: float) -> float:
    """Return the seconds until the next check: the time in which the container could fill the rest
    of its memory, or twice the last pause if it does not grow. An exact measurement is dear, so the
    next one comes late."""
    if limit is None or usage.is_exact:
        return _MOST_SECONDS
    rest = (limit - usage.memory) / _GROWTH_PER_SECOND
    if usage.memory <= before:
        rest = max(rest, 2 * last)
    return min(max(rest, _LEAST_SECONDS), _MOST_SECONDS)


def _processes(container: LimitedContainer) -> list[int]:
    found: list[int] = []
    for root in (container.pid, *container.command_pids):
        found += processes.tree(root, _MOST_PROCESSES - len(found))
    return found


def resident(pid: int) -> int:
    """Return the anonymous and shared memory of a process; 0 if it has ended."""
    return _sum_of(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))


def proportional(pid: int) -> int:
    """Return the same with pages divided among the processes that share them, or undivided if the
    kernel does not say."""
    found = _sum_of(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
    return found or resident(pid)


def _sum_of(path: str, names: tuple[bytes, ...]) -> int:
    total = 0
    with contextlib.suppress(OSError), open(path, "rb") as file:
        for line in file:
            if line.startswith(names):
                total += int(line.split()[1]) * 1024
    return total
