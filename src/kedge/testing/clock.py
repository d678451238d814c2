"""FakeClock: time that stands still until a test moves it."""

import asyncio
import types
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count

from kedge.machinery.turns import Turns

SETTLING = 20
"""Turns of the event loop that woken tasks get, to act and perhaps to sleep again."""


class FakeClock:
    """A Clock for tests: `await clock.advance(60)` wakes each sleeper at its own moment."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self.suspended = 0.0
        """Seconds in which the machine was suspended: only the clock of leases counts them."""
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    @property
    def leases(self) -> "FakeLeaseClock":
        return FakeLeaseClock(self)

    async def sleep(self, seconds: float) -> None:
        wakeup: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (self._elapsed + seconds, next(self._order), wakeup))
        await wakeup

    async def give_way(self) -> None:
        """Return immediately: no time passes, so no share is used up."""

    async def advance(self, seconds: float) -> None:
        """Let that much time pass, and let those who wake meanwhile have their turn."""
        target = self._elapsed + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            moment, _, wakeup = heappop(self._sleepers)
            self._elapsed = max(self._elapsed, moment)
            if not wakeup.done():
                wakeup.set_result(None)
                await _settle()
        self._elapsed = target
        await _settle()


class FakeLeaseClock:
    """The clock of leases beside a FakeClock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.now = clock.now
        self.sleep = clock.sleep
        self.give_way = clock.give_way

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._clock.suspended


class BusyClock(FakeClock):
    """A FakeClock for tests of long work: `spend` is work that holds the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = Turns(self.monotonic)
        self.slices: list[float] = []
        """Seconds that were spent in each turn of the event loop during `observe`."""

    def spend(self, seconds: float) -> None:
        self._elapsed += seconds

    async def give_way(self) -> None:
        await self._turns.give_way()

    async def observe(self, is_over: Callable[[], bool]) -> None:
        """Record the seconds of each turn of the event loop, for which a request would wait."""
        while not is_over():
            before = self._elapsed
            await _turn()
            if self._elapsed > before:
                self.slices.append(self._elapsed - before)


async def _settle() -> None:
    for _ in range(SETTLING):
        await _turn()


@types.coroutine
def _turn() -> Generator[None, None, None]:
    """Give all other tasks of the event loop one turn."""
    yield
