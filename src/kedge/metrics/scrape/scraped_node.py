"""Gathered: what one node was read to use, as the frame it would have sent itself."""

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from kedge.apiserver.metrics.cluster import KnownPod
from kedge.metrics.frame import UNKNOWN, WIDTH, Frame, Measured, MeasuredPod
from kedge.metrics.scrape.interval_track import Course
from kedge.metrics.scrape.page import Page, PodReadings, Reading
from kedge.metrics.series import TICK
from kedge.metrics.window_file import Key, Store

_PATIENCE: Final = 60
"""Seconds for which a container that is not told of any more still counts as one of its pod."""

FindPod = Callable[[str, str], KnownPod | None]


class GatheredPod:
    """A pod: each of its containers, and all of it if they are several."""

    def __init__(self, namespace: str, name: str, uid: str) -> None:
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.total: Course | None = None
        self.containers: dict[str, Course] = {}
        self.present: list[Course] = []
        """What the last page told of."""
        self.tick = 0
        """The last that was closed."""

    def told(self) -> list[tuple[str, Course]]:
        """The containers of which there is something to tell."""
        oldest = self.tick - _PATIENCE // TICK
        return [
            (name, course)
            for name, course in self.containers.items()
            if course.tells and course.ready > oldest
        ]

    def courses(self) -> Iterator[Course]:
        yield from self.containers.values()
        if self.total is not None:
            yield self.total

    def close(self, most: int) -> None:
        """Close what all that still runs has been read of, but no more than that."""
        if not self.present:
            return
        newest = max(course.ready for course in self.present)
        running = [c.ready for c in self.present if c.ready > newest - _PATIENCE // TICK]
        tick = min(most, *running)
        if tick > self.tick:
            self.tick = tick
            for course in self.courses():
                course.close(tick)

    def measured(self, row: int, values: "array[float]") -> MeasuredPod:
        """What a frame says of it, after its rows were written: its own and those that follow."""
        told = self.told()
        containers = []
        for name, course in told:
            containers.append(Measured(name, course.since, len(values) // WIDTH))
            values += course.row()
        at = row * WIDTH
        if len(told) > 1 and self.total is not None and self.total.tells:
            values[at : at + WIDTH] = self.total.row()
        else:
            first = containers[0].row * WIDTH
            values[at : at + WIDTH] = _sum(values[first:])
        since = min(course.since for _, course in told)
        return MeasuredPod(self.namespace, self.name, self.uid, since, self.tick, row, containers)


class Gathered:
    """One node and its pods."""

    def __init__(self, name: str, uid: str, store: Store) -> None:
        self.name = name
        self.uid = uid
        self._store = store
        self._machine: Course | None = None
        self._pods: dict[str, GatheredPod] = {}
        """By uid."""
        self.foreign = 0
        """Pods and containers that were told of and are not this node's."""

    def take(self, page: Page, find: FindPod, resolution: int) -> Frame | None:
        """Take a page in; the frame of the newest tick, if that is a new one."""
        assert page.machine is not None
        if self._machine is None:
            self._machine = self._course(self.uid, "", page.machine)
        self._machine.read(page.machine)
        for gathered in self._pods.values():
            gathered.present = []
        for (namespace, name), readings in page.pods.items():
            pod = find(namespace, name)
            if pod is None or pod.spec.node_name != self.name:
                self.foreign += 1
                continue
            self._read(pod, readings)
        self._forget_gone(find)
        return self._frame(self._machine, resolution)

    def forget(self) -> None:
        """The node is gone."""
        for uid in list(self._pods):
            self._forget(uid)
        self._store.release(Key(self.uid, ""))

    def _read(self, pod: KnownPod, readings: PodReadings) -> None:
        meta = pod.metadata
        possible = pod.containers()
        strange = readings.containers.keys() - possible
        self.foreign += len(strange)
        if strange == readings.containers.keys():
            return
        gathered = self._pods.get(meta.uid)
        if gathered is None:
            gathered = GatheredPod(meta.namespace, meta.name, meta.uid)
            self._pods[meta.uid] = gathered
        courses = gathered.containers
        for name, reading in readings.containers.items():
            if name in strange:
                continue
            if name not in courses:
                courses[name] = self._course(meta.uid, name, reading)
            courses[name].read(reading)
            gathered.present.append(courses[name])
        if readings.total is not None and len(courses) > 1:
            if gathered.total is None:
                gathered.total = self._course(meta.uid, "", readings.total)
            gathered.total.read(readings.total)
            gathered.present.append(gathered.total)

    def _course(self, uid: str, container: str, reading: Reading) -> Course:
        key = Key(uid, container)
        return Course(self._store.get(key) or self._store.claim(key), reading)

    def _forget_gone(self, find: FindPod) -> None:
        for uid, pod in list(self._pods.items()):
            known = find(pod.namespace, pod.name)
            if known is None or known.metadata.uid != uid:
                self._forget(uid)

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid)
        for container in ("", *pod.containers):
            self._store.release(Key(uid, container))

    def _frame(self, machine: Course, resolution: int) -> Frame | None:
        tick = machine.ready
        if tick <= machine.tick:
            return None
        machine.close(tick)
        for pod in self._pods.values():
            pod.close(tick)
        if not machine.tells:
            return None
        told = [pod for pod in self._pods.values() if pod.told()]
        values = machine.row() + array("f", [UNKNOWN]) * (WIDTH * len(told))
        pods = [pod.measured(1 + number, values) for number, pod in enumerate(told)]
        return Frame(self.name, self.uid, tick, resolution, machine.since, (), pods, values)


def _sum(rows: "array[float]") -> "array[float]":
    """One row for several; of maxima and percentiles the sum is what could have been at most."""
    columns = zip(*(rows[at : at + WIDTH] for at in range(0, len(rows), WIDTH)), strict=True)
    return array("f", [sum(each) if min(each) >= 0 else UNKNOWN for each in columns])
