"""Track: what one measured thing has used, from its counters to its windows."""

from array import array
from typing import Final, NamedTuple

from kedge.metrics.frame import UNKNOWN
from kedge.metrics.row import row
from kedge.metrics.series import MINUTE, TICK
from kedge.metrics.window_file import SLOTS, Slot
from kedge.node.stats.cgroup import Reading

SHORTEST: Final = 0.25
"""Seconds below which a difference of two readings says too little: the next one is waited for."""
LONGEST: Final = float(TICK)
"""Seconds above which it says nothing of any one second."""
BILLION: Final = 1_000_000_000


class Latest(NamedTuple):
    """The last reading."""

    time: int
    """The second of it, since the epoch."""
    reading: Reading
    cores: float
    """Over the time since the reading before; -1 if that is not known."""


class Track:
    """One measured thing. Seconds and ticks only ever grow; whoever calls sees to that.

    What a tick has used is what the counter has grown by since a first reading, and what was set
    aside before that, since the counter began anew.
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
        "reads",
        "run",
        "since",
        "slot",
    )

    def __init__(self, slot: Slot, tick: int, *, same_boot: bool) -> None:
        """Go on with what a slot knows, after this tick if it knows of none."""
        state = slot.load()
        self.slot = slot
        self._columns, self._place = slot.columns, slot.place
        self.since = state.since
        """The second at which it was first measured; 0 if that is yet to come."""
        self.run = state.run
        """Which start of it was last read."""
        self._first, self._first_at = state.first, state.first_at
        self._aside, self._aside_seconds = state.aside, state.aside_seconds
        self._cpu, self._memory = slot.series(state.tick or tick)
        self.reads = False
        """Whether the last reading is in the columns, and was made by this process."""
        self._latest: Latest | None = None
        """The last reading, if it is not."""
        if not same_boot:
            self._begin_anew(self.run, -1, state.at)

    @property
    def tick(self) -> int:
        """The last that was closed."""
        return self._cpu.tick

    @property
    def second(self) -> int:
        """The last of which something is written, in the tick of which the first reading is."""
        return self._columns.second[self._place]

    @property
    def latest(self) -> Latest | None:
        """The last reading; None if this process has read nothing yet."""
        if not self.reads:
            return self._latest
        columns, second = self._columns, self.second
        cell = second % MINUTE * SLOTS + self._place
        reading = Reading(columns.counter[self._place], int(columns.memory[cell]))
        return Latest(second, reading, columns.cpu[cell])

    @property
    def pending(self) -> bool:
        """Whether something is written of a tick that has not been closed."""
        return _tick(self.second) > self.tick

    def settle(self, second: int) -> None:
        """Close the tick that was left open, if it is over."""
        if self.pending and _tick(self.second) < _tick(second):
            self._close(_tick(self.second))

    def start_from(self, run: int, at: float) -> None:
        """It began at that moment and had used nothing before."""
        self._begin_anew(run, 0, at)

    def sample(self, second: int, at: float, run: int, reading: tuple[int, int]) -> None:
        """What was read for this second; `at` by the clock that begins with the machine. What is
        read from control groups is mostly written by a Panel instead."""
        self._come_to(second)
        counter, memory = reading
        cores = self._cores(at, run, counter)
        cell = second % MINUTE * SLOTS + self._place
        self._columns.cpu[cell] = cores
        self._columns.memory[cell] = memory
        self._reach(second)
        self.reads = True
        if not self.since:
            self.since = second
            self._save()

    def skip(self, second: int) -> None:
        """Nothing was read."""
        self._latest, self.reads = self.latest, False
        self._come_to(second)
        self._cpu.skip(second)
        self._memory.skip(second)
        self._reach(second)

    def close(self, tick: int) -> None:
        """A tick has ended; an earlier one may have been left open."""
        if self.second != tick * TICK:
            self.settle(tick * TICK)
        self._close(tick)

    def _close(self, tick: int) -> None:
        if self.second != tick * TICK:
            self.skip(tick * TICK)
        used = self._aside + (self._counter - self._first) / BILLION
        seconds = self._aside_seconds + self._at - self._first_at
        # Of what a machine that lost its power has written, the last reading may be the older one.
        self._cpu.close(tick, used / (seconds or 1.0), seconds if used >= 0 else 0.0)
        self._memory.close_even(tick)
        self._begin_tick()

    def move(self, second: int) -> None:
        """Time has been set back, or the slot is from the future: what is known stays known, as
        if it had been measured just before this second."""
        self._latest, self.reads = self.latest, False
        for passed in range(second - MINUTE, second):
            self._cpu.skip(passed)
            self._memory.skip(passed)
        self._cpu, self._memory = self.slot.series(_tick(second) - 1)
        self._reach(second - 1)
        self.since = min(self.since, second)
        self._begin_tick()

    def row(self) -> "array[float]":
        """The numbers of all windows, in the order of a frame."""
        return row(self._cpu, self._memory)

    @property
    def _counter(self) -> int:
        return self._columns.counter[self._place]

    @property
    def _at(self) -> float:
        return self._columns.at[self._place]

    def _read(self, counter: int, at: float) -> None:
        self._columns.counter[self._place] = counter
        self._columns.at[self._place] = at

    def _reach(self, second: int) -> None:
        """All of a second is written: whoever is killed before has not come to it, and what its
        place still has of a minute ago does not count."""
        self._columns.second[self._place] = second

    def _come_to(self, second: int) -> None:
        """Begin a second; nothing is known of those before it that were left out."""
        last = self.second
        if second != last + 1:
            # Those longer ago have been overwritten, or are skipped by the series itself.
            for missed in range(max(last + 1, second - TICK + 1), second):
                self._cpu.skip(missed)
                self._memory.skip(missed)
        if (second - 1) // TICK != (last - 1) // TICK:
            self._begin_tick()

    def _begin_tick(self) -> None:
        self._first, self._first_at = self._counter, self._at
        self._aside = self._aside_seconds = 0.0
        self._save()

    def _begin_anew(self, run: int, counter: int, at: float) -> None:
        """Nothing read before this can be compared with what is read after it."""
        self._aside += (self._counter - self._first) / BILLION
        self._aside_seconds += self._at - self._first_at
        self.run = run
        self._first, self._first_at = counter, at
        self._read(counter, at)
        self._save()

    def _cores(self, at: float, run: int, counter: int) -> float:
        """Used since the last reading; -1 if that cannot be said."""
        elapsed, used = at - self._at, counter - self._counter
        comparable = run == self.run and self._counter >= 0 and used >= 0 and elapsed >= 0
        if comparable and elapsed < SHORTEST:
            return UNKNOWN
        if not comparable or elapsed > LONGEST or counter < 0:
            self._begin_anew(run, counter, at)
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


def _tick(second: int) -> int:
    """The tick that a second is in."""
    return -(-second // TICK)
