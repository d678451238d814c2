"""Limits of containers without control groups: their processes are measured from time to time.

The kernel refuses nothing here, so a container that exceeds a limit is killed at the next check.
Its memory is measured in two steps. The sum over its processes of what each has resident is cheap,
and never too low, and the largest of them is never too high; but processes that have forked share
pages, and the sum counts those several times. The exact value takes the kernel milliseconds per
process, so it is read only if the limit is between the two, and a few processes at a time: a
container with thousands of forked processes must not stop the supervisor.

Files in volumes in memory count too, in equal parts for the containers that may write to the
volume: the kernel does not tell who has written a file. Such files may be mapped as well, so only
the anonymous memory of processes is added to them.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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

    @property
    def written_places(self) -> Sequence[str]:
        """The directories of volumes that it may write to."""
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
    """The same at least: that of the largest process, with files in memory."""


class FollowedContainer(NamedTuple):
    """A container with the volumes in memory that it may write to."""

    container: LimitedContainer
    places: Sequence[str]


class SampledLimits:
    """Checks the limits of running containers that the kernel does not enforce."""

    def __init__(self, loop: EventLoop, machine: MachineCapabilities) -> None:
        self._loop = loop
        self._memory = machine.memory == SAMPLED
        self._pids = machine.pids == SAMPLED
        self._writers: dict[str, int] = {}
        """By volume in memory: the containers that may write to it."""

    def follow(self, container: LimitedContainer) -> None:
        """Check the limits of a container until it ends."""
        if self._memory or self._pids:
            places = places_in_memory(container.written_places) if self._memory else ()
            for place in places:
                self._writers[place] = self._writers.get(place, 0) + 1
            self._later(FollowedContainer(container, places), _LEAST_SECONDS, 0)

    def _forget(self, places: Sequence[str]) -> None:
        for place in places:
            self._writers[place] -= 1
            if not self._writers[place]:
                del self._writers[place]

    def _files(self, places: Sequence[str]) -> int:
        """Return the bytes of files in memory that count for one container."""
        return sum(bytes_of_files(each) // self._writers[each] for each in places)

    def _later(self, followed: FollowedContainer, seconds: float, memory: int) -> None:
        self._loop.after(seconds, lambda: self._check(followed, seconds, memory))

    def _check(self, followed: FollowedContainer, seconds: float, before: int) -> None:
        container, places = followed
        if not container.alive:
            self._forget(places)
            return
        limit, most = self._limits(container.resources)
        if limit is None and most is None:
            # A resize may set them.
            self._later(followed, _MOST_SECONDS, 0)
            return
        begun = self._loop.now()
        pids, tasks = _processes(container, _MOST_TASKS if most is None else most + 1)
        usage = SampledUsage(tasks, 0)
        if limit is not None:
            usage = _usage(tasks, pids, self._files(places))
        found = excess(limit, most, usage)
        if found is not None:
            container.exceed(*found)
            self._forget(places)
        elif limit is not None and usage.memory > limit:
            self._measure(followed, limit, iter(pids), self._files(places))
        else:
            rest = _REST * (self._loop.now() - begun)
            wait = max(pause(limit, usage, before, seconds), rest)
            self._later(followed, wait, usage.memory)

    def _measure(
        self, followed: FollowedContainer, limit: int, pids: Iterator[int], memory: int
    ) -> None:
        """Add the exact memory of processes to that of others, until it exceeds the limit."""
        container, places = followed
        if not container.alive:
            self._forget(places)
            return
        measure = proportional_anonymous if places else proportional
        until = self._loop.now() + _SLICE_SECONDS
        for pid in pids:
            memory += measure(pid)
            if memory > limit:
                container.exceed(*_out_of_memory(memory, limit))
                self._forget(places)
                return
            if self._loop.now() >= until:
                further = partial(self._measure, followed, limit, pids, memory)
                self._loop.after(_REST * _SLICE_SECONDS, further)
                return
        self._later(followed, _MOST_SECONDS, 0)

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


def _usage(tasks: int, pids: Sequence[int], files: int) -> SampledUsage:
    sizes = [resident(pid) for pid in pids]
    least = max(sizes, default=0)
    if files:
        least = max(least, files + max(map(anonymous, pids), default=0))
    return SampledUsage(tasks, sum(sizes) + files, least)


def places_in_memory(places: Sequence[str], read: Callable[[], str] | None = None) -> Sequence[str]:
    """Return the directories at which a tmpfs is mounted."""
    if not places:
        return ()
    mounted = set()
    for line in (read or _mounts)().strip("\n").split("\n"):
        fields, _, kind = line.partition(" - ")
        if kind.startswith("tmpfs "):
            mounted.add(_unescaped(fields.split(" ")[4]))
    return [place for place in dict.fromkeys(places) if place in mounted]


def _unescaped(name: str) -> str:
    """Return a name of mountinfo, in which the kernel writes spaces as `\\040`, in octal."""
    octal = name.encode(errors="surrogateescape").decode("unicode_escape")
    return octal.encode("latin-1").decode(errors="surrogateescape")


def _mounts() -> str:
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        return file.read()


def bytes_of_files(place: str) -> int:
    """Return the size of all files in a tmpfs; 0 if it is gone."""
    try:
        found = os.statvfs(place)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def anonymous(pid: int) -> int:
    """Return the anonymous memory of a process; 0 if it has ended."""
    return _sum_of(f"/proc/{pid}/status", (b"RssAnon:",))


def proportional_anonymous(pid: int) -> int:
    """Return the same with pages divided among the processes that share them."""
    return _sum_of(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:",)) or anonymous(pid)


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
