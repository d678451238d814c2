"""TravelClock: the machine's clock, which tests can move forward and stop while a server runs."""

import asyncio
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kedge.machinery.clock import Clock, SystemClock

PACING_SECONDS: Final = 1.0
"""Shorter sleeps take their real time while the clock stands still. They are pauses before another
try, and a server that never tries again would not answer."""


class ClockReading(msgspec.Struct, frozen=True):
    """The state of a clock."""

    now: datetime
    offset: float
    """Seconds by which it is ahead of the machine's clock; negative after it stood still."""
    frozen: bool


class TravelClock:
    """Every sleeper wakes as soon as its time has come, also because the clock was moved."""

    def __init__(self, machine: Clock | None = None) -> None:
        self.machine: Clock = machine or SystemClock()
        """The clock of the machine."""
        self._offset = 0.0
        self._stopped: tuple[datetime, float] | None = None
        """Both times of a clock that stands still."""
        self._moved: asyncio.Event = asyncio.Event()
        """Set when the clock is moved, and then replaced."""

    def now(self) -> datetime:
        if self._stopped is not None:
            return self._stopped[0]
        return self.machine.now() + timedelta(seconds=self._offset)

    def monotonic(self) -> float:
        if self._stopped is not None:
            return self._stopped[1]
        return self.machine.monotonic() + self._offset

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await self.machine.sleep(0)
            return
        due = self.monotonic() + seconds
        while (left := due - self.monotonic()) > 0:
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

    @property
    def heartbeats(self) -> "HeartbeatClock":
        """The clock for the silence of nodes."""
        return HeartbeatClock(self)

    # Moving.

    @property
    def reading(self) -> ClockReading:
        offset = (self.now() - self.machine.now()).total_seconds()
        return ClockReading(self.now(), round(offset, 3), self._stopped is not None)

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and wake those whose time has come."""
        if seconds < 0:
            raise ValueError("a clock cannot go back")
        if self._stopped is None:
            self._offset += seconds
        else:
            now, monotonic = self._stopped
            self._stopped = now + timedelta(seconds=seconds), monotonic + seconds
        self._wake()

    def freeze(self) -> None:
        """Stop the clock."""
        if self._stopped is None:
            self._stopped = self.now(), self.monotonic()
            self._wake()

    def resume(self) -> None:
        """Let a clock that stands still continue from the time that it shows."""
        if self._stopped is not None:
            # Both times must continue without a jump; monotonic time is what sleepers count in.
            self._offset = self._stopped[1] - self.machine.monotonic()
            self._stopped = None
            self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class HeartbeatClock:
    """Shows the time of a TravelClock, and measures how long nodes are silent by the machine's
    clock: nodes do not travel, and one that missed a skipped hour has missed no heartbeat."""

    def __init__(self, travels: TravelClock) -> None:
        self._travels = travels
        self._machine = travels.machine

    def now(self) -> datetime:
        return self._travels.now()

    def monotonic(self) -> float:
        return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._machine.sleep(seconds)

    async def give_way(self) -> None:
        await self._machine.give_way()
