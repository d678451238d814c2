"""ScrapedNode: makes of the pages of one kubelet the frames that a kedge node sends itself."""

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from kedge.metrics.frame import WIDTH, Frame, FrameContainer, FramePod
from kedge.metrics.scrape.cluster import PodSketch
from kedge.metrics.scrape.interval_track import IntervalTrack
from kedge.metrics.scrape.page import KubeletPage, PodReadings, TimedReading
from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.window_file import TrackKey, WindowFile
from kedge.metrics.windows import TICK_SECONDS

_PATIENCE: Final = 60
"""Seconds for which a container stays in its pod after it has left the page."""

FindPod = Callable[[str, str], PodSketch | None]


class ScrapedPod:
    """A pod: a track for each container, and one for the total if there are several."""

    def __init__(self, namespace: str, name: str, uid: str) -> None:
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.total: IntervalTrack | None = None
        self.containers: dict[str, IntervalTrack] = {}
        self.present: list[IntervalTrack] = []
        """The tracks that the last page had readings of."""
        self.tick = 0
        """The last closed tick."""

    def shown(self) -> list[tuple[str, IntervalTrack]]:
        """The containers that a frame shows."""
        oldest = self.tick - _PATIENCE // TICK_SECONDS
        return [
            (name, track)
            for name, track in self.containers.items()
            if track.has_data and track.ready > oldest
        ]

    def tracks(self) -> Iterator[IntervalTrack]:
        yield from self.containers.values()
        if self.total is not None:
            yield self.total

    def close(self, most: int) -> None:
        """Close the ticks that the readings of all running containers cover. A kubelet reads its
        containers up to twenty seconds apart."""
        if not self.present:
            return
        newest = max(track.ready for track in self.present)
        running = [
            each.ready for each in self.present if each.ready > newest - _PATIENCE // TICK_SECONDS
        ]
        tick = min(most, *running)
        if tick > self.tick:
            self.tick = tick
            for track in self.tracks():
                track.close(tick)

    def framed(self, row: int, values: "array[float]") -> FramePod:
        """The pod for a frame; writes its row, and appends those of its containers."""
        shown = self.shown()
        containers = []
        for name, track in shown:
            containers.append(FrameContainer(name, track.since, len(values) // WIDTH))
            values += track.row()
        at = row * WIDTH
        if len(shown) > 1 and self.total is not None and self.total.has_data:
            values[at : at + WIDTH] = self.total.row()
        else:
            first = containers[0].row * WIDTH
            values[at : at + WIDTH] = _sum(values[first:])
        since = min(track.since for _, track in shown)
        return FramePod(self.namespace, self.name, self.uid, since, self.tick, row, containers)


class ScrapedNode:
    """One node and its pods."""

    def __init__(self, name: str, uid: str, windows: WindowFile) -> None:
        self.name = name
        self.uid = uid
        self._windows = windows
        self._machine: IntervalTrack | None = None
        self._pods: dict[str, ScrapedPod] = {}
        """By uid."""
        self.foreign = 0
        """Pods and containers on pages that are not this node's."""

    def take(self, page: KubeletPage, find: FindPod, resolution: int) -> Frame | None:
        """Add a page; returns the frame of the newest tick, if that is a new one."""
        assert page.machine is not None
        if self._machine is None:
            self._machine = self._track(self.uid, "", page.machine)
        self._machine.read(page.machine)
        for scraped in self._pods.values():
            scraped.present = []
        for (namespace, name), readings in page.pods.items():
            pod = find(namespace, name)
            if pod is None or pod.spec.node_name != self.name:
                self.foreign += 1
                continue
            self._read(pod, readings)
        self._forget_gone(find)
        return self._frame(self._machine, resolution)

    def forget(self) -> None:
        """Release the slots of a node that is gone."""
        for uid in list(self._pods):
            self._forget(uid)
        self._windows.release(TrackKey(self.uid, ""))

    def _read(self, pod: PodSketch, readings: PodReadings) -> None:
        meta = pod.metadata
        possible = pod.containers()
        strange = readings.containers.keys() - possible
        self.foreign += len(strange)
        if strange == readings.containers.keys():
            return
        scraped = self._pods.get(meta.uid)
        if scraped is None:
            scraped = ScrapedPod(meta.namespace, meta.name, meta.uid)
            self._pods[meta.uid] = scraped
        tracks = scraped.containers
        for name, reading in readings.containers.items():
            if name in strange:
                continue
            if name not in tracks:
                tracks[name] = self._track(meta.uid, name, reading)
            tracks[name].read(reading)
            scraped.present.append(tracks[name])
        if readings.total is not None and len(tracks) > 1:
            if scraped.total is None:
                scraped.total = self._track(meta.uid, "", readings.total)
            scraped.total.read(readings.total)
            scraped.present.append(scraped.total)

    def _track(self, uid: str, container: str, reading: TimedReading) -> IntervalTrack:
        key = TrackKey(uid, container)
        return IntervalTrack(self._windows.get(key) or self._windows.claim(key), reading)

    def _forget_gone(self, find: FindPod) -> None:
        for uid, pod in list(self._pods.items()):
            known = find(pod.namespace, pod.name)
            if known is None or known.metadata.uid != uid:
                self._forget(uid)

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid)
        for container in ("", *pod.containers):
            self._windows.release(TrackKey(uid, container))

    def _frame(self, machine: IntervalTrack, resolution: int) -> Frame | None:
        tick = machine.ready
        if tick <= machine.tick:
            return None
        machine.close(tick)
        for pod in self._pods.values():
            pod.close(tick)
        if not machine.has_data:
            return None
        shown = [pod for pod in self._pods.values() if pod.shown()]
        values = machine.row() + array("f", [UNKNOWN]) * (WIDTH * len(shown))
        pods = [pod.framed(1 + number, values) for number, pod in enumerate(shown)]
        return Frame(self.name, self.uid, tick, resolution, machine.since, (), pods, values)


def _sum(rows: "array[float]") -> "array[float]":
    """The sum of rows; for maxima and percentiles it is an upper bound."""
    columns = zip(*(rows[at : at + WIDTH] for at in range(0, len(rows), WIDTH)), strict=True)
    return array("f", [sum(each) if min(each) >= 0 else UNKNOWN for each in columns])
