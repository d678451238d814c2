"""Meters: what is measured of one pod, and of the node around its pods."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.clock import Clock
from kedge.metrics.track import Reading, Track
from kedge.metrics.window_file import TrackKey, WindowFile
from kedge.metrics.windows import TICK_SECONDS
from kedge.node.pod.runtime_cache import EMPTY, PodRuntimeState
from kedge.node.runtime.runtime import RunState, RuntimeContainer
from kedge.node.stats.cgroup import (
    Descriptors,
    GroupSource,
    MachineSource,
    ProcessSource,
    TreeSource,
    UsageSource,
)
from kedge.supervisor.kernel import processes
from kedge.supervisor.kernel.cgroups import Cgroups

MACHINE: Final = "machine"
KUBELET: Final = "kubelet"
RUNTIME: Final = "runtime"
MISC: Final = "misc"
PODS: Final = "pods"
SYSTEMS: Final = (KUBELET, RUNTIME, MISC, PODS)
"""As upstream's nodes call them."""
_OVER: Final = ("Succeeded", "Failed")
_RUNS: Final = 1 << 62
_NEW: Final = 10
"""Seconds for which what a container has used since it began counts as used just now."""


class UsageSources:
    """Finds out how something can be measured on this machine."""

    def __init__(self, cgroups: Cgroups | None, root: str) -> None:
        """Without control groups, processes are counted; `root` is the group of all pods."""
        self._cgroups = cgroups
        self._root = root
        self._kept = Descriptors()

    def of_container(self, container: RuntimeContainer) -> UsageSource:
        if self._cgroups is not None and container.cgroup:
            group = GroupSource(self._cgroups, container.cgroup, self._kept)
            if group.read() is not None:
                return group
        return TreeSource(container.pid)

    def of_pod(self, container: RuntimeContainer) -> UsageSource | None:
        """Of the pod of a container; None if its containers must be added up."""
        if self._cgroups is None or not container.cgroup:
            return None
        return GroupSource(self._cgroups, os.path.dirname(container.cgroup), self._kept)

    def of_pods(self) -> UsageSource | None:
        if self._cgroups is None:
            return None
        return GroupSource(self._cgroups, self._root, self._kept)

    def of_machine(self) -> UsageSource:
        return MachineSource(self._cgroups)


class UsageMeter:
    """One thing that is measured: what remembers it, and where it is read."""

    __slots__ = ("run", "source", "track")

    def __init__(self, track: Track) -> None:
        self.track = track
        self.source: UsageSource | None = None
        self.run = 0

    def read_from(self, source: UsageSource | None, run: int) -> None:
        if self.source is not None:
            self.source.close()
        self.source, self.run = source, run

    def sample(self, second: int, clock: Clock) -> None:
        source = self.source
        reading = None if source is None else source.read()
        if reading is None:
            self.track.skip(second)
        else:
            self.track.sample(second, clock.monotonic(), self.run, reading)


class TrackIndex:
    """Tracks by key, as the store has them."""

    def __init__(self, store: WindowFile, clock: Clock) -> None:
        self._store = store
        self.clock = clock
        self._by_pod: dict[str, list[TrackKey]] = {}
        for slot in store:
            self._by_pod.setdefault(slot.key.uid, []).append(slot.key)

    def of(self, uid: str) -> Mapping[str, Track]:
        """What is known already of a pod, by container."""
        keys = self._by_pod.get(uid, ())
        return {key.container: self._opened(key) for key in keys}

    def uids(self) -> list[str]:
        return list(self._by_pod)

    def begin(self, key: TrackKey) -> Track:
        """A track of which nothing is known."""
        self._store.claim(key)
        self._by_pod.setdefault(key.uid, []).append(key)
        return self._opened(key)

    def fork(self, key: TrackKey, other: Track) -> Track:
        """A track that knows what another knows."""
        slot = self._store.claim(key)
        slot.take_over(other.slot)
        self._by_pod.setdefault(key.uid, []).append(key)
        return Track(slot, 0, same_boot=False)

    def forget(self, uid: str) -> None:
        for key in self._by_pod.pop(uid, ()):
            self._store.release(key)

    def _opened(self, key: TrackKey) -> Track:
        slot = self._store.get(key)
        assert slot is not None
        second = int(self.clock.now().timestamp())
        track = Track(slot, (second - 1) // TICK_SECONDS, same_boot=self._store.same_boot)
        if max(track.tick * TICK_SECONDS, track.since) > second:
            track.move(second)
        track.settle(second)
        return track


class PodMeter:
    """A pod: its containers, and their total once they are several."""

    __slots__ = ("_book", "_sources", "_total", "containers", "over", "pod", "seen")

    def __init__(self, pod: Pod, book: TrackIndex, sources: UsageSources) -> None:
        self.pod = pod
        self._book = book
        self._sources = sources
        self.seen: PodRuntimeState = EMPTY
        """What of it there was when somebody last looked."""
        known = dict(book.of(pod.metadata.uid))
        total = known.pop("", None)
        self.containers = {name: UsageMeter(track) for name, track in known.items()}
        self._put_in_order()
        self._total = UsageMeter(total) if total is not None else None
        self.over = self._is_over()
        """Nothing of it will ever run again, and its last tick is closed."""

    @property
    def total(self) -> Track | None:
        """What the pod uses as a whole; None before anything of it has run."""
        if self._total is not None:
            return self._total.track
        return next((meter.track for meter in self.containers.values()), None)

    def see(self, pod: Pod, observed: PodRuntimeState) -> None:
        """What there is of the pod now."""
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
        if len(self.containers) > known:
            self._put_in_order()
        self.over = self._is_over()
        self._see_total(next(iter(running.values()), None))

    def meters(self) -> list[UsageMeter]:
        """All that is measured of it, the total after its parts; nothing if it is over."""
        if self.over:
            return []
        return [*self.containers.values(), *([self._total] if self._total is not None else ())]

    def close(self, tick: int) -> bool:
        """A tick has ended; returns whether the pod is over with it."""
        if self.over:
            return False
        for track in self.tracks():
            track.close(tick)
        self.over = self._is_over()
        return self.over

    def _is_over(self) -> bool:
        idle = all(meter.source is None for meter in self.containers.values())
        pending = any(track.pending for track in self.tracks())
        return idle and not pending and self.pod.status.phase in _OVER

    def running(self) -> Iterator[tuple[RuntimeContainer, Track]]:
        """The containers that run and have been measured."""
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
        """The pod is gone, or the agent goes."""
        for meter in (*self.containers.values(), *([self._total] if self._total else ())):
            meter.read_from(None, 0)

    def _put_in_order(self) -> None:
        """As the pod names its containers; those that prepare it or look into it come last."""
        order = {each.name: number for number, each in enumerate(self.pod.spec.containers)}
        by_place = sorted(self.containers, key=lambda name: order.get(name, len(order)))
        self.containers = {name: self.containers[name] for name in by_place}

    def _begin(self, name: str, container: RuntimeContainer) -> UsageMeter:
        track = self._book.begin(TrackKey(self.pod.metadata.uid, name))
        self._start(track, container.started_at, container.started_at)
        meter = self.containers[name] = UsageMeter(track)
        return meter

    def _start(self, track: Track, run: int, began: int) -> None:
        """What began just now counts from then on."""
        clock = self._book.clock
        age = clock.now().timestamp() - began / 1e9
        if 0 <= age < _NEW:
            track.start_from(run, clock.monotonic() - age)

    def _see_total(self, running: RuntimeContainer | None) -> None:
        """`running` is any of its containers that runs; None if there is none."""
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
            # Whenever one of them begins or ends, the sum begins anew.
            self._total.read_from(SumSource(meters), _run_of(meters))
        elif self._total.source is None:
            self._total.read_from(source, 1)
        if begins and not self._total.track.since:
            self._start(self._total.track, self._total.run, self._began())

    def _has_several(self) -> bool:
        """Whether there are several containers, or will be."""
        spec = self.pod.spec
        return max(len(self.containers), len(spec.initContainers) + len(spec.containers)) > 1

    def _begin_total(self) -> Track:
        """What was used before a second container came, the one used that had been there."""
        key = TrackKey(self.pod.metadata.uid, "")
        measured = [meter.track for meter in self.containers.values() if meter.track.since]
        if not measured:
            return self._book.begin(key)
        return self._book.fork(key, min(measured, key=lambda track: track.since))

    def _began(self) -> int:
        """When the first of its containers was started; 0 if there were others before, of which
        the pod's group has counted what nobody knows the time of."""
        seen = self.seen
        attempts = [each.attempt for each in seen.sandboxes]
        if any(attempts) or any(each.attempt for each in seen.containers):
            return 0
        return min((each.started_at for each in seen.containers if each.started_at), default=0)


class SumSource:
    """What several things have used that were measured just before. Fulfils UsageSource."""

    def __init__(self, meters: list[UsageMeter]) -> None:
        self._meters = meters

    def read(self) -> Reading | None:
        latest = [meter.track.latest for meter in self._meters]
        found = [each.reading for each in latest if each is not None]
        if not found or len(found) < len(latest):
            return None
        return Reading(sum(each.cpu for each in found), sum(each.memory for each in found))

    def close(self) -> None:
        pass


class NodeMeter:
    """The machine, and what of it is neither a pod nor unknown."""

    def __init__(self, book: TrackIndex, sources: UsageSources, runtime: Callable[[], int]) -> None:
        """`runtime` is the process that runs containers, as it is now; 0 if there is none."""
        known = book.of("")
        self._meters = {
            name: UsageMeter(known.get(name) or book.begin(TrackKey("", name)))
            for name in (MACHINE, *SYSTEMS)
        }
        self._runtime = runtime
        self._runtime_pid = 0
        self._misc = 0
        """What the rest has used, as far as it has ever been seen to have."""
        self._meters[MACHINE].read_from(sources.of_machine(), 1)
        self._meters[KUBELET].read_from(ProcessSource(os.getpid()), processes.began(os.getpid()))
        self._meters[PODS].read_from(sources.of_pods(), 1)

    @property
    def machine(self) -> Track:
        return self._meters[MACHINE].track

    @property
    def systems(self) -> dict[str, Track]:
        return {name: self._meters[name].track for name in SYSTEMS}

    def sample(self, second: int, clock: Clock, pods: Iterator[UsageMeter]) -> None:
        """After the pods have been."""
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
        run = _run_of(measured)
        # The parts are read a moment after the whole: a rest that shrinks has not changed.
        self._misc = max(self._misc, rest) if run == self._meters[MISC].run else rest
        self._meters[MISC].run = run
        reading = Reading(self._misc, max(0, memory - sum(each.memory for each in readings)))
        misc.sample(second, clock.monotonic(), run, reading)

    def close(self, tick: int) -> None:
        for track in self.tracks():
            track.close(tick)

    def tracks(self) -> Iterator[Track]:
        for meter in self._meters.values():
            yield meter.track

    def end(self) -> None:
        for meter in self._meters.values():
            meter.read_from(None, 0)


def _fresh(meter: UsageMeter, second: int) -> bool:
    latest = meter.track.latest
    return latest is not None and latest.time == second


def _run_of(meters: list[UsageMeter]) -> int:
    """A number that changes whenever one of them begins anew."""
    return sum(meter.run for meter in meters) % _RUNS
