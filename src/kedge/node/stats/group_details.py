"""Details of a control group: throttling, page faults, OOM kills, pressure and disk traffic."""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kedge.node.stats.cgroup import Descriptors, GroupSource, inside
from kedge.node.stats.details import NUMBER, OOM_KILLS, PERIODS, THROTTLED, DetailReading
from kedge.supervisor.kernel import processes
from kedge.supervisor.kernel.cgroups import Cgroups, Hierarchy

_READ: Final = NUMBER["disk-read"]
_WRITE: Final = NUMBER["disk-write"]
_READS: Final = NUMBER["disk-reads"]
_WRITES: Final = NUMBER["disk-writes"]
_FAULTS: Final = NUMBER["page-faults"]
_MAJOR: Final = NUMBER["major-page-faults"]
_PRESSURES: Final = tuple(
    (name, NUMBER[f"{name}-pressure-some"], NUMBER.get(f"{name}-pressure-full", -1))
    for name in ("cpu", "memory", "io")
)
_TEXT: Final = 1 << 14
"""Bytes of a file that are read at most: memory.stat is the longest of them."""
_MOST_PROCESSES: Final = 256
"""Processes of a group whose traffic is added up; of a group with more it is unknown. A container
can start thousands of processes, and reading them all would delay everything else."""
_MICRO: Final = 1e-6

_FEW_PROCESSES: Final = 4
"""Processes of a group whose files are kept open: most containers have one or two."""

DetailParser = Callable[[bytes, DetailReading], None]


class DetailFile(NamedTuple):
    """A file of a control group with details."""

    hierarchy: Hierarchy
    name: str
    parse: DetailParser


class GroupDetails:
    """A control group. Fulfils DetailSource."""

    __slots__ = ("_descriptors", "_files", "_kept", "_memory", "_paths", "_traffic")

    def __init__(
        self,
        cgroups: Cgroups,
        path: str,
        kept: Descriptors,
        *,
        memory: GroupSource | None = None,
        pressure_only: bool = False,
    ) -> None:
        """`memory` may have read the same file a moment before. `pressure_only` is for groups of
        groups: v1 does not add up everything else."""
        self._kept = kept
        self._memory = memory
        wanted = _pressure_files(cgroups) if pressure_only else files(cgroups)
        found = [each for each in wanted if _exists(each, path)]
        self._files = [each.parse for each in found]
        self._paths = [inside(each.hierarchy, path, each.name) for each in found]
        self._descriptors: tuple[int, ...] = ()
        listed = "" if pressure_only else _processes_file(cgroups, path)
        self._traffic = ProcessTraffic(listed, kept) if listed else None
        with contextlib.suppress(OSError):
            self._descriptors = kept.open(self._paths)

    def fill(self, found: DetailReading) -> None:
        stat = self._memory.take_stat() if self._memory is not None else b""
        with contextlib.suppress(OSError, ValueError, IndexError):
            for number, parse in enumerate(self._files):
                # Memory that was just read has no file to read again.
                known = stat if parse in _OF_MEMORY else b""
                parse(known or self._read(number), found)
        if self._traffic is not None:
            with contextlib.suppress(OSError, ValueError):
                self._traffic.fill(found)

    def _read(self, number: int) -> bytes:
        if self._descriptors:
            return os.pread(self._descriptors[number], _TEXT, 0)
        return read_once(self._paths[number])

    def close(self) -> None:
        self._kept.close(self._descriptors)
        self._descriptors = ()
        self._paths, self._files = [], []
        if self._traffic is not None:
            self._traffic.close()
            self._traffic = None


class ProcessTraffic:
    """The disk traffic of all processes of a group. Opening a file takes three times as long as
    reading it, so those of groups with few processes stay open while these are the same."""

    __slots__ = ("_kept", "_listed", "_path", "_pids", "_processes")

    def __init__(self, path: str, kept: Descriptors) -> None:
        """`path` is the file that lists the processes of the group."""
        self._kept = kept
        self._path = path
        self._listed: tuple[int, ...] = ()
        self._pids = b""
        """The processes whose files are open."""
        self._processes: tuple[int, ...] = ()
        """Descriptors of their files."""
        with contextlib.suppress(OSError):
            self._listed = kept.open([path])

    def fill(self, found: DetailReading) -> None:
        pids = os.pread(self._listed[0], _TEXT, 0) if self._listed else read_once(self._path)
        if pids != self._pids or not self._processes:
            self._follow(pids)
        try:
            texts = [os.pread(each, _TEXT, 0) for each in self._processes]
        except ProcessLookupError:
            # It has ended just now, or another process has its number.
            self._follow(b"")
            texts = []
        if texts:
            _add_traffic(texts, found)
        else:
            fill_traffic(map(int, pids.split()), found)

    def _follow(self, pids: bytes) -> None:
        self._kept.close(self._processes)
        self._processes, self._pids = (), b""
        numbers = pids.decode().split()
        if 0 < len(numbers) <= _FEW_PROCESSES:
            with contextlib.suppress(OSError):
                self._processes = self._kept.open([f"/proc/{each}/io" for each in numbers])
                self._pids = pids

    def close(self) -> None:
        self._kept.close((*self._listed, *self._processes))
        self._listed = self._processes = ()


class TreeDetails:
    """A process and its descendants, on machines without control groups. Fulfils DetailSource."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = processes.began(pid)

    def fill(self, found: DetailReading) -> None:
        if not self._began or processes.began(self._pid) != self._began:
            return
        tree = processes.tree(self._pid, 2 * _MOST_PROCESSES)
        fill_traffic(tree, found)
        if len(tree) <= _MOST_PROCESSES:
            _fill_faults(tree, found)

    def close(self) -> None:
        pass


def files(cgroups: Cgroups) -> list[DetailFile]:
    """The files with details, as far as the hierarchies of this machine have them."""
    cpu, memory = cgroups.place("cpu"), cgroups.place("memory")
    found = []
    if cpu is not None:
        found.append(DetailFile(cpu, "cpu.stat", _parse_throttling))
    if memory is not None and memory.unified:
        found.append(DetailFile(memory, "memory.stat", _parse_faults))
        found.append(DetailFile(memory, "memory.events", _parse_kills))
    elif memory is not None:
        found.append(DetailFile(memory, "memory.stat", _parse_total_faults))
        found.append(DetailFile(memory, "memory.oom_control", _parse_kills))
    disk = cgroups.place("io")
    if disk is not None:
        found.append(DetailFile(disk, "io.stat", _parse_io))
    return found + _pressure_files(cgroups)


def _pressure_files(cgroups: Cgroups) -> list[DetailFile]:
    # Beside v1 hierarchies too, v2 has the pressure of every group.
    if cgroups.unified is None:
        return []
    return [DetailFile(cgroups.unified, f"{name}.pressure", parse) for name, parse in pressures()]


def _exists(file: DetailFile, path: str) -> bool:
    return os.path.exists(inside(file.hierarchy, path, file.name))


def _processes_file(cgroups: Cgroups, path: str) -> str:
    """cgroup v1 does not count the traffic of a group on current kernels, unless a limit of it was
    set once; and it never counts what is written later than the process asked for it."""
    memory = cgroups.place("memory")
    if memory is None or cgroups.place("io") is not None:
        return ""
    return inside(memory, path, "cgroup.procs")


def read_once(path: str) -> bytes:
    # A file object takes three more system calls.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _TEXT)
    finally:
        os.close(descriptor)


def number_after(text: bytes, name: bytes) -> int:
    """The number after a name; raises ValueError if the text does not have it."""
    begin = text.index(name) + len(name)
    end = text.find(b"\n", begin)
    return int(text[begin : end if end >= 0 else None])


def _parse_throttling(text: bytes, found: DetailReading) -> None:
    if b"nr_periods " in text:
        found[PERIODS] = float(number_after(text, b"nr_periods "))
        found[THROTTLED] = float(number_after(text, b"nr_throttled "))


def _parse_faults(text: bytes, found: DetailReading) -> None:
    found[_FAULTS] = float(number_after(text, b"\npgfault "))
    found[_MAJOR] = float(number_after(text, b"\npgmajfault "))


def _parse_total_faults(text: bytes, found: DetailReading) -> None:
    found[_FAULTS] = float(number_after(text, b"\ntotal_pgfault "))
    found[_MAJOR] = float(number_after(text, b"\ntotal_pgmajfault "))


_OF_MEMORY: Final = (_parse_faults, _parse_total_faults)
"""Parsers of the file that GroupSource reads too."""


def _parse_kills(text: bytes, found: DetailReading) -> None:
    if b"oom_kill " in text:
        found[OOM_KILLS] = float(number_after(text, b"oom_kill "))


def _parse_io(text: bytes, found: DetailReading) -> None:
    totals = dict.fromkeys((b"rbytes", b"wbytes", b"rios", b"wios"), 0)
    for line in text.splitlines():
        for word in line.split()[1:]:
            name, equals, number = word.partition(b"=")
            if equals and name in totals:
                totals[name] += int(number)
    found[_READ], found[_WRITE] = float(totals[b"rbytes"]), float(totals[b"wbytes"])
    found[_READS], found[_WRITES] = float(totals[b"rios"]), float(totals[b"wios"])


def pressure_parser(some: int, full: int) -> DetailParser:
    """A parser of a file of pressure; `full` is negative if that is not used."""

    def parse(text: bytes, found: DetailReading) -> None:
        first, _, second = text.partition(b"\n")
        found[some] = number_after(first, b"total=") * _MICRO
        if full >= 0 and second:
            found[full] = number_after(second, b"total=") * _MICRO

    return parse


def pressures() -> Sequence[tuple[str, DetailParser]]:
    """The names of kinds of pressure, and the parsers of their files."""
    return [(name, pressure_parser(some, full)) for name, some, full in _PRESSURES]


def fill_traffic(pids: Iterable[int], found: DetailReading) -> None:
    """Add up the disk traffic of processes. The kernel adds that of an ended process to the one
    that waits for it, so the sum does not shrink when processes end."""
    texts = []
    for count, pid in enumerate(pids):
        if count >= _MOST_PROCESSES:
            return
        try:
            texts.append(read_once(f"/proc/{pid}/io"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            # The kernel does not show it to this user.
            return
    _add_traffic(texts, found)


def _add_traffic(texts: Iterable[bytes], found: DetailReading) -> None:
    read = written = 0
    for text in texts:
        read += number_after(text, b"read_bytes: ")
        written += number_after(text, b"\nwrite_bytes: ")
    found[_READ], found[_WRITE] = float(read), float(written)


def _fill_faults(pids: Iterable[int], found: DetailReading) -> None:
    minor = major = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            # minflt, cminflt, majflt, cmajflt; the name may have spaces and brackets.
            fields = read_once(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            minor += int(fields[7]) + int(fields[8])
            major += int(fields[9]) + int(fields[10])
    found[_FAULTS], found[_MAJOR] = float(minor + major), float(major)
