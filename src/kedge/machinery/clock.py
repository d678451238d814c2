"""Time as a dependency: code that waits or stamps takes a Clock, so that no test sleeps."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn, Protocol

if TYPE_CHECKING:
    from kedge.machinery.turns import Turns


class Clock(Protocol):
    """The source of time."""

    def now(self) -> datetime:
        """The wall-clock time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        ...

    async def give_way(self) -> None:
        """Return immediately, or after a turn of the event loop if background work has used its
        share.

        A loop whose length a user chooses calls this in each round.
        """
        ...


class SystemClock:
    """The machine's own clock."""

    def __init__(self) -> None:
        self._turns: Turns | None = None

    def now(self) -> datetime:
        return datetime.now(UTC)

    # Not a method that calls it: a request asks for the time eight times.
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        # Commands that only ask for the time start sooner without it.
        import asyncio

        await asyncio.sleep(seconds)

    async def give_way(self) -> None:
        if self._turns is None:
            from kedge.machinery.turns import Turns

            self._turns = Turns(self.monotonic)
        await self._turns.give_way()

    @property
    def leases(self) -> "SystemClock":
        found = SuspendClock()
        try:
            found.monotonic()
        except OSError:
            return self  # some sandboxes lack this clock
        return found


class SuspendClock(SystemClock):
    """The machine's clock, whose `monotonic` goes on while the machine is suspended. Sleeps do not
    end sooner for that."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def machine_clock(clock: Clock) -> Clock:
    """Return the clock of the machine, for dealings with processes and the network: connections,
    timeouts, grace periods and certificates. It differs only in clusters for tests
    (travel_clock.py), and so do those below."""
    found: Clock = getattr(clock, "machine", clock)
    return found


def lease_clock(clock: Clock) -> Clock:
    """Return the clock by which servers measure for how long they may rely on one another: the
    machine's, which counts the time that it was suspended. Others went on meanwhile."""
    machine = machine_clock(clock)
    found: Clock = getattr(machine, "leases", machine)
    return found


def heartbeat_clock(clock: Clock) -> Clock:
    """Return the clock by which the silence of nodes is measured."""
    found: Clock = getattr(clock, "heartbeats", clock)
    return found


def usage_clock(clock: Clock) -> Clock:
    """Return the clock for measured usage."""
    found: Clock = getattr(clock, "measured", clock)
    return found


def cluster_nanoseconds(clock: Clock) -> Callable[[int], int] | None:
    """Return a function that converts times of the machine's clock, in nanoseconds since the epoch;
    None if they are times of the cluster already."""
    return getattr(clock, "cluster_nanoseconds", None)


async def every(seconds: float, act: Callable[[], Awaitable[None]], clock: Clock) -> NoReturn:
    """Do that again and again, with so much time in between and before; until cancelled."""
    while True:
        await clock.sleep(seconds)
        await act()
