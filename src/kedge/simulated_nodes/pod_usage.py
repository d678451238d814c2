"""The usage of simulated pods: statistics of windows, computed from shapes instead of samples.

A real container keeps 100 KB of samples for its windows. A shape is a function of time, so its
windows cost nothing until they are reported, and an hour that a test skips is a part of them.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from kedge.api.core_v1.simulation import NOTHING, UsageShape
from kedge.metrics.frame import Frame, FrameContainer, FramePod
from kedge.metrics.statistics import Statistics, rank
from kedge.metrics.windows import DAY, TICK_SECONDS, WINDOWS

POINTS: Final = 97
"""Points of time at which a window that is not constant is looked at. It is a prime, so that the
points are at different phases of a shape whose period divides the window."""
KEPT_SECONDS: Final = float(DAY)
MOST_SEGMENTS: Final = 64
"""Earlier changes are forgotten: each costs memory and time at every change that follows."""


class UsageSegment(NamedTuple):
    """The usage of a container from a moment on."""

    begin: float
    """Seconds since the epoch, as all times below."""
    start: float
    """The start of the container, with which its shapes begin."""
    cpu: UsageShape
    memory: UsageShape


class ContainerUsage(NamedTuple):
    """The usage of a container since its first start: segments, the oldest first."""

    segments: tuple[UsageSegment, ...] = ()

    @property
    def since(self) -> float:
        return self.segments[0].begin if self.segments else 0.0

    def changed(
        self, now: float, start: float, cpu: UsageShape, memory: UsageShape
    ) -> "ContainerUsage":
        """Return the usage if it has these shapes from now on."""
        if self.segments and self.segments[-1][1:] == (start, cpu, memory):
            return self
        # The segment before the oldest one that a window can see is not needed.
        old = now - KEPT_SECONDS
        kept = [
            each
            for each, following in zip(self.segments, self.segments[1:], strict=False)
            if following.begin > old
        ]
        last = self.segments[-1:]
        return ContainerUsage(
            (*kept[-MOST_SEGMENTS:], *last, UsageSegment(now, start, cpu, memory))
        )

    def ended(self, now: float) -> "ContainerUsage":
        """Return the usage if the container has ended now."""
        if not self.segments:
            return self
        return self.changed(now, self.segments[-1].start, NOTHING, NOTHING)


Row = tuple[float, ...]


def row(usage: ContainerUsage, now: float) -> Row:
    """Return the numbers of all windows that end now, in the order of a frame."""
    segments = usage.segments
    if len(segments) == 1 and segments[0].cpu.is_constant and segments[0].memory.is_constant:
        return _constant_row(segments[0].cpu.low, segments[0].memory.low)
    if len(segments) == 1:
        # Pods of one controller have the same shapes, and most of them nearly the same age.
        only = segments[0]
        age = round(now - only.start)
        return _wave_row(only.cpu, only.memory, round(only.begin - only.start), age)
    return _row(segments, now)


@lru_cache(4096)
def _constant_row(cpu: float, memory: float) -> Row:
    return (cpu, memory) * (len(WINDOWS) * 3)


@lru_cache(4096)
def _wave_row(cpu: UsageShape, memory: UsageShape, begin: int, end: int) -> Row:
    return _row([UsageSegment(float(begin), 0.0, cpu, memory)], float(end))


def _row(segments: Sequence[UsageSegment], now: float) -> Row:
    numbers: list[float] = []
    for seconds in WINDOWS.values():
        begin = max(now - seconds, segments[0].begin)
        cpu, memory = _window(segments, begin, now)
        for used, held in zip(cpu, memory, strict=True):
            numbers += (used, held)
    return tuple(numbers)


def _window(
    segments: Sequence[UsageSegment], begin: float, end: float
) -> tuple[Statistics, Statistics]:
    cpu, memory = [], []
    place = 0
    for number in range(POINTS):
        time = begin + (end - begin) * (number + 0.5) / POINTS
        while place + 1 < len(segments) and segments[place + 1].begin <= time:
            place += 1
        segment = segments[place]
        age = time - segment.start
        cpu.append(segment.cpu.at(age))
        memory.append(segment.memory.at(age))
    return _statistics(cpu), _statistics(memory)


def _statistics(values: list[float]) -> Statistics:
    values.sort()
    return Statistics(sum(values) / len(values), values[-1], values[rank(len(values)) - 1])


def summed(rows: Iterable[Row]) -> Row:
    """Return the usage of several things together. Their highest values may not coincide: maximum
    and percentile of a sum are upper bounds unless all shapes are constant."""
    first, *others = rows
    if not others:
        return first
    return tuple(map(sum, zip(first, *others, strict=True)))


class SimulatedPodUsage(NamedTuple):
    """A pod, and the usage of its containers by name."""

    namespace: str
    name: str
    uid: str
    containers: Mapping[str, ContainerUsage]


def frame(
    node: tuple[str, str],
    own: ContainerUsage,
    pods: Iterable[SimulatedPodUsage],
    *,
    tick: int,
    now: float,
    resolution: int,
) -> Frame:
    """Return the report of a node, given by name and uid; `own` is its usage without its pods.

    `tick` is of the clock by which nodes report, `now` of the clock that tests move.
    """
    values: list[Row] = [()]
    measured = []
    totals = []
    # A test may have moved the clock: times of a frame are those of its ticks.
    offset = tick * TICK_SECONDS - now
    for pod in pods:
        known = {name: each for name, each in pod.containers.items() if each.segments}
        if not known:
            continue
        rows = [row(each, now) for each in known.values()]
        at = len(values)
        containers = [
            FrameContainer(name, _second(each.since + offset, tick), at + number)
            for number, (name, each) in enumerate(known.items())
        ]
        values += rows
        total = summed(rows)
        totals.append(total)
        whole = at
        if len(rows) > 1:
            whole = len(values)
            values.append(total)
        since = min(each.since for each in containers)
        measured.append(FramePod(pod.namespace, pod.name, pod.uid, since, 0, whole, containers))
    values[0] = summed([row(own, now), *totals])
    numbers = array("f", [number for each in values for number in each])
    since = _second(own.since + offset, tick)
    return Frame(*node, tick, resolution, since, (), measured, numbers)


def _second(time: float, tick: int) -> int:
    """Return a second that is above 0 and not after the end of the tick."""
    return max(1, min(int(time), tick * TICK_SECONDS))
