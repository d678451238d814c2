"""Reads how much processor time and memory a control group, a few processes or the machine uses."""

import contextlib
import os
import resource
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from kedge.supervisor import processes
from kedge.supervisor.cgroups import Cgroups, Hierarchy

_SMALL: Final = 64
"""Enough for one number and its name, and little enough to be had at once."""
_PAGE: Final = 4096
_LARGE: Final = 1 << 17
_MEMORY_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
JIFFY: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds of what the kernel counts processor time in, where it is not more exact."""
_pread = os.pread
_new = tuple.__new__
"""Makes a named tuple in half the time that its class takes."""
_READ: Final = os.O_RDONLY | os.O_CLOEXEC

_SHARE: Final = 2
"""One of so many descriptors that this process may have, at most, is kept open here."""
_BACK: Final = 64
"""Bytes by which a line may have moved towards the beginning of a file since it was last read."""
_ANYWAY: Final = 10
"""Readings after which memory is looked at closely even if its amount has not changed."""
_PART: Final = 8
_MOST_STALE: Final = 1 << 20
"""It has not changed if it is within 1/2**8 of what it was, and within a mebibyte."""


class Reading(NamedTuple):
    """How much was used at one moment."""

    cpu: int
    """Nanoseconds of processor time since it began; -1 if that cannot be known."""
    memory: int
    """Bytes of the working set; -1 if that cannot be known."""


class Source(Protocol):
    """Something whose usage can be read."""

    def read(self) -> Reading | None:
        """None if there is nothing any more."""
        ...

    def close(self) -> None: ...


class Descriptors:
    """Keeps files open as long as this process has descriptors to spare."""

    def __init__(self, most: int | None = None) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._left = soft // _SHARE if most is None else most

    def open(self, paths: Sequence[str]) -> tuple[int, ...]:
        """Descriptors of all of these files, or none at all if they have to be opened each time."""
        if len(paths) > self._left:
            return ()
        opened: list[int] = []
        try:
            for path in paths:
                opened.append(os.open(path, _READ))
        except BaseException:
            self._shut(opened)
            raise
        self._left -= len(opened)
        return tuple(opened)

    def close(self, descriptors: Sequence[int]) -> None:
        self._shut(descriptors)
        self._left += len(descriptors)

    @staticmethod
    def _shut(descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)


class GroupSource:
    """A control group."""

    __slots__ = (
        "_age",
        "_at",
        "_descriptors",
        "_inactive",
        "_kept",
        "_name",
        "_opened",
        "_paths",
        "_unified_cpu",
        "_unified_memory",
        "_used",
        "_within",
    )

    def __init__(self, cgroups: Cgroups, path: str, kept: Descriptors) -> None:
        cpu, memory = places(cgroups)
        self._kept = kept
        self._unified_cpu = cpu is not None and cpu.unified
        self._unified_memory = memory is not None and memory.unified
        self._paths = [
            _inside(cpu, path, "cpu.stat" if self._unified_cpu else "cpuacct.usage"),
            _inside(
                memory, path, "memory.current" if self._unified_memory else "memory.usage_in_bytes"
            ),
            _inside(memory, path, "memory.stat"),
        ]
        self._descriptors: tuple[int, ...] = ()
        self._opened = False
        self._used = 0
        """When memory was last looked at closely."""
        self._within = -1
        """By how much it may be more or less before it has changed."""
        self._inactive = 0
        self._age = 0
        self._name = b"\ninactive_file " if self._unified_memory else b"\ntotal_inactive_file "
        self._at = 0
        """Where in the file this was."""

    def read(self) -> Reading | None:
        try:
            if self._descriptors:
                cpu, usage, stat = self._descriptors
                return self._read(cpu, usage, stat)
            if not self._opened:
                self._descriptors = self._kept.open(self._paths)
                self._opened = True
                return self.read()
            return self._read_anew()
        except (OSError, ValueError):
            # The group is gone, or is just going.
            self.close()
            return None

    def close(self) -> None:
        self._kept.close(self._descriptors)
        self._descriptors = ()
        self._opened = False

    def _read_anew(self) -> Reading:
        with contextlib.ExitStack() as stack:
            opened = []
            for path in self._paths:
                opened.append(os.open(path, _READ))
                stack.callback(os.close, opened[-1])
            return self._read(*opened)

    def _read(self, cpu: int, usage: int, stat: int) -> Reading:
        time_used = _pread(cpu, _SMALL, 0)
        nanoseconds = _usage_usec(time_used) * 1000 if self._unified_cpu else int(time_used)
        used = int(_pread(usage, _SMALL, 0))
        if abs(used - self._used) > self._within or self._age >= _ANYWAY:
            # This file takes longer to read than the other two.
            self._used, self._inactive, self._age = used, self._field(stat), 0
            self._within = min(used >> _PART, _MOST_STALE)
        self._age += 1
        memory = used - self._inactive
        return _new(Reading, (nanoseconds, memory if memory > 0 else 0))

    def _field(self, stat: int) -> int:
        """How much memory only holds files that nobody has used lately; 0 if that is not said."""
        text = _pread(stat, _PAGE, 0)
        # Most of what is before it is as long as it was.
        at = text.find(self._name, self._at - _BACK if self._at > _BACK else 0)
        end = text.find(b"\n", at + 1)
        if at < 0 or end < 0:
            if len(text) == _PAGE:
                text = _pread(stat, _LARGE, 0)
            at = text.find(self._name)
            end = text.find(b"\n", at + 1)
        if at < 0:
            return 0
        self._at = at
        return int(text[at + len(self._name) : end])


def places(cgroups: Cgroups) -> tuple[Hierarchy | None, Hierarchy | None]:
    """Where processor time is counted, and where memory is."""
    return cgroups.place("cpuacct") or cgroups.unified, cgroups.place("memory")


class ProcessSource:
    """A process by itself."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._statm = -1
        with contextlib.suppress(OSError):
            # Of this very process for ever, even if another one is given its number.
            self._statm = os.open(f"/proc/{pid}/statm", _READ)

    def read(self) -> Reading | None:
        if self._statm < 0:
            return None
        try:
            pages = int(_pread(self._statm, _SMALL, 0).split()[1])
            # One that has ended and is not yet buried has no pages.
            return Reading(_own_time(self._pid), pages * _MEMORY_PAGE) if pages else None
        except (OSError, IndexError):
            return None

    def close(self) -> None:
        if self._statm >= 0:
            os.close(self._statm)
            self._statm = -1


class TreeSource:
    """A process and all that descend from it, for machines without control groups. Pages that
    several of them share count for each."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = processes.began(pid)

    def read(self) -> Reading | None:
        if not self._began or processes.began(self._pid) != self._began:
            return None
        cpu = memory = 0
        for pid in processes.tree(self._pid):
            # Processes come and go while they are counted.
            with contextlib.suppress(OSError, ValueError):
                cpu += _own_time(pid) + _time_of_the_dead(pid)
                memory += _resident(pid)
        return Reading(cpu, memory)

    def close(self) -> None:
        pass


class MachineSource:
    """Everything on this machine."""

    def __init__(self, cgroups: Cgroups | None, proc: str = "/proc") -> None:
        self._files = Descriptors(3)
        self._stat, self._meminfo = self._files.open([f"{proc}/stat", f"{proc}/meminfo"])
        self._cpu = -1
        self._unified = False
        cpu = places(cgroups)[0] if cgroups is not None else None
        if cpu is not None:
            self._unified = cpu.unified
            name = "cpu.stat" if cpu.unified else "cpuacct.usage"
            with contextlib.suppress(OSError):
                (self._cpu,) = self._files.open([f"{cpu.place}/{name}"])

    def read(self) -> Reading | None:
        info = os.pread(self._meminfo, _PAGE, 0)
        total, free, inactive = (
            _number_after(info, name) * 1024
            for name in (b"MemTotal:", b"\nMemFree:", b"\nInactive(file):")
        )
        return Reading(self._time(), max(0, total - free - inactive))

    def _time(self) -> int:
        if self._cpu < 0:
            return busy(os.pread(self._stat, _PAGE, 0))
        # Finer than /proc/stat, which counts in hundredths of a second.
        text = os.pread(self._cpu, _SMALL, 0)
        return _usage_usec(text) * 1000 if self._unified else int(text)

    def close(self) -> None:
        opened = [each for each in (self._stat, self._meminfo, self._cpu) if each >= 0]
        self._files.close(opened)


def busy(stat: bytes) -> int:
    """Nanoseconds that the processors did something, out of /proc/stat."""
    numbers = [int(each) for each in stat[: stat.index(b"\n")].split()[1:9]]
    user, nice, system, _, _, *interrupts = numbers
    return (user + nice + system + sum(interrupts)) * JIFFY


def fields(cgroups: Cgroups, controller: str, path: str, name: str) -> dict[str, int]:
    """What a file of a control group says that has a name and a number in each line."""
    text = text_of(cgroups, controller, path, name)
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def text_of(cgroups: Cgroups, controller: str, path: str, name: str) -> str:
    """What a file of a control group says; nothing, if there is no such file."""
    cpu, memory = places(cgroups)
    hierarchy = {"cpuacct": cpu, "memory": memory}.get(controller) or cgroups.place(controller)
    try:
        with open(_inside(hierarchy, path, name)) as file:
            return file.read()
    except OSError:
        return ""


def _inside(hierarchy: Hierarchy | None, path: str, name: str) -> str:
    # A place that is not there is found out by opening it.
    return f"{hierarchy.place if hierarchy else '/nonexistent'}/{path.strip('/')}/{name}"


def _usage_usec(text: bytes) -> int:
    at = text.index(b"usage_usec ") + 11
    return int(text[at : text.index(b"\n", at)])


def _number_after(text: bytes, name: bytes) -> int:
    at = text.find(name)
    return int(text[at + len(name) :].split(None, 1)[0]) if at >= 0 else 0


def _own_time(pid: int) -> int:
    """What a process has used by itself: the kernel's clock of it, which is finer than /proc."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def _time_of_the_dead(pid: int) -> int:
    """What those have used whose end the process has seen."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        after_name = file.read().rpartition(b")")[2].split()
    return (int(after_name[13]) + int(after_name[14])) * JIFFY


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * _MEMORY_PAGE
