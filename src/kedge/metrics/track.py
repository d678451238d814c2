"""Track: the usage of one container, pod or daemon, from its counters to its windows."""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from kedge.metrics.detail_windows import NONE_KNOWN
from kedge.metrics.frame import row_of
from kedge.metrics.percentiles import Percentile
from kedge.metrics.series_memory import UNKNOWN
from kedge.metrics.usage_history import UsageHistory
from kedge.metrics.window_file import SLOTS, TrackSlot
from kedge.metrics.windows import MINUTE, TICK_SECONDS, tick_of

SHORTEST: Final = 0.25
"""Seconds between two readings below which their difference is too coarse: wait for the next."""
LONGEST: Final = float(TICK_SECONDS)
"""Seconds above which their difference says nothing about any single second."""
BILLION: Final = 1_000_000_000


class UsageReading(NamedTuple):
    """The counters of one thing at one moment."""

    cpu: int
    """Nanoseconds of processor time since its start; -1 if unknown."""
    memory: int
    """Bytes of the working set; -1 if unknown."""


class LastReading(NamedTuple):
    """The last reading, and the rate since the one before."""

    time: int
    """Its second since the epoch."""
    reading: UsageReading
    cores: float
    """Average since the reading before; UNKNOWN if there is none to compare with."""


class Track:
    """One measured thing. The caller passes seconds and ticks that only grow.

    The mean of a tick does not come from the values of its seconds: a reading that is late or
    missing would distort it. It is the growth of the counter from the first reading of the tick to
    the last, over the time between these two readings. If the counter starts again in the middle of
    a tick (another run of the container), the growth so far is set aside and added at the end.

    A Panel writes the same columns for many tracks at once. tests/unit/node/stats/test_panel.py
    shows that both leave the same bytes behind.
    """

    __slots__ = (
        "_aside",
        "_aside_seconds",
        "_columns",
        "_cpu",
        "_first",
        "_first_at",
        "_latest",
        "_memory",
        "_place",
        "details",
        "reads",
        "run",
        "since",
        "slot",
    )

    def __init__(self, slot: TrackSlot, tick: int, *, same_boot: bool) -> None:
        """Continue with the data of a slot; after this tick, if the slot is empty."""
        state = slot.load()
        self.slot = slot
        self._columns, self._place = slot.columns, slot.place
        self.since = state.since
        """The second of its first reading; 0 before that."""
        self.run = state.run
        """The run to which the counter belongs: the start of the container, or of the machine."""
        self._first, self._first_at = state.first, state.first_at
        self._aside, self._aside_seconds = state.aside, state.aside_seconds
        self._cpu, self._memory = slot.series(state.tick or tick)
        self.details = slot.details()
        """The windows of everything else."""
        self.reads = False
        """Whether the last reading is in the columns and was made by this process."""
        self._latest: LastReading | None = None
        """The last reading, if it is not in the columns."""
        if not same_boot:
            self._restart(self.run, -1, state.at)

    @property
    def tick(self) -> int:
        """The last closed tick."""
        return self._cpu.tick

    @property
    def second(self) -> int:
        """The last second with data in the columns."""
        return self._columns.second[self._place]

    @property
    def latest(self) -> LastReading | None:
        """The last reading of this process, if any."""
        if not self.reads:
            return self._latest
        columns, second = self._columns, self.second
        cell = second % MINUTE * SLOTS + self._place
        reading = UsageReading(columns.counter[self._place], int(columns.memory[cell]))
        return LastReading(second, reading, columns.cpu[cell])

    @property
    def pending(self) -> bool:
        """Whether there are data of a tick that was not closed."""
        return tick_of(self.second) > self.tick

    def settle(self, second: int) -> None:
        """Close a tick that an earlier process left open, if it is over."""
        if self.pending and tick_of(self.second) < tick_of(second):
            self._close(tick_of(self.second))

    def start_from(self, run: int, at: float) -> None:
        """Count from zero at that moment: the run began then."""
        self._restart(run, 0, at)

    def sample(self, second: int, at: float, run: int, reading: tuple[int, int]) -> None:
        """Record the reading of a second; `at` is the monotonic time of the reading."""
        self._advance(second)
        counter, memory = reading
        cores = self._cores(at, run, counter)
        cell = second % MINUTE * SLOTS + self._place
        self._columns.cpu[cell] = cores
        self._columns.memory[cell] = memory
        self._mark(second)
        self.reads = True
        if not self.since:
            self.since = second
            self._save()

    def skip(self, second: int) -> None:
        """Record that a second has no reading."""
        self._latest, self.reads = self.latest, False
        self._advance(second)
        self._cpu.skip(second)
        self._memory.skip(second)
        self._mark(second)

    def close(self, tick: int, details: Sequence[float] = NONE_KNOWN) -> None:
        """End a tick, and an earlier one that was left open; `details` are its values of these."""
        if self.second != tick * TICK_SECONDS:
            self.settle(tick * TICK_SECONDS)
        self._close(tick)
        self.details.put(tick, details)

    def _close(self, tick: int) -> None:
        if self.second != tick * TICK_SECONDS:
            self.skip(tick * TICK_SECONDS)
        used = self._aside + (self._counter - self._first) / BILLION
        seconds = self._aside_seconds + self._at - self._first_at
        # After a loss of power the last reading may be older than the first one: some pages were
        # written and others not. A tick with negative growth has no data.
        self._cpu.close(tick, used / (seconds or 1.0), seconds if used >= 0 else 0.0)
        self._memory.close_even(tick)
        self._begin_tick()

    def move(self, second: int) -> None:
        """Follow a clock that was set back; the data then end just before this second."""
        self._latest, self.reads = self.latest, False
        for passed in range(second - MINUTE, second):
            self._cpu.skip(passed)
            self._memory.skip(passed)
        self._cpu, self._memory = self.slot.series(tick_of(second) - 1)
        self.details.move(tick_of(second) - 1)
        self._mark(second - 1)
        self.since = min(self.since, second)
        self._begin_tick()

    def row(self) -> "array[float]":
        """The numbers of all windows, in the order of a frame."""
        return row_of(self._cpu, self._memory)

    def percentiles(self, window: str, wanted: Sequence[Percentile]) -> dict[str, list[float]]:
        """Percentiles of cpu and memory in one window; without those that have no data."""
        series = {"cpu": self._cpu, "memory": self._memory}
        found = {name: each.percentiles(window, wanted) for name, each in series.items()}
        return {name: each for name, each in found.items() if each}

    def histories(self) -> dict[str, dict[str, UsageHistory]]:
        """The course of cpu and memory, by window and resource."""
        found: dict[str, dict[str, UsageHistory]] = {}
        for resource, series in (("cpu", self._cpu), ("memory", self._memory)):
            for window, history in series.histories(self.second).items():
                found.setdefault(window, {})[resource] = history
        return found

    @property
    def _counter(self) -> int:
        return self._columns.counter[self._place]

    @property
    def _at(self) -> float:
        return self._columns.at[self._place]

    def _read(self, counter: int, at: float) -> None:
        self._columns.counter[self._place] = counter
        self._columns.at[self._place] = at

    def _mark(self, second: int) -> None:
        """Mark a second as written, after its values. If the process is killed in between, the last
        second is the one before, and the values of a minute ago do not count as new."""
        self._columns.second[self._place] = second

    def _advance(self, second: int) -> None:
        """Begin a second; those that were left out before it have no data."""
        last = self.second
        if second != last + 1:
            # Only those of the last tick: the series itself drops older ticks.
            for missed in range(max(last + 1, second - TICK_SECONDS + 1), second):
                self._cpu.skip(missed)
                self._memory.skip(missed)
        if (second - 1) // TICK_SECONDS != (last - 1) // TICK_SECONDS:
            self._begin_tick()

    def _begin_tick(self) -> None:
        self._first, self._first_at = self._counter, self._at
        self._aside = self._aside_seconds = 0.0
        self._save()

    def _restart(self, run: int, counter: int, at: float) -> None:
        """Begin a new run: no later counter can be compared with an earlier one."""
        self._aside += (self._counter - self._first) / BILLION
        self._aside_seconds += self._at - self._first_at
        self.run = run
        self._first, self._first_at = counter, at
        self._read(counter, at)
        self._save()

    def _cores(self, at: float, run: int, counter: int) -> float:
        """The average since the last reading; UNKNOWN if the two cannot be compared."""
        elapsed, used = at - self._at, counter - self._counter
        comparable = run == self.run and self._counter >= 0 and used >= 0 and elapsed >= 0
        if comparable and elapsed < SHORTEST:
            return UNKNOWN
        if not comparable or elapsed > LONGEST or counter < 0:
            self._restart(run, counter, at)
            return UNKNOWN
        self._read(counter, at)
        return used / BILLION / elapsed

    def _save(self) -> None:
        self.slot.save_rest(
            self.since,
            self.run,
            self._cpu.tick,
            self._first,
            self._first_at,
            self._aside,
            self._aside_seconds,
        )
