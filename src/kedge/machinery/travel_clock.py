"""TravelClock: the machine's clock, which tests can move forward and stop while a server runs."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from kedge.machinery.clock import Clock, SystemClock

PACING_SECONDS: Final = 1.0
"""Shorter sleeps take their real time while the clock stands still. They are pauses before another
try, and a server that never tries again would not answer."""
MOST_STRETCHES: Final = 1000
"""Changes of a clock that are remembered; times before the oldest are read by the oldest."""


class ClockReading(msgspec.Struct, frozen=True):
    """The state of a clock."""

    now: datetime
    offset: float
    """Seconds by which it is ahead of the machine's clock; negative after it stood still."""
    frozen: bool


class ClockStretch(msgspec.Struct, frozen=True, array_like=True):
    """The time of a cluster from one change of its clock to the next."""

    since: float
    """Seconds since the epoch, by the machine's clock."""
    ahead: float = 0.0
    """Seconds by which the cluster's time is ahead, at the beginning of the stretch."""
    frozen: bool = False

    def at(self, machine: float) -> float:
        """Return the cluster's time at a moment of the machine's clock."""
        return (self.since if self.frozen else machine) + self.ahead


class TravelClock:
    """Every sleeper wakes as soon as its time has come, also because the clock was moved.

    The clock of a server is moved by its owner; that of a node follows the server's (`follow`).
    """

    def __init__(self, machine: Clock | None = None) -> None:
        self.machine: Clock = machine or SystemClock()
        """The clock of the machine."""
        self._stretches: list[ClockStretch] = [ClockStretch(0.0)]
        self._offset = 0.0
        """Seconds by which `monotonic` is ahead of the machine's, unless the clock stands still."""
        self._stopped: float | None = None
        """The value of `monotonic` while the clock stands still."""
        self._held = 0.0
        """Seconds that were skipped and do not count for the silence of nodes."""
        self._pending = 0.0
        """Those of `_held` that will count when the nodes have followed."""
        self._moved: asyncio.Event = asyncio.Event()
        """Set when the clock is moved, and then replaced."""

    def now(self) -> datetime:
        last, machine = self._stretches[-1], self.machine.now()
        if last.frozen:
            machine = datetime.fromtimestamp(last.since, UTC)
        return machine + timedelta(seconds=last.ahead)

    def monotonic(self) -> float:
        if self._stopped is not None:
            return self._stopped
        return self.machine.monotonic() + self._offset

    async def sleep(self, seconds: float) -> None:
        await self.sleep_by(self.monotonic, seconds)

    async def sleep_by(self, monotonic: Callable[[], float], seconds: float) -> None:
        """Sleep until a clock that moves with this one has moved by so many seconds."""
        if seconds <= 0:
            await self.machine.sleep(0)
            return
        due = monotonic() + seconds
        while (left := due - monotonic()) > 0:
            if self._stopped is not None and seconds <= PACING_SECONDS:
                await self.machine.sleep(seconds)
                return
            await self._wait(None if self._stopped is not None else left)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for so long, or until the clock is moved."""
        moved = self._moved
        try:
            async with asyncio.timeout(seconds):
                await moved.wait()
        except TimeoutError:
            pass

    async def give_way(self) -> None:
        await self.machine.give_way()

    # Other views of the same time.

    @property
    def heartbeats(self) -> "HeartbeatClock":
        """The clock for the silence of nodes."""
        return HeartbeatClock(self)

    @property
    def measured(self) -> "UsageClock":
        """The clock for measured usage."""
        return UsageClock(self)

    def cluster_nanoseconds(self, machine: int) -> int:
        """Return the cluster's time at a moment of the machine's clock that has passed, both in
        nanoseconds since the epoch. 0 stands for no time, and stays so."""
        if not machine:
            return 0
        place = bisect_right(self._stretches, machine / 1e9, key=lambda stretch: stretch.since)
        stretch = self._stretches[max(place - 1, 0)]
        moment = int(stretch.since * 1e9) if stretch.frozen else machine
        return moment + int(stretch.ahead * 1e9)

    # Moving.

    @property
    def reading(self) -> ClockReading:
        offset = (self.now() - self.machine.now()).total_seconds()
        return ClockReading(self.now(), round(offset, 3), self._stopped is not None)

    @property
    def stretches(self) -> Sequence[ClockStretch]:
        """The course of this clock, oldest first."""
        return tuple(self._stretches)

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and wake those whose time has come. The seconds do not count for
        the silence of nodes until `release`, and never after `withhold`."""
        if seconds < 0:
            raise ValueError("a clock cannot go back")
        self._held += seconds
        self._pending += seconds
        if self._stopped is None:
            self._offset += seconds
        else:
            self._stopped += seconds
        self._turn(seconds, frozen=self._stopped is not None)

    def release(self, seconds: float) -> None:
        """Let seconds of an advance count for the silence of nodes, too."""
        self._held -= seconds
        self._pending -= seconds
        self._wake()

    def withhold(self, seconds: float) -> None:
        """Let seconds of an advance never count for the silence of nodes."""
        self._pending -= seconds

    def freeze(self) -> None:
        """Stop the clock."""
        if self._stopped is None:
            self._stopped = self.monotonic()
            self._turn(0.0, frozen=True)

    def resume(self) -> None:
        """Let a clock that stands still continue from the time that it shows."""
        if self._stopped is not None:
            # Both times must continue without a jump; monotonic time is what sleepers count in.
            self._offset = self._stopped - self.machine.monotonic()
            self._stopped = None
            self._turn(0.0, frozen=False)

    def follow(self, stretches: Sequence[ClockStretch]) -> None:
        """Take over the course of the server's clock. The time goes back if the server has begun
        again with the machine's; `monotonic` never does."""
        before, monotonic = self.now(), self.monotonic()
        self._stretches = list(stretches) or [ClockStretch(0.0)]
        monotonic += max((self.now() - before).total_seconds(), 0.0)
        self._offset = monotonic - self.machine.monotonic()
        self._stopped = monotonic if self._stretches[-1].frozen else None
        self._wake()

    def _turn(self, seconds: float, *, frozen: bool) -> None:
        """Begin a stretch that is so many seconds ahead of what the clock shows."""
        machine = self.machine.now().timestamp()
        ahead = self._stretches[-1].at(machine) - machine + seconds
        self._stretches.append(ClockStretch(machine, ahead, frozen))
        del self._stretches[:-MOST_STRETCHES]
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class HeartbeatClock:
    """Measures how long nodes are silent. A skipped hour counts once all nodes have had the
    opportunity to renew their leases after it: no node is silent because it followed late."""

    def __init__(self, travels: TravelClock) -> None:
        self._travels = travels

    def now(self) -> datetime:
        return self._travels.now()

    def monotonic(self) -> float:
        return self._travels.monotonic() - self._travels._held

    def monotonic_of_sign(self) -> float:
        """Return when a node was heard of that is heard of now. While nodes follow a skipped hour,
        that is at its end: otherwise those that renew their leases first would be silent for it."""
        return self.monotonic() + self._travels._pending

    async def sleep(self, seconds: float) -> None:
        await self._travels.sleep_by(self.monotonic, seconds)

    async def give_way(self) -> None:
        await self._travels.give_way()


class UsageClock:
    """Stamps usage with the cluster's time, and measures the time between two readings by the
    machine's clock: counters of the kernel do not travel. A skipped hour is a gap in the data, and
    nothing that was used while the clock stood still seems to be used at once."""

    def __init__(self, travels: TravelClock) -> None:
        self._travels = travels
        self.machine = travels.machine

    def now(self) -> datetime:
        return self._travels.now()

    def monotonic(self) -> float:
        return self.machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._travels.sleep(seconds)

    async def give_way(self) -> None:
        await self._travels.give_way()


def sign_of_life(clock: Clock) -> float:
    """Return the moment at which a node was heard of that is heard of now."""
    return clock.monotonic_of_sign() if isinstance(clock, HeartbeatClock) else clock.monotonic()
