"""Time as a dependency: whoever waits or stamps takes a Clock, so that no test sleeps."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NoReturn, Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """The wall-clock time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        # Commands that only ask for the time start sooner without it.
        import asyncio

        await asyncio.sleep(seconds)


async def every(seconds: float, deed: Callable[[], Awaitable[None]], clock: Clock) -> NoReturn:
    """Do that again and again, with so much time in between and before; until cancelled."""
    while True:
        await clock.sleep(seconds)
        await deed()
