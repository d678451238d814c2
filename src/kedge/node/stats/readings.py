"""NodeReadings: the last reading of each container, with details that are read on request."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kedge.api.core_v1.pod.pod import Pod
from kedge.metrics.track import LastReading, Track, UsageReading
from kedge.node.host.machine import MachineInfo, meminfo
from kedge.node.runtime.runtime import RuntimeContainer
from kedge.node.stats import cgroup
from kedge.node.stats.claim_usage import MeasuredClaims, NoClaims
from kedge.node.stats.meters import PodMeter
from kedge.node.stats.sampler import Sampler
from kedge.supervisor.kernel.cgroups import Cgroups

_UNLIMITED: Final = 1 << 62
"""cgroup v1 writes a number above this if there is no limit."""


class CgroupDetails(NamedTuple):
    """Further numbers of a control group; 0 if the kernel does not have them."""

    usage: int = 0
    limit: int = 0
    """Bytes; 0 for none."""
    rss: int = 0
    cache: int = 0
    mapped: int = 0
    swap: int = 0
    peak: int = 0
    failures: int = 0
    """How often the limit was in the way."""
    faults: int = 0
    major_faults: int = 0
    user: int = 0
    """Nanoseconds, as are `system` and `throttled`."""
    system: int = 0
    periods: int = 0
    throttled_periods: int = 0
    throttled: int = 0
    shares: int = 0
    quota: int = 0
    """Microseconds of a period; 0 for no limit."""
    period: int = 0
    processes: int = 0


class InterfaceCounters(NamedTuple):
    """Traffic of a network interface."""

    name: str
    received: int
    receive_packets: int
    receive_errors: int
    receive_drops: int
    sent: int
    send_packets: int
    send_errors: int
    send_drops: int


class ContainerReading(NamedTuple):
    """The last reading of a running container."""

    container: RuntimeContainer
    latest: LastReading


class PodReading(NamedTuple):
    """The last readings of a pod with running containers."""

    pod: Pod
    total: LastReading
    group: str
    containers: list[ContainerReading]

    @property
    def pid(self) -> int:
        """A process in the pod's network."""
        return self.containers[0].container.pid

    @property
    def started(self) -> float:
        return min(each.container.started_at for each in self.containers) / 1e9


class NodeReadings:
    """The current readings."""

    def __init__(
        self,
        sampler: Sampler,
        cgroups: Cgroups | None,
        machine: MachineInfo,
        *,
        node: str,
        state: Path,
        images: Path,
        claims: MeasuredClaims | None = None,
    ) -> None:
        self._sampler = sampler
        self._cgroups = cgroups
        self.machine = machine
        self.node = node
        self.state = state
        """A directory on the file system that pods write to."""
        self.images = images
        self.claims = claims or NoClaims()
        """The usage of mounted claims."""

    def pods(self) -> Iterator[PodReading]:
        for meter in self._sampler.meters.values():
            containers = [
                ContainerReading(container, track.latest)
                for container, track in meter.running()
                if track.latest is not None
            ]
            if containers:
                yield _pod(meter, containers)

    def whole(self) -> LastReading | None:
        """The machine."""
        return self._sampler.node.machine.latest

    def systems(self) -> Iterator[tuple[str, Track]]:
        for name, track in self._sampler.node.systems.items():
            if track.latest is not None:
                yield name, track

    def details(self, path: str) -> CgroupDetails:
        """Details of a control group; all 0 without control groups."""
        groups = self._cgroups
        if groups is None or not path:
            return CgroupDetails()
        memory, cpu = groups.place("memory"), groups.place("cpu")
        of_memory = _memory_v2 if memory is not None and memory.unified else _memory_v1
        of_cpu = _cpu_v2 if cpu is not None and cpu.unified else _cpu_v1
        read = CgroupFiles(groups, path)
        return CgroupDetails(
            **of_memory(read), **of_cpu(read), processes=read.number("pids", "pids.current")
        )


class CgroupFiles:
    """The files of one control group."""

    def __init__(self, cgroups: Cgroups, path: str) -> None:
        self._cgroups = cgroups
        self._path = path

    def fields(self, controller: str, name: str) -> dict[str, int]:
        return cgroup.fields(self._cgroups, controller, self._path, name)

    def words(self, controller: str, name: str) -> list[str]:
        return cgroup.text_of(self._cgroups, controller, self._path, name).split()

    def number(self, controller: str, name: str) -> int:
        """The first in a file; 0 if there is none, or no limit."""
        words = self.words(controller, name)
        value = int(words[0]) if words and words[0].lstrip("-").isdigit() else 0
        return value if 0 < value < _UNLIMITED else 0


def _memory_v1(read: CgroupFiles) -> dict[str, int]:
    stat = read.fields("memory", "memory.stat")
    return {
        "usage": read.number("memory", "memory.usage_in_bytes"),
        "limit": read.number("memory", "memory.limit_in_bytes"),
        "rss": stat.get("total_rss", 0),
        "cache": stat.get("total_cache", 0),
        "mapped": stat.get("total_mapped_file", 0),
        "swap": stat.get("total_swap", 0),
        "peak": read.number("memory", "memory.max_usage_in_bytes"),
        "failures": read.number("memory", "memory.failcnt"),
        "faults": stat.get("total_pgfault", 0),
        "major_faults": stat.get("total_pgmajfault", 0),
    }


def _memory_v2(read: CgroupFiles) -> dict[str, int]:
    stat = read.fields("memory", "memory.stat")
    return {
        "usage": read.number("memory", "memory.current"),
        "limit": read.number("memory", "memory.max"),
        "rss": stat.get("anon", 0),
        "cache": stat.get("file", 0),
        "mapped": stat.get("file_mapped", 0),
        "swap": read.number("memory", "memory.swap.current"),
        "peak": read.number("memory", "memory.peak"),
        "failures": read.fields("memory", "memory.events").get("max", 0),
        "faults": stat.get("pgfault", 0),
        "major_faults": stat.get("pgmajfault", 0),
    }


def _cpu_v1(read: CgroupFiles) -> dict[str, int]:
    stat = read.fields("cpu", "cpu.stat")
    spent = read.fields("cpuacct", "cpuacct.stat")
    return {
        "user": spent.get("user", 0) * cgroup.JIFFY,
        "system": spent.get("system", 0) * cgroup.JIFFY,
        "periods": stat.get("nr_periods", 0),
        "throttled_periods": stat.get("nr_throttled", 0),
        "throttled": stat.get("throttled_time", 0),
        "shares": read.number("cpu", "cpu.shares"),
        "quota": read.number("cpu", "cpu.cfs_quota_us"),
        "period": read.number("cpu", "cpu.cfs_period_us"),
    }


def _cpu_v2(read: CgroupFiles) -> dict[str, int]:
    stat = read.fields("cpu", "cpu.stat")
    words = read.words("cpu", "cpu.max")
    quota, period = [int(each) if each.isdigit() else 0 for each in words] or (0, 0)
    weight = read.number("cpu", "cpu.weight")
    return {
        "user": stat.get("user_usec", 0) * 1000,
        "system": stat.get("system_usec", 0) * 1000,
        "periods": stat.get("nr_periods", 0),
        "throttled_periods": stat.get("nr_throttled", 0),
        "throttled": stat.get("throttled_usec", 0) * 1000,
        # The inverse of how shares become weights; what is left of rounding does not matter here.
        "shares": 2 + (weight - 1) * 262_142 // 9_999 if weight else 0,
        "quota": quota,
        "period": period,
    }


def interfaces(pid: int | str) -> list[InterfaceCounters]:
    """Traffic of the interfaces that a process sees, without loopback."""
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    except OSError:
        return []
    found = []
    for line in lines:
        name, _, rest = line.partition(":")
        numbers = [int(each) for each in rest.split()]
        if name.strip() != "lo" and len(numbers) >= 12:
            found.append(InterfaceCounters(name.strip(), *numbers[:4], *numbers[8:12]))
    return found


def default_interface() -> str:
    """The one that leads away from this machine; empty if there is none."""
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        name, destination, *_ = line.split()
        if destination == "00000000":
            return name
    return ""


def memory_of_machine() -> dict[str, int]:
    """The fields of /proc/meminfo, in bytes."""
    return meminfo(Path("/proc/meminfo").read_text())


def began() -> float:
    """The start of the machine, in seconds since the epoch."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def _pod(meter: PodMeter, containers: list[ContainerReading]) -> PodReading:
    total = meter.total.latest if meter.total is not None else None
    if total is None or total.time < containers[0].latest.time:
        total = _added([each.latest for each in containers])
    group = os.path.dirname(containers[0].container.cgroup)
    return PodReading(meter.pod, total, group, containers)


def _added(parts: list[LastReading]) -> LastReading:
    readings = [each.reading for each in parts]
    whole = UsageReading(sum(each.cpu for each in readings), sum(each.memory for each in readings))
    return LastReading(parts[0].time, whole, sum(max(0.0, each.cores) for each in parts))
