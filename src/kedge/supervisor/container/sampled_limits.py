"""Limits of containers without control groups: their processes are measured from time to time.

The kernel refuses nothing here, so a container that exceeds a limit is killed at the next check.
Its memory is measured in two steps. The sum over its processes of what each has resident is cheap,
and never too low, and the largest of them is never too high; but processes that have forked share
pages, and the sum counts those several times. The exact value takes the kernel milliseconds per
process, so it is read only if the limit is between the two, and a few processes at a time: a
container with thousands of forked processes must not stop the supervisor.
"""

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from kedge.supervisor.kernel import processes
from kedge.supervisor.loop import EventLoop
from kedge.supervisor.machine_capabilities import SAMPLED, MachineCapabilities

_LEAST_SECONDS: Final = 0.1
_MOST_SECONDS: Final = 1.0
"""Between two checks of a container: an idle one is looked at each second."""
_GROWTH_PER_SECOND: Final = 256 << 20
"""Bytes that a program may well fill in a second; checks come before it can reach its limit so."""
_MOST_TASKS: Final = 8192
"""Processes and threads that one check visits. With more, its memory cannot be measured."""
_SLICE_SECONDS: Final = 0.02
"""How long processes are measured exactly before the supervisor does something else."""
_REST: Final = 9
"""Between two checks, the time that the last one took passes this often at least."""
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

    tasks: int
    """Processes and threads, which a control group counts too."""
    memory: int
    """Bytes of anonymous and shared memory at most: shared pages are counted several times."""
    least_memory: int = 0
    """The same at least: that of the largest process."""


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
        begun = self._loop.now()
        pids, tasks = _processes(container, _MOST_TASKS if most is None else most + 1)
        sizes = [resident(pid) for pid in pids] if limit is not None else []
        usage = SampledUsage(tasks, sum(sizes), max(sizes, default=0))
        found = excess(limit, most, usage)
        if found is not None:
            container.exceed(*found)
        elif limit is not None and usage.memory > limit:
            self._measure(container, limit, iter(pids), 0)
        else:
            rest = _REST * (self._loop.now() - begun)
            wait = max(pause(limit, usage, before, seconds), rest)
            self._later(container, wait, usage.memory)

    def _measure(
        self, container: LimitedContainer, limit: int, pids: Iterator[int], memory: int
    ) -> None:
        """Add the exact memory of processes to that of others, until it exceeds the limit."""
        if not container.alive:
            return
        until = self._loop.now() + _SLICE_SECONDS
        for pid in pids:
            memory += proportional(pid)
            if memory > limit:
                container.exceed(*_out_of_memory(memory, limit))
                return
            if self._loop.now() >= until:
                further = partial(self._measure, container, limit, pids, memory)
                self._loop.after(_REST * _SLICE_SECONDS, further)
                return
        self._later(container, _MOST_SECONDS, 0)

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
    if limit is not None and usage.least_memory > limit:
        return _out_of_memory(usage.least_memory, limit)
    if most is not None and usage.tasks > most:
        return "Error", f"it had {usage.tasks} processes and threads or more; its limit is {most}"
    if limit is not None and usage.tasks >= _MOST_TASKS:
        return "Error", f"it had {usage.tasks} processes and threads; no more can be measured"
    return None


def _out_of_memory(memory: int, limit: int) -> tuple[str, str]:
    return "OOMKilled", f"it used {memory} bytes of memory; its limit is {limit}"


def pause(limit: int | None, usage: SampledUsage, before: int, last: float) -> float:
    """Return the seconds until the next check: the time in which the container could fill the rest
    of its memory, or twice the last pause if it does not grow."""
    if limit is None:
        return _MOST_SECONDS
    rest = (limit - usage.memory) / _GROWTH_PER_SECOND
    if usage.memory <= before:
        rest = max(rest, 2 * last)
    return min(max(rest, _LEAST_SECONDS), _MOST_SECONDS)


def _processes(container: LimitedContainer, most: int) -> processes.ProcessTree:
    found: list[int] = []
    tasks = 0
    for root in (container.pid, *container.command_pids):
        tree = processes.task_tree(root, most - tasks)
        found += tree.pids
        tasks += tree.tasks
    return processes.ProcessTree(found, tasks)


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
