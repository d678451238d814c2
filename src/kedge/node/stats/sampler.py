"""Sampler: reads all counters each second, and makes frames of the windows at each tick."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.clock import Clock
from kedge.metrics.frame import Frame, FrameContainer, FramePod
from kedge.metrics.track import Track
from kedge.metrics.window_file import WindowFile
from kedge.metrics.windows import TICK_SECONDS
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.stats.claim_meters import ClaimMeters
from kedge.node.stats.claim_usage import MeasuredClaims, NoClaims
from kedge.node.stats.disk_usage import DiskKey, DiskSubject
from kedge.node.stats.meters import NodeMeter, PodMeter, TrackIndex, UsageMeter, UsageSources
from kedge.node.stats.panel import Panels
from kedge.node.stats.rows import Rows

log = logging.getLogger(__name__)

_EARLY: Final = 0.02
"""Seconds by which a timer may fire early."""
_PATIENCE: Final = 60
"""Steps back of the clock up to these seconds are waited for."""


class PodSource(Protocol):
    """The pods of this node (kedge.node.pod.workers)."""

    def pods(self) -> list[Pod]: ...

    def version(self) -> tuple[int, int]:
        """A value that changes with every pod or container that starts or ends."""
        ...

    def observed(self, uid: str) -> PodRuntimeState: ...


class DiskPlaces(Protocol):
    """The directories that pods write to."""

    def of_containers(self, observed: PodRuntimeState) -> Mapping[str, Sequence[Path]]:
        """Layers and logs, by container."""
        ...

    def of_pod(self, pod: Pod, observed: PodRuntimeState) -> tuple[Sequence[Path], Sequence[Path]]:
        """Volumes, and directories with small files of the pod."""
        ...


class Sampler:
    """Its owner calls `run`."""

    def __init__(
        self,
        store: WindowFile,
        pods: PodSource,
        sources: UsageSources,
        clock: Clock,
        *,
        runtime: Callable[[], int],
        claims: MeasuredClaims | None = None,
    ) -> None:
        """`runtime` returns the current process that runs containers; 0 if there is none. `claims`
        has the usage of mounted claims."""
        self._store = store
        self._pods = pods
        self._sources = sources
        self._clock = clock
        self._tracks_by_key = TrackIndex(store, clock)
        self.node = NodeMeter(self._tracks_by_key, sources, runtime)
        self.claims = ClaimMeters(claims or NoClaims(), self._tracks_by_key)
        self.meters: dict[str, PodMeter] = {}
        """By uid."""
        self._panels: Panels | None = None
        """Everything that is read each second; None if it must be put together again."""
        self._version = (-1, 0)
        """The version of the pods that the meters follow."""
        # The agent before this one may have measured this very second, and closed its tick.
        self._second = self.node.machine.second
        self._tick = 0
        self._published: dict[str, set[str]] = {}
        """The containers that have been in a frame, by the uid of their pod."""
        self._waiting: list[asyncio.Future[int]] = []

    async def run(self) -> None:
        """Sample until cancelled."""
        try:
            while True:
                self.take(await self._next_second())
        finally:
            self.node.end()
            for meter in self.meters.values():
                meter.end()
            self._store.close()

    async def next_tick(self) -> int:
        """Wait for the end of the next tick and return it."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return await future

    async def _next_second(self) -> int:
        due = int(self._clock.now().timestamp() + _EARLY) + 1
        while True:
            now = self._clock.now().timestamp()
            if not due - 1 - _EARLY <= now < due - _EARLY:
                return int(now + _EARLY)
            await self._clock.sleep(due - now)

    def take(self, second: int) -> None:
        """Measure everything for this second."""
        if second <= self._second:
            if self._second - second < _PATIENCE:
                return
            self._set_back(second)
        if second != self._second + 1:
            self._panels = None
        self._second = second
        self._close((second - 1) // TICK_SECONDS)
        self._see()
        if self._panels is None:
            self._panels = Panels(meter for pod in self.meters.values() for meter in pod.meters())
        if not self._panels.sample(second, self._clock):
            self._panels = None
        self.node.sample(second, self._clock, self._running())
        if second % TICK_SECONDS == 0:
            self._close(second // TICK_SECONDS)

    def _close(self, tick: int) -> None:
        """End a tick, if that has not been done."""
        if tick <= self._tick:
            return
        begun = self._tick
        self._tick = tick
        if not begun:
            # A tick that the last agent left open is closed with the next one.
            return
        self.node.close(tick, self._clock.monotonic())
        for pod in self.meters.values():
            if pod.close(tick):
                self._panels = None
        self.claims.close(tick)
        self._store.write_tick(tick)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(tick)

    def _set_back(self, second: int) -> None:
        log.warning("the clock was set back seconds=%d", self._second - second)
        for track in self._tracks():
            track.move(second)
        self._tick = (second - 1) // TICK_SECONDS

    def _see(self) -> None:
        """Follow pods and containers that start and end."""
        version = self._pods.version()
        if version == self._version and self._second % TICK_SECONDS:
            return
        if version != self._version:
            self._panels = None
        self._version = version
        gone = set(self.meters)
        for pod in self._pods.pods():
            uid = pod.metadata.uid
            gone.discard(uid)
            meter = self.meters.get(uid)
            if meter is None:
                meter = self.meters[uid] = PodMeter(pod, self._tracks_by_key, self._sources)
                self._panels = None
            meter.see(pod, self._pods.observed(uid))
        for uid in gone:
            self.meters.pop(uid).end()
            self._published.pop(uid, None)
            self._tracks_by_key.forget(uid)
            self._panels = None

    def release_unused(self) -> None:
        """Release the slots of pods and claims that are no longer on this node."""
        here = {pod.metadata.uid for pod in self._pods.pods()} | self.claims.uids()
        for uid in self._tracks_by_key.uids():
            if uid and uid not in here:
                self._tracks_by_key.forget(uid)

    def _running(self) -> Iterator[UsageMeter]:
        for pod in self.meters.values():
            yield from pod.containers.values()

    def _tracks(self) -> Iterator[Track]:
        yield from self.node.tracks()
        for pod in self.meters.values():
            yield from pod.tracks()
        yield from self.claims.tracks()

    def disk_subjects(self, places: DiskPlaces) -> Iterator[DiskSubject]:
        """Running pods and their containers, with the directories that they write to."""
        for uid, meter in self.meters.items():
            if meter.over:
                continue
            spent = 0
            for name, directories in places.of_containers(meter.seen).items():
                own = meter.containers.get(name)
                latest = own.track.latest if own is not None else None
                used = latest.reading.cpu if latest is not None else -1
                spent = spent + used if used >= 0 <= spent else -1
                yield DiskSubject(DiskKey(uid, name), directories, (), used)
            deep, shallow = places.of_pod(meter.pod, meter.seen)
            yield DiskSubject(DiskKey(uid, ""), deep, shallow, spent)

    def has_news(self) -> bool:
        """Whether a container has not been in any frame."""
        return any(
            name not in self._published.get(uid, ()) and _has_data(meter.track)
            for uid, pod in self.meters.items()
            for name, meter in pod.containers.items()
        )

    def frame(self, node: str, uid: str, resolution: int) -> Frame:
        """The frame of the last tick, to be published."""
        made = self.current(node, uid, resolution)
        self._published = {pod.uid: {each.name for each in pod.containers} for pod in made.pods}
        return made

    def current(self, node: str, uid: str, resolution: int) -> Frame:
        """The same frame, for a reader on this node."""
        rows = Rows()
        rows.add(self.node.machine)
        systems = [
            FrameContainer(name, track.since, rows.add(track))
            for name, track in self.node.systems.items()
            if _has_data(track)
        ]
        pods = [
            _measured(pod, containers, rows, self._tick)
            for pod in self.meters.values()
            if (containers := _containers(pod))
        ]
        pods += self.claims.measured(rows)
        since = self.node.machine.since
        return Frame(
            node, uid, self._tick, resolution, since, systems, pods, rows.values, rows.details
        )


def _measured(pod: PodMeter, measured: list[tuple[str, Track]], rows: Rows, now: int) -> FramePod:
    containers = [FrameContainer(name, track.since, rows.add(track)) for name, track in measured]
    meta, total = pod.pod.metadata, pod.total
    assert total is not None
    row = containers[0].row if len(containers) == 1 else rows.add(total)
    ended = total.tick if total.tick != now else 0
    since = min(each.since for each in containers)
    return FramePod(meta.namespace, meta.name, meta.uid, since, ended, row, containers)


def _containers(pod: PodMeter) -> list[tuple[str, Track]]:
    return [(name, meter.track) for name, meter in pod.containers.items() if _has_data(meter.track)]


def _has_data(track: Track) -> bool:
    """Whether a closed tick has data."""
    return 0 < track.since <= track.tick * TICK_SECONDS
