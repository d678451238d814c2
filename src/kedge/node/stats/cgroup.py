"""Sources of readings: a control group, a few processes, or the machine."""

import contextlib
import os
import resource
import time
from collections.abc import Sequence
from typing import Final, Protocol

from kedge.metrics.track import UsageReading
from kedge.supervisor.kernel import processes
from kedge.supervisor.kernel.cgroups import Cgroups, Hierarchy

SMALL: Final = 64
"""Bytes to read for a number and its name."""
_PAGE: Final = 4096
_LARGE: Final = 1 << 17
_MEMORY_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
JIFFY: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds of the kernel's clock tick, in which /proc counts processor time."""
_pread = os.pread
_READ: Final = os.O_RDONLY | os.O_CLOEXEC

_SHARE: Final = 2
"""At most one in so many of the descriptors that this process may have is kept open here."""
_BACK: Final = 64
"""Bytes by which a line may have moved towards the beginning of a file since it was last read."""
_ANYWAY: Final = 10
"""Readings after which the inactive part is read even if memory has not changed."""
_LEAST_PART: Final = 8
_MOST_PART: Final = 4
_MOST_STALE: Final = 1 << 28
"""Memory has not changed if it is within 1/2**8 of its last value, and within a mebibyte. If it
changes repeatedly and the inactive part does not, the bound grows to sixteen times as much."""


class UsageSource(Protocol):
    """A thing whose counters can be read."""

    def read(self) -> tuple[int, int] | None:
        """The fields of a UsageReading; None if the thing no longer exists."""
        ...

    def close(self) -> None: ...


class Descriptors:
    """Keeps files open as long as this process has descriptors to spare."""

    def __init__(self, most: int | None = None) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._left = soft // _SHARE if most is None else most

    def open(self, paths: Sequence[str]) -> tuple[int, ...]:
        """Descriptors of all these files; none if there are too few to keep."""
        if len(paths) > self._left:
            return ()
        opened: list[int] = []
        try:
            for path in paths:
                opened.append(os.open(path, _READ))
        except BaseException:
            self.shut(opened)
            raise
        self._left -= len(opened)
        return tuple(opened)

    def close(self, descriptors: Sequence[int]) -> None:
        self.shut(descriptors)
        self._left += len(descriptors)

    @staticmethod
    def shut(descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)


class GroupSource:
    """A control group."""

    __slots__ = (
        "_age",
        "_at",
        "_cgroups",
        "_kept",
        "_lent",
        "_part",
        "_path",
        "_unified_memory",
        "descriptors",
        "inactive",
        "parse",
        "stat",
        "used",
        "within",
    )

    def __init__(self, cgroups: Cgroups, path: str, kept: Descriptors) -> None:
        cpu, memory = places(cgroups)
        self._cgroups = cgroups
        self._path = path
        self._kept = kept
        self.parse = _usage_nanoseconds if cpu is not None and cpu.unified else int
        """Finds the nanoseconds in the file of processor time."""
        self._unified_memory = memory is not None and memory.unified
        self.descriptors: tuple[int, ...] = ()
        """Kept descriptors: of processor time, of memory, and of the details of memory."""
        self._lent: tuple[int, ...] = ()
        """Descriptors for one reading, if there are too few to keep."""
        self.used = 0
        """Memory when the inactive part was last read."""
        self._part = _LEAST_PART
        self.within = -1
        """The change of memory up to which the inactive part is not read again."""
        self.inactive = 0
        self.stat = b""
        """The details of memory, if a panel has read them since the last tick: reading them takes
        longer than everything else, and GroupDetails needs them too."""
        self._age = 0
        self._at = 0
        """Where in its file this was."""

    def read(self) -> tuple[int, int] | None:
        try:
            cpu, usage, stat = self.descriptors or self._open()
            nanoseconds = self.parse(_pread(cpu, SMALL, 0))
            used = int(_pread(usage, SMALL, 0))
            if self._age >= _ANYWAY or abs(used - self.used) > self.within:
                # This file takes longer to read than the other two.
                self.look(used, stat)
            # It may be from the begin of the tick.
            self.stat = b""
            self._age += 1
            return nanoseconds, max(0, used - self.inactive)
        except (OSError, ValueError):
            # The group is gone, or is just going.
            self.close()
            return None
        finally:
            if self._lent:
                self._kept.shut(self._lent)
                self._lent = ()

    def take_stat(self) -> bytes:
        """The details of memory, if they were just read; empty if not."""
        found, self.stat = self.stat, b""
        return found

    def close(self) -> None:
        self._kept.close(self.descriptors)
        self.descriptors = ()
        self.stat = b""

    def _open(self) -> tuple[int, ...]:
        cpu, memory = places(self._cgroups)
        spent = "cpuacct.usage" if self.parse is int else "cpu.stat"
        usage = "memory.current" if self._unified_memory else "memory.usage_in_bytes"
        paths = [
            inside(cpu, self._path, spent),
            inside(memory, self._path, usage),
            inside(memory, self._path, "memory.stat"),
        ]
        self.descriptors = self._kept.open(paths)
        if not self.descriptors:
            self._lent = Descriptors(len(paths)).open(paths)
        return self.descriptors or self._lent

    def look(self, used: int, stat: int) -> None:
        """Read the inactive part of the memory, and set the bound for the next time."""
        inactive = self._field(stat)
        changed, within = abs(used - self.used), self.within
        if abs(inactive - self.inactive) > within:
            self._part = _LEAST_PART
        elif changed > within and self._part > _MOST_PART:
            # Not files, but other memory came or went, and probably will next time.
            self._part -= 1
        self.used, self.inactive, self._age = used, inactive, 0
        self.within = min(used >> self._part, _MOST_STALE >> self._part)

    def _field(self, stat: int) -> int:
        """Memory of cached files that were not used lately; 0 if the kernel does not say."""
        name = b"\ninactive_file " if self._unified_memory else b"\ntotal_inactive_file "
        text = _pread(stat, _PAGE, 0)
        # Most of what is before it is as long as it was.
        at = text.find(name, self._at - _BACK if self._at > _BACK else 0)
        end = text.find(b"\n", at + 1)
        if at < 0 or end < 0:
            if len(text) == _PAGE:
                text = _pread(stat, _LARGE, 0)
            at = text.find(name)
            end = text.find(b"\n", at + 1)
        # A page may be a part of it only.
        self.stat = b"" if len(text) == _PAGE else text
        if at < 0:
            return 0
        self._at = at
        return int(text[at + len(name) : end])


def places(cgroups: Cgroups) -> tuple[Hierarchy | None, Hierarchy | None]:
    """The hierarchies that count processor time and memory."""
    return cgroups.place("cpuacct") or cgroups.unified, cgroups.place("memory")


class ProcessSource:
    """A process by itself."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._statm = -1
        with contextlib.suppress(OSError):
            # The descriptor stays with this process, even if another one gets its number.
            self._statm = os.open(f"/proc/{pid}/statm", _READ)

    def read(self) -> UsageReading | None:
        if self._statm < 0:
            return None
        try:
            pages = int(_pread(self._statm, SMALL, 0).split()[1])
            # A zombie has no pages.
            return UsageReading(_own_time(self._pid), pages * _MEMORY_PAGE) if pages else None
        except (OSError, IndexError):
            return None

    def close(self) -> None:
        if self._statm >= 0:
            os.close(self._statm)
            self._statm = -1


_MOST_TASKS: Final = 512
"""Processes and threads of a tree that are looked at: a container may have thousands."""


class TreeSource:
    """A process and all that descend from it, for machines without control groups. Pages that
    several of them share count for each."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = processes.began(pid)

    def read(self) -> UsageReading | None:
        if not self._began or processes.began(self._pid) != self._began:
            return None
        cpu = memory = 0
        for pid in processes.tree(self._pid, _MOST_TASKS):
            # Processes come and go while they are counted.
            with contextlib.suppress(OSError, ValueError):
                cpu += _own_time(pid) + _time_of_children(pid)
                memory += _resident(pid)
        return UsageReading(cpu, memory)

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
        if cpu is not None and not cpu.is_delegated:
            self._unified = cpu.unified
            name = "cpu.stat" if cpu.unified else "cpuacct.usage"
            with contextlib.suppress(OSError):
                (self._cpu,) = self._files.open([f"{cpu.place}/{name}"])

    def read(self) -> UsageReading | None:
        info = os.pread(self._meminfo, _PAGE, 0)
        total, free, inactive = (
            _number_after(info, name) * 1024
            for name in (b"MemTotal:", b"\nMemFree:", b"\nInactive(file):")
        )
        return UsageReading(self._time(), max(0, total - free - inactive))

    def _time(self) -> int:
        if self._cpu < 0:
            return busy(os.pread(self._stat, _PAGE, 0))
        # Finer than /proc/stat, which counts in hundredths of a second.
        text = os.pread(self._cpu, SMALL, 0)
        return _usage_nanoseconds(text) if self._unified else int(text)

    def close(self) -> None:
        opened = [each for each in (self._stat, self._meminfo, self._cpu) if each >= 0]
        self._files.close(opened)


def busy(stat: bytes) -> int:
    """Nanoseconds that the processors did something, out of /proc/stat."""
    numbers = [int(each) for each in stat[: stat.index(b"\n")].split()[1:9]]
    user, nice, system, _, _, *interrupts = numbers
    return (user + nice + system + sum(interrupts)) * JIFFY


def fields(cgroups: Cgroups, controller: str, path: str, name: str) -> dict[str, int]:
    """The fields of a control group's file that has a name and a number in each line."""
    text = text_of(cgroups, controller, path, name)
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def text_of(cgroups: Cgroups, controller: str, path: str, name: str) -> str:
    """The text of a control group's file; empty if there is no such file."""
    cpu, memory = places(cgroups)
    hierarchy = {"cpuacct": cpu, "memory": memory}.get(controller) or cgroups.place(controller)
    try:
        with open(inside(hierarchy, path, name)) as file:
            return file.read()
    except OSError:
        return ""


def inside(hierarchy: Hierarchy | None, path: str, name: str) -> str:
    """The path of a file of a control group."""
    # A missing hierarchy shows when the file is opened.
    return f"{hierarchy.place if hierarchy else '/nonexistent'}/{path.strip('/')}/{name}"


def _usage_nanoseconds(text: bytes) -> int:
    at = text.index(b"usage_usec ") + 11
    return int(text[at : text.index(b"\n", at)]) * 1000


def _number_after(text: bytes, name: bytes) -> int:
    at = text.find(name)
    return int(text[at + len(name) :].split(None, 1)[0]) if at >= 0 else 0


def _own_time(pid: int) -> int:
    """Processor time of a process, by its kernel clock, which is finer than /proc."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def _time_of_children(pid: int) -> int:
    """Processor time of children that the process has reaped."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        after_name = file.read().rpartition(b")")[2].split()
    return (int(after_name[13]) + int(after_name[14])) * JIFFY


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * _MEMORY_PAGE
