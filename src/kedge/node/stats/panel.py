"""Panel: control groups that are read together each second, and written where they are remembered.

Nearly all that is measured on a node is in here nearly always. What a panel needs to know of each
lies in columns, so that a second touches as little memory as it can: on a machine that has other
things to do, whatever was touched a second ago has to be fetched again.
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
    """Groups that are remembered in one piece of the store."""

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
        """Between these memory has not changed since it was last looked at closely."""
        self._inactive = array("q")
        self._looked = array("q")
        """How much processor time it had used by then: who does nothing changes nothing."""

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
        """Measure everything for this second; those are returned that must be looked at by
        themselves."""
        # Of all that is done each second this is done most often, and so with few calls.
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
        """Look closely at the memory of one group, of which so much is used; returns how much of
        it is inactive."""
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
    """All panels, and what is in none of them."""

    def __init__(self, meters: Iterable[UsageMeter]) -> None:
        self._panels: dict[int, Panel] = {}
        """By what they are written to."""
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
        """Measure everything for this second; returns whether all may stay as it is."""
        unusual = [
            meter for panel in self._panels.values() for meter in panel.sample(second, clock)
        ]
        for meter in (*unusual, *self._single):
            meter.sample(second, clock)
        return not unusual and not any(map(_group, self._single))


def _group(meter: UsageMeter) -> GroupSource | None:
    """The group in which something is that can be in a panel: what begins, or begins anew, is
    looked at by itself."""
    source, track = meter.source, meter.track
    if isinstance(source, GroupSource) and source.descriptors:
        return source if track.reads and track.run == meter.run else None
    return None
