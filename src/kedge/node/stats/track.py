"""Track: what one measured thing has used, from its counters to its windows."""

from array import array
from typing import Final, NamedTuple

from kedge.api.metrics_v1alpha1.frame import UNKNOWN
from kedge.api.metrics_v1alpha1.row import row
from kedge.machinery.window_store import STATE, STATE_AT, Slot
from kedge.machinery.windows import CPU, MEMORY, TICK, Series
from kedge.node.stats.cgroup import Reading

_SHORTEST: Final = 0.25
"""Seconds below which a difference of two readings says too little: the next one is waited for."""
_LONGEST: Final = float(TICK)
"""Seconds above which it says nothing of any one second."""
_MINUTE: Final = 60
_BILLION: Final = 1_000_000_000


class Latest(NamedTuple):
    """The last reading."""

    time: float
    """Seconds since the epoch."""
    reading: Reading
    cores: float
    """Over the time since the reading before; -1 if that is not known."""


class Track:
    """One measured thing. Seconds and ticks only ever grow; whoever calls sees to that."""

    __slots__ = (
        "_at",
        "_counter",
        "_cpu",
        "_cpu_seconds",
        "_cpu_used",
        "_latest",
        "_memory",
        "_memory_seconds",
        "_memory_used",
        "_run",
        "_save_to",
        "_second",
        "_slot",
        "since",
    )

    def __init__(self, slot: Slot, tick: int, *, same_boot: bool) -> None:
        """Go on with what a slot knows, after this tick if it knows of none."""
        state = slot.load()
        self._slot = slot
        self._save_to = STATE.pack_into
        self.since = state.since
        """The second at which it was first measured; 0 if that is yet to come."""
        self._latest: tuple[float, Reading, float] | None = None
        self._run = state.run
        self._counter = state.counter if same_boot else -1
        self._at = state.at
        self._cpu_used, self._cpu_seconds = state.cpu, state.cpu_seconds
        self._memory_used, self._memory_seconds = state.memory, state.memory_seconds
        self._cpu = Series(slot.cpu, CPU, state.tick or tick)
        self._memory = Series(slot.working_set, MEMORY, state.tick or tick)
        self._second = state.second
        """The last of which something is written; the sums are of the tick that it is in."""

    @property
    def slot(self) -> Slot:
        return self._slot

    @property
    def tick(self) -> int:
        """The last that was closed."""
        return self._cpu.tick

    @property
    def latest(self) -> Latest | None:
        """The last reading; None if this process has read nothing yet."""
        return None if self._latest is None else Latest._make(self._latest)

    @property
    def pending(self) -> bool:
        """Whether something is written of a tick that has not been closed."""
        return _tick(self._second) > self.tick

    def settle(self, second: int) -> None:
        """Close the tick that was left open, if it is over."""
        if self.pending and _tick(self._second) < _tick(second):
            self._close(_tick(self._second))

    def start_from(self, run: int, at: float) -> None:
        """It began at that moment and had used nothing before."""
        self._run, self._counter, self._at = run, 0, at

    def sample(self, second: int, at: float, time: float, run: int, reading: Reading) -> None:
        """What was read for this second; `at` by the clock that begins with the machine."""
        if second == self._second + 1 and second % TICK != 1:
            self._second = second
        else:
            self._reach(second)
        counter, memory = reading
        # Of all that is done each second this is done most often, and so without calls.
        elapsed, last = at - self._at, self._counter
        if _SHORTEST <= elapsed <= _LONGEST and 0 <= last <= counter and run == self._run:
            self._counter, self._at = counter, at
            used = (counter - last) / _BILLION
            self._cpu_used += used
            self._cpu_seconds += elapsed
            cores = used / elapsed
        else:
            cores = self._cores(at, run, counter)
        place = second % _MINUTE
        self._cpu.seconds[place] = cores
        self._memory.seconds[place] = memory
        if memory >= 0:
            self._memory_used += memory
            self._memory_seconds += 1.0
        self._latest = (time, reading, cores)
        if not self.since:
            self.since = second
        self._save()

    def skip(self, second: int) -> None:
        """Nothing was read."""
        self._reach(second)
        self._cpu.skip(second)
        self._memory.skip(second)

    def close(self, tick: int) -> None:
        """A tick has ended; an earlier one may have been left open."""
        self.settle(tick * TICK)
        self._close(tick)

    def _close(self, tick: int) -> None:
        if self._second != tick * TICK:
            self.skip(tick * TICK)
        cpu, seconds = self._cpu_used, self._cpu_seconds
        self._cpu.close(tick, cpu / (seconds or 1.0), seconds)
        memory, seconds = self._memory_used, self._memory_seconds
        self._memory.close(tick, memory / (seconds or 1.0), seconds)
        self._save()

    def move(self, second: int) -> None:
        """Time has been set back, or the slot is from the future: what is known stays known, as
        if it had been measured just before this second."""
        for passed in range(second - _MINUTE, second):
            self._cpu.skip(passed)
            self._memory.skip(passed)
        tick = _tick(second) - 1
        self._cpu = Series(self._slot.cpu, CPU, tick)
        self._memory = Series(self._slot.working_set, MEMORY, tick)
        self._second = second - 1
        self._forget_sums()
        self.since = min(self.since, second)
        self._save()

    def row(self) -> "array[float]":
        """The numbers of all windows, in the order of a frame."""
        return row(self._cpu, self._memory)

    def _reach(self, second: int) -> None:
        """Come to a second; nothing is known of those before it that were left out."""
        last, self._second = self._second, second
        if second != last + 1:
            # Those longer ago have been overwritten, or are skipped by the series itself.
            for missed in range(max(last + 1, second - TICK + 1), second):
                self._cpu.skip(missed)
                self._memory.skip(missed)
        if (second - 1) // TICK != (last - 1) // TICK:
            self._forget_sums()

    def _forget_sums(self) -> None:
        self._cpu_used = self._cpu_seconds = self._memory_used = self._memory_seconds = 0.0

    def _cores(self, at: float, run: int, counter: int) -> float:
        """Used since the last reading; -1 if that cannot be said."""
        elapsed, used = at - self._at, counter - self._counter
        comparable = run == self._run and self._counter >= 0 and used >= 0 and elapsed >= 0
        if comparable and elapsed < _SHORTEST:
            return UNKNOWN
        self._run, self._counter, self._at = run, counter, at
        if not comparable or elapsed > _LONGEST or counter < 0:
            return UNKNOWN
        seconds = used / _BILLION
        self._cpu_used += seconds
        self._cpu_seconds += elapsed
        return seconds / elapsed

    def _save(self) -> None:
        self._save_to(
            self._slot.memory,
            STATE_AT,
            self.since,
            self._run,
            self._cpu.tick,
            self._second,
            self._counter,
            self._at,
            self._cpu_used,
            self._cpu_seconds,
            self._memory_used,
            self._memory_seconds,
        )


def _tick(second: int) -> int:
    """The tick that a second is in."""
    return -(-second // TICK)
