"""Panel: samples many control groups in one loop, and writes their columns as a Track would.

Nearly all containers of a node are in a panel nearly always. Its own state is in columns too, so
that a second touches as little memory as possible: on a busy machine the memory of a second ago is
no longer in the processor's cache. A group that is unusual in any way (its counter fell, a second
was missed) is left to its Track, so that the rare cases are written once.
"""

import os
from array import array
from collections.abc import Iterable
from typing import Final

from kedge.machinery.clock import Clock
from kedge.metrics.track import BILLION, LONGEST, SHORTEST
from kedge.metrics.window_file import SLOTS, SecondColumns
from kedge.metrics.windows import MINUTE, TICK_SECONDS
from kedge.node.stats.cgroup import SMALL, GroupSource
from kedge.node.stats.meters import UsageMeter

_pread: Final = os.pread


class Panel:
    """Groups whose slots are in one piece of the window file."""

    def __init__(self, columns: SecondColumns) -> None:
        self._columns = columns
        self._meters: list[UsageMeter] = []
        self._sources: list[GroupSource] = []
        self._places = array("H")
        self._cpu = array("i")
        self._usage = array("i")
        """Descriptors."""
        self._low = array("q")
        self._high = array("q")
        """Memory within these bounds has the same inactive part as when that was last read."""
        self._inactive = array("q")
        self._looked = array("q")
        """Processor time when that was last read: an idle group has not changed since."""

    def add(self, meter: UsageMeter, source: GroupSource) -> None:
        cpu, usage, _ = source.descriptors
        self._meters.append(meter)
        self._sources.append(source)
        self._places.append(meter.track.slot.place)
        self._cpu.append(cpu)
        self._usage.append(usage)
        self._looked.append(-1)
        for column, value in zip(self._bounds(), _bounds_of(source), strict=True):
            column.append(value)

    def sample(self, second: int, clock: Clock) -> list[UsageMeter]:
        """Sample all groups for this second; returns the meters that need their Track instead."""
        # The most frequent code of a node: no calls but those that read, and local names only.
        columns, monotonic = self._columns, clock.monotonic
        seconds, counters, ats = columns.second, columns.counter, columns.at
        minute, anyway = second % MINUTE * SLOTS, second % MINUTE == 0
        due = second % TICK_SECONDS == 0
        parse = self._sources[0].parse
        unusual: list[UsageMeter] = []
        for number, (place, spent, usage, low, high, inactive) in enumerate(
            zip(self._places, self._cpu, self._usage, *self._bounds(), strict=True)
        ):
            try:
                counter = parse(_pread(spent, SMALL, 0))
                used = int(_pread(usage, SMALL, 0))
                if not low <= used <= high or (due and (anyway or counter != self._looked[number])):
                    inactive = self._look(number, used)
                    self._looked[number] = counter
            except (OSError, ValueError):
                unusual.append(self._meters[number])
                continue
            at = monotonic()
            elapsed, last = at - ats[place], counters[place]
            if (
                seconds[place] != second - 1
                or not SHORTEST <= elapsed <= LONGEST
                or not 0 <= last <= counter
            ):
                unusual.append(self._meters[number])
                continue
            columns.cpu[minute + place] = (counter - last) / BILLION / elapsed
            columns.memory[minute + place] = used - inactive if used > inactive else 0.0
            seconds[place] = second
            counters[place] = counter
            ats[place] = at
        return unusual

    def _look(self, number: int, used: int) -> int:
        """Read how much of the used memory of a group is inactive."""
        source = self._sources[number]
        source.look(used, source.descriptors[2])
        for column, value in zip(self._bounds(), _bounds_of(source), strict=True):
            column[number] = value
        return source.inactive

    def _bounds(self) -> "tuple[array[int], array[int], array[int]]":
        return self._low, self._high, self._inactive


def _bounds_of(source: GroupSource) -> tuple[int, int, int]:
    return source.used - source.within, source.used + source.within, source.inactive


class Panels:
    """All panels, and the meters that are in none of them."""

    def __init__(self, meters: Iterable[UsageMeter]) -> None:
        self._panels: dict[int, Panel] = {}
        """By the identity of their columns."""
        self._single: list[UsageMeter] = []
        for meter in meters:
            self._add(meter)

    def _add(self, meter: UsageMeter) -> None:
        source = _group(meter)
        if source is None:
            self._single.append(meter)
            return
        columns = meter.track.slot.columns
        self._panels.setdefault(id(columns), Panel(columns)).add(meter, source)

    def sample(self, second: int, clock: Clock) -> bool:
        """Sample everything for this second; returns whether the panels may stay as they are."""
        unusual = [
            meter for panel in self._panels.values() for meter in panel.sample(second, clock)
        ]
        for meter in (*unusual, *self._single):
            meter.sample(second, clock)
        return not unusual and not any(map(_group, self._single))


def _group(meter: UsageMeter) -> GroupSource | None:
    """The source of a meter that can be in a panel: one whose current run was read before."""
    source, track = meter.source, meter.track
    if isinstance(source, GroupSource) and source.descriptors:
        return source if track.reads and track.run == meter.run else None
    return None
