"""Meters of a pod and its containers, and of the node and its daemons."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.clock import Clock, machine_clock
from kedge.metrics.detail_windows import NONE_KNOWN
from kedge.metrics.track import Track, UsageReading
from kedge.metrics.window_file import TrackKey, WindowFile
from kedge.metrics.windows import TICK_SECONDS
from kedge.node.pod.runtime_cache import EMPTY, PodRuntimeState
from kedge.node.runtime.runtime import RunState, RuntimeContainer
from kedge.node.stats import network
from kedge.node.stats.cgroup import (
    Descriptors,
    GroupSource,
    MachineSource,
    ProcessSource,
    TreeSource,
    UsageSource,
)
from kedge.node.stats.details import INODES, OOM_KILLS, STORAGE, DetailMeter, DetailSource, added
from kedge.node.stats.disk_usage import DiskKey, DiskTotals, NoDiskTotals
from kedge.node.stats.group_details import GroupDetails, TreeDetails
from kedge.node.stats.machine_details import MachineDetails
from kedge.node.stats.node_share import NodeShareSource
from kedge.supervisor.kernel import processes
from kedge.supervisor.kernel.cgroups import Cgroups

MACHINE: Final = "machine"
KUBELET: Final = "kubelet"
RUNTIME: Final = "runtime"
MISC: Final = "misc"
PODS: Final = "pods"
SYSTEMS: Final = (KUBELET, RUNTIME, MISC, PODS)
"""The system containers of the kubelet's summary."""
_OVER: Final = ("Succeeded", "Failed")
_RUNS: Final = 1 << 62
_NEW: Final = 10
"""Seconds after the start of a container in which its first reading counts from the start."""


class UsageSources:
    """Makes the source for each thing, depending on the control groups of this machine."""

    def __init__(
        self,
        cgroups: Cgroups | None,
        root: str,
        siblings: Callable[[], Sequence[str]],
        *,
        state: str = "/",
        disk: DiskTotals | None = None,
    ) -> None:
        """Without control groups, sources read processes; `root` is the group of all pods, and
        `siblings` returns the groups that other nodes of this machine may have. `state` is on the
        file system that pods write to; `disk` has what they have written."""
        self._cgroups = cgroups
        self._root = root
        self._siblings = siblings
        self._state = state
        self.disk = disk or NoDiskTotals()
        self._kept = Descriptors()

    def of_container(self, container: RuntimeContainer) -> UsageSource:
        if self._cgroups is not None and container.cgroup:
            group = GroupSource(self._cgroups, container.cgroup, self._kept)
            if group.read() is not None:
                return group
        return TreeSource(container.pid)

    def of_pod(self, container: RuntimeContainer) -> UsageSource | None:
        """The source of a container's pod; None if its containers must be added up."""
        if self._cgroups is None or not container.cgroup:
            return None
        return GroupSource(self._cgroups, os.path.dirname(container.cgroup), self._kept)

    def of_pods(self) -> UsageSource | None:
        if self._cgroups is None:
            return None
        return GroupSource(self._cgroups, self._root, self._kept)

    def details_of_container(
        self, container: RuntimeContainer, source: UsageSource | None = None
    ) -> DetailSource:
        """Details of a container; `source` is that of its usage."""
        if self._cgroups is not None and container.cgroup:
            memory = source if isinstance(source, GroupSource) else None
            return GroupDetails(self._cgroups, container.cgroup, self._kept, memory=memory)
        return TreeDetails(container.pid)

    def details_of_pod(self, container: RuntimeContainer) -> DetailSource | None:
        """Details of a container's pod that those of its containers do not add up to."""
        if self._cgroups is None or not container.cgroup:
            return None
        return GroupDetails(
            self._cgroups, os.path.dirname(container.cgroup), self._kept, pressure_only=True
        )

    def details_of_pods(self) -> DetailSource | None:
        if self._cgroups is None:
            return None
        return GroupDetails(self._cgroups, self._root, self._kept, pressure_only=True)

    def details_of_machine(self) -> DetailSource:
        return MachineDetails(self._state)

    def of_machine(self) -> UsageSource:
        """The source of the node: of the machine, or of a share of it among several nodes."""
        groups, machine = self._cgroups, MachineSource(self._cgroups)
        if groups is None:
            return machine

        def group(path: str) -> UsageSource:
            return GroupSource(groups, path, self._kept)

        return NodeShareSource(machine, group(self._root), self._siblings, group)


class UsageMeter:
    """One measured thing: its track, and the source of its readings."""

    __slots__ = ("details", "run", "source", "track")

    def __init__(self, track: Track) -> None:
        self.track = track
        self.source: UsageSource | None = None
        self.run = 0
        self.details = DetailMeter()

    def read_from(self, source: UsageSource | None, run: int) -> None:
        if self.source is not None:
            self.source.close()
        self.details.read_from()
        self.source, self.run = source, run

    def sample(self, second: int, clock: Clock) -> None:
        source = self.source
        reading = None if source is None else source.read()
        if isinstance(source, NodeShareSource):
            self.run = source.run
        if reading is None:
            self.track.skip(second)
        else:
            self.track.sample(second, clock.monotonic(), self.run, reading)

    def detail_values(self, now: float) -> Sequence[float]:
        """The values of its details in the tick that ends now."""
        if self.source is None:
            return NONE_KNOWN
        latest = self.track.latest
        return self.details.values(now, latest.reading.cpu if latest is not None else -1)


class TrackIndex:
    """The tracks in a window file, by pod."""

    def __init__(self, windows: WindowFile, clock: Clock) -> None:
        self._windows = windows
        self.clock = clock
        self._by_pod: dict[str, list[TrackKey]] = {}
        for slot in windows:
            self._by_pod.setdefault(slot.key.uid, []).append(slot.key)

    def of(self, uid: str) -> Mapping[str, Track]:
        """The existing tracks of a pod, by container."""
        keys = self._by_pod.get(uid, ())
        return {key.container: self._opened(key) for key in keys}

    def uids(self) -> list[str]:
        return list(self._by_pod)

    def begin(self, key: TrackKey) -> Track:
        """A new track without data."""
        self._windows.claim(key)
        self._by_pod.setdefault(key.uid, []).append(key)
        return self._opened(key)

    def fork(self, key: TrackKey, other: Track) -> Track:
        """A new track with the data of another."""
        slot = self._windows.claim(key)
        slot.take_over(other.slot)
        self._by_pod.setdefault(key.uid, []).append(key)
        return Track(slot, 0, same_boot=False)

    def forget(self, uid: str) -> None:
        for key in self._by_pod.pop(uid, ()):
            self._windows.release(key)

    def _opened(self, key: TrackKey) -> Track:
        slot = self._windows.get(key)
        assert slot is not None
        second = int(self.clock.now().timestamp())
        track = Track(slot, (second - 1) // TICK_SECONDS, same_boot=self._windows.same_boot)
        if max(track.tick * TICK_SECONDS, track.since) > second:
            track.move(second)
        track.settle(second)
        return track


class PodMeter:
    """A pod: meters of its containers, and one of the total if there are several."""

    __slots__ = (
        "_book",
        "_kills",
        "_network",
        "_sources",
        "_total",
        "containers",
        "over",
        "pod",
        "seen",
    )

    def __init__(self, pod: Pod, book: TrackIndex, sources: UsageSources) -> None:
        self.pod = pod
        self._book = book
        self._sources = sources
        self.seen: PodRuntimeState = EMPTY
        """Its containers when `see` was last called."""
        known = dict(book.of(pod.metadata.uid))
        total = known.pop("", None)
        self.containers = {name: UsageMeter(track) for name, track in known.items()}
        self._put_in_order()
        self._total = UsageMeter(total) if total is not None else None
        self._network = PodTraffic()
        self._kills = OomKills(book.clock)
        self.over = self._is_over()
        """Whether the pod has ended and its last tick is closed."""

    @property
    def total(self) -> Track | None:
        """The track of the whole pod; None before its first container runs."""
        if self._total is not None:
            return self._total.track
        return next((meter.track for meter in self.containers.values()), None)

    def see(self, pod: Pod, observed: PodRuntimeState) -> None:
        """Follow the containers of the pod."""
        self.pod = pod
        if observed is self.seen:
            return
        self.seen = observed
        running = {
            name: newest[0]
            for name, newest in observed.by_name.items()
            if newest[0].state is RunState.RUNNING
        }
        for name in self.containers.keys() - running.keys():
            self.containers[name].read_from(None, 0)
        known = len(self.containers)
        for name, container in running.items():
            meter = self.containers.get(name) or self._begin(name, container)
            if meter.run != container.started_at:
                meter.read_from(self._sources.of_container(container), container.started_at)
                self._read_details(meter, container)
        self._kills.see(observed.containers)
        self._network.see(running)
        if len(self.containers) > known:
            self._put_in_order()
        self.over = self._is_over()
        self._see_total(next(iter(running.values()), None))

    def meters(self) -> list[UsageMeter]:
        """All its meters, the total last; none if the pod has ended."""
        if self.over:
            return []
        return [*self.containers.values(), *([self._total] if self._total is not None else ())]

    def close(self, tick: int) -> bool:
        """End a tick; returns whether the pod has ended with it."""
        if self.over:
            return False
        now = self._book.clock.monotonic()
        values = {name: self._detail_values(name, now) for name in self.containers}
        of_pod = self._with_disk("", self._network.values(now))
        if self._total is not None:
            whole = added([self._total.detail_values(now), of_pod])
            self._total.track.close(tick, added(values.values(), whole))
        for name, meter in self.containers.items():
            own = values[name]
            meter.track.close(tick, own if self._total is not None else added([own, of_pod]))
        self.over = self._is_over()
        return self.over

    def _read_details(self, meter: UsageMeter, container: RuntimeContainer) -> None:
        meter.details.read_from(self._sources.details_of_container(container, meter.source))
        age = self._age(container.started_at)
        if 0 <= age < _NEW:
            meter.details.start_from(self._book.clock.monotonic() - age)

    def _detail_values(self, name: str, now: float) -> Sequence[float]:
        values = self.containers[name].detail_values(now)
        killed = self._kills.take(name)
        if killed:
            values = list(values)
            values[OOM_KILLS] = max(values[OOM_KILLS], 0.0) + killed / TICK_SECONDS
        return self._with_disk(name, values)

    def _with_disk(self, container: str, values: Sequence[float]) -> Sequence[float]:
        """The values with the disk usage of a container; of the pod itself without a name."""
        total = self._sources.disk.of(DiskKey(self.pod.metadata.uid, container))
        if total is None:
            return values
        found = list(values)
        found[STORAGE], found[INODES] = float(total.bytes), float(total.inodes)
        return found

    def _age(self, began: int) -> float:
        """Seconds since a run began."""
        return machine_clock(self._book.clock).now().timestamp() - began / 1e9

    def _is_over(self) -> bool:
        idle = all(meter.source is None for meter in self.containers.values())
        pending = any(track.pending for track in self.tracks())
        return idle and not pending and self.pod.status.phase in _OVER

    def running(self) -> Iterator[tuple[RuntimeContainer, Track]]:
        """Running containers that have a reading."""
        for name, meter in self.containers.items():
            container = self.seen.newest(name)
            if meter.source is not None and meter.track.latest is not None and container:
                yield container, meter.track

    def tracks(self) -> Iterator[Track]:
        for meter in self.containers.values():
            yield meter.track
        if self._total is not None:
            yield self._total.track

    def end(self) -> None:
        """Close all sources: the pod is gone, or the agent stops."""
        self._network.close()
        for meter in (*self.containers.values(), *([self._total] if self._total else ())):
            meter.read_from(None, 0)

    def _put_in_order(self) -> None:
        """Sort containers as the pod lists them; init and ephemeral containers come last."""
        order = {each.name: number for number, each in enumerate(self.pod.spec.containers)}
        by_place = sorted(self.containers, key=lambda name: order.get(name, len(order)))
        self.containers = {name: self.containers[name] for name in by_place}

    def _begin(self, name: str, container: RuntimeContainer) -> UsageMeter:
        track = self._book.begin(TrackKey(self.pod.metadata.uid, name))
        self._start(track, container.started_at, container.started_at)
        meter = self.containers[name] = UsageMeter(track)
        return meter

    def _start(self, track: Track, run: int, began: int) -> None:
        """Count a run that began just now from its start."""
        age = self._age(began)
        if 0 <= age < _NEW:
            track.start_from(run, self._book.clock.monotonic() - age)

    def _see_total(self, running: RuntimeContainer | None) -> None:
        """Follow the total; `running` is any running container."""
        if running is None:
            return
        begins = self._total is None and self._has_several()
        if begins:
            self._total = UsageMeter(self._begin_total())
        if self._total is None:
            return
        source = self._sources.of_pod(running)
        if source is None:
            meters = [meter for meter in self.containers.values() if meter.source is not None]
            # Whenever a container starts or ends, the sum is a new run.
            self._total.read_from(SumSource(meters), _run_of(meters))
        elif self._total.source is None:
            self._total.read_from(source, 1)
            details = self._sources.details_of_pod(running)
            self._total.details.read_from(*([details] if details is not None else ()))
        if begins and not self._total.track.since:
            self._start(self._total.track, self._total.run, self._began())

    def _has_several(self) -> bool:
        """Whether the pod has several containers, or will have."""
        spec = self.pod.spec
        return max(len(self.containers), len(spec.initContainers) + len(spec.containers)) > 1

    def _begin_total(self) -> Track:
        """The track of the total. Until the second container starts it equals that of the first."""
        key = TrackKey(self.pod.metadata.uid, "")
        measured = [meter.track for meter in self.containers.values() if meter.track.since]
        if not measured:
            return self._book.begin(key)
        return self._book.fork(key, min(measured, key=lambda track: track.since))

    def _began(self) -> int:
        """When its first container was started; 0 if others ran before, because the pod's group has
        counted these as well."""
        seen = self.seen
        attempts = [each.attempt for each in seen.sandboxes]
        if any(attempts) or any(each.attempt for each in seen.containers):
            return 0
        return min((each.started_at for each in seen.containers if each.started_at), default=0)


class PodTraffic:
    """The traffic of a pod: that of the network of any of its containers."""

    def __init__(self) -> None:
        self._meter = DetailMeter()
        self._pid = 0

    def see(self, running: Mapping[str, RuntimeContainer]) -> None:
        """Follow the pod's containers."""
        pids = [each.pid for each in running.values() if each.pid]
        if not pids:
            self.close()
        elif not self._pid:
            # The network is that of the pod: it stays the same when its containers start again.
            source = network.of_process(pids[0])
            if source is not None:
                self._pid = pids[0]
                self._meter.read_from(source)

    def values(self, now: float) -> Sequence[float]:
        return self._meter.values(now, -1) if self._pid else NONE_KNOWN

    def close(self) -> None:
        self._meter.read_from()
        self._pid = 0


class OomKills:
    """Containers of a pod whose first process was killed for lack of memory. Their control group is
    gone by then, so it cannot be asked."""

    def __init__(self, clock: Clock) -> None:
        self._since = int(machine_clock(clock).now().timestamp() * 1e9)
        self._seen: set[str] = set()
        self._new: dict[str, int] = {}

    def see(self, containers: Iterable[RuntimeContainer]) -> None:
        killed = [each for each in containers if each.reason == "OOMKilled"]
        for each in killed:
            if each.id not in self._seen and each.finished_at > self._since:
                self._new[each.name] = self._new.get(each.name, 0) + 1
        self._seen = {each.id for each in killed}

    def take(self, container: str) -> int:
        """How many there were since this was last called."""
        return self._new.pop(container, 0)


class SumSource:
    """The sum of several meters that were sampled just before. Fulfils UsageSource."""

    def __init__(self, meters: list[UsageMeter]) -> None:
        self._meters = meters

    def read(self) -> UsageReading | None:
        latest = [meter.track.latest for meter in self._meters]
        found = [each.reading for each in latest if each is not None]
        if not found or len(found) < len(latest):
            return None
        return UsageReading(sum(each.cpu for each in found), sum(each.memory for each in found))

    def close(self) -> None:
        pass


class NodeMeter:
    """Meters of the machine and of its system containers."""

    def __init__(self, book: TrackIndex, sources: UsageSources, runtime: Callable[[], int]) -> None:
        """`runtime` returns the current process that runs containers; 0 if there is none."""
        known = book.of("")
        self._meters = {
            name: UsageMeter(known.get(name) or book.begin(TrackKey("", name)))
            for name in (MACHINE, *SYSTEMS)
        }
        self._runtime = runtime
        self._runtime_pid = 0
        self._misc = 0
        """The largest value so far of the time that the rest of the machine has used."""
        self._meters[MACHINE].read_from(sources.of_machine(), 1)
        self._meters[KUBELET].read_from(ProcessSource(os.getpid()), processes.began(os.getpid()))
        self._meters[PODS].read_from(sources.of_pods(), 1)
        self._details = DetailMeter()
        self._details.read_from(sources.details_of_machine(), network.of_machine())
        self._pods_details = DetailMeter()
        if (details := sources.details_of_pods()) is not None:
            self._pods_details.read_from(details)

    @property
    def machine(self) -> Track:
        return self._meters[MACHINE].track

    @property
    def systems(self) -> dict[str, Track]:
        return {name: self._meters[name].track for name in SYSTEMS}

    def sample(self, second: int, clock: Clock, pods: Iterator[UsageMeter]) -> None:
        """Sample everything; call it after the pods were sampled."""
        if self._runtime() != self._runtime_pid:
            self._runtime_pid = self._runtime()
            source = ProcessSource(self._runtime_pid) if self._runtime_pid else None
            self._meters[RUNTIME].read_from(source, processes.began(self._runtime_pid))
        if not isinstance(self._meters[PODS].source, GroupSource):
            running = [meter for meter in pods if meter.source is not None]
            self._meters[PODS].read_from(SumSource(running), _run_of(running))
        for name in (MACHINE, KUBELET, RUNTIME, PODS):
            self._meters[name].sample(second, clock)
        self._rest(second, clock)

    def _rest(self, second: int, clock: Clock) -> None:
        whole, *parts = (self._meters[name] for name in (MACHINE, KUBELET, RUNTIME, PODS))
        misc = self._meters[MISC].track
        measured = [meter for meter in parts if _fresh(meter, second)]
        if not _fresh(whole, second):
            misc.skip(second)
            return
        readings = [meter.track.latest.reading for meter in measured if meter.track.latest]
        assert whole.track.latest is not None
        cpu, memory = whole.track.latest.reading
        rest = cpu - sum(each.cpu for each in readings)
        run = _run_of([whole, *measured])
        # The parts are read a moment after the whole, so the rest may seem to shrink.
        self._misc = max(self._misc, rest) if run == self._meters[MISC].run else max(0, rest)
        self._meters[MISC].run = run
        reading = UsageReading(self._misc, max(0, memory - sum(each.memory for each in readings)))
        misc.sample(second, clock.monotonic(), run, reading)

    def close(self, tick: int, now: float) -> None:
        values = {
            MACHINE: self._details.values(now, -1),
            PODS: self._pods_details.values(now, -1),
        }
        for name, meter in self._meters.items():
            meter.track.close(tick, values.get(name, NONE_KNOWN))

    def tracks(self) -> Iterator[Track]:
        for meter in self._meters.values():
            yield meter.track

    def end(self) -> None:
        self._details.read_from()
        self._pods_details.read_from()
        for meter in self._meters.values():
            meter.read_from(None, 0)


def _fresh(meter: UsageMeter, second: int) -> bool:
    latest = meter.track.latest
    return latest is not None and latest.time == second


def _run_of(meters: list[UsageMeter]) -> int:
    """A number that changes with the run of any of them."""
    return sum(meter.run for meter in meters) % _RUNS
