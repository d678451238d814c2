"""Sampler: looks each second at all that runs here, and knows its windows at each tick."""

import asyncio
import logging
from array import array
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.clock import Clock
from kedge.metrics.frame import WIDTH, Frame, FrameContainer, FramePod
from kedge.metrics.track import Track
from kedge.metrics.window_file import WindowFile
from kedge.metrics.windows import TICK_SECONDS
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.stats.meters import NodeMeter, PodMeter, TrackIndex, UsageMeter, UsageSources
from kedge.node.stats.panel import Panels

log = logging.getLogger(__name__)

_EARLY: Final = 0.02
"""Seconds by which a sleeper may wake too soon."""
_PATIENCE: Final = 60
"""Seconds that time may have been set back for it to be waited for."""


class PodSource(Protocol):
    """The pods of this node (kedge.node.pod.workers)."""

    def pods(self) -> list[Pod]: ...

    def version(self) -> tuple[int, int]:
        """Something else whenever a pod has come or gone, or something of one began or ended."""
        ...

    def observed(self, uid: str) -> PodRuntimeState: ...


class Sampler:
    """Somebody must `run` it."""

    def __init__(
        self,
        store: WindowFile,
        pods: PodSource,
        sources: UsageSources,
        clock: Clock,
        *,
        runtime: Callable[[], int],
    ) -> None:
        """`runtime` is the process that runs containers, as it is now; 0 if there is none."""
        self._store = store
        self._pods = pods
        self._sources = sources
        self._clock = clock
        self._book = TrackIndex(store, clock)
        self.node = NodeMeter(self._book, sources, runtime)
        self.meters: dict[str, PodMeter] = {}
        """By uid."""
        self._panels: Panels | None = None
        """What is read each second; None if that is to be found out anew."""
        self._version = (-1, 0)
        """What of the pods has been seen."""
        # The agent before this one may have measured this very second, and closed its tick.
        self._second = self.node.machine.second
        self._tick = 0
        self._told: dict[str, set[str]] = {}
        """The containers that have been in a frame, by the uid of their pod."""
        self._waiting: list[asyncio.Future[int]] = []

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self.take(await self._next_second())
        finally:
            self.node.end()
            for meter in self.meters.values():
                meter.end()
            self._store.close()

    async def next_tick(self) -> int:
        """The tick that ends next, once it has."""
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
            # What was open when the last agent ended is closed with what comes next.
            return
        self.node.close(tick)
        for pod in self.meters.values():
            if pod.close(tick):
                self._panels = None
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
        """Which pods there are, and what of them runs."""
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
                meter = self.meters[uid] = PodMeter(pod, self._book, self._sources)
                self._panels = None
            meter.see(pod, self._pods.observed(uid))
        for uid in gone:
            self.meters.pop(uid).end()
            self._told.pop(uid, None)
            self._book.forget(uid)
            self._panels = None

    def forget_strangers(self) -> None:
        """Let go of what is known of pods that are not here any more."""
        here = {pod.metadata.uid for pod in self._pods.pods()}
        for uid in self._book.uids():
            if uid and uid not in here:
                self._book.forget(uid)

    def _running(self) -> Iterator[UsageMeter]:
        for pod in self.meters.values():
            yield from pod.containers.values()

    def _tracks(self) -> Iterator[Track]:
        yield from self.node.tracks()
        for pod in self.meters.values():
            yield from pod.tracks()

    # What is published.

    def has_news(self) -> bool:
        """Whether there is a container that has never been in a frame."""
        return any(
            name not in self._told.get(uid, ()) and _tells(meter.track)
            for uid, pod in self.meters.items()
            for name, meter in pod.containers.items()
        )

    def frame(self, node: str, uid: str, resolution: int) -> Frame:
        """All windows that ended with the last tick."""
        rows = Rows()
        rows.add(self.node.machine)
        systems = [
            FrameContainer(name, track.since, rows.add(track))
            for name, track in self.node.systems.items()
            if _tells(track)
        ]
        pods = [
            _measured(pod, containers, rows, self._tick)
            for pod in self.meters.values()
            if (containers := _containers(pod))
        ]
        self._told = {pod.uid: {each.name for each in pod.containers} for pod in pods}
        since = self.node.machine.since
        return Frame(node, uid, self._tick, resolution, since, systems, pods, rows.values)


class Rows:
    """Rows, one after the other."""

    def __init__(self) -> None:
        self.values = array("f")

    def add(self, track: Track) -> int:
        self.values += track.row()
        return len(self.values) // WIDTH - 1


def _measured(pod: PodMeter, measured: list[tuple[str, Track]], rows: Rows, now: int) -> FramePod:
    containers = [FrameContainer(name, track.since, rows.add(track)) for name, track in measured]
    meta, total = pod.pod.metadata, pod.total
    assert total is not None
    row = containers[0].row if len(containers) == 1 else rows.add(total)
    ended = total.tick if total.tick != now else 0
    since = min(each.since for each in containers)
    return FramePod(meta.namespace, meta.name, meta.uid, since, ended, row, containers)


def _containers(pod: PodMeter) -> list[tuple[str, Track]]:
    return [(name, meter.track) for name, meter in pod.containers.items() if _tells(meter.track)]


def _tells(track: Track) -> bool:
    """Whether there is a tick of which it knows something."""
    return 0 < track.since <= track.tick * TICK_SECONDS
