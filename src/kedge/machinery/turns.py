"""Turns of the event loop: background work gets a share of each turn, requests get the rest."""

import asyncio
import logging
import types
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, Protocol

log = logging.getLogger(__name__)

SHARE_SECONDS: Final = 0.01
"""How long all background work together may hold the event loop before sockets are polled."""


class Turns:
    """Lets background work run until its share of the turn is spent, then one waiter per turn.

    A turn of an event loop runs all ready tasks and then polls the sockets, so a request waits
    for the sum of all ready tasks, not for the longest of them. A budget per task would
    therefore bound nothing: a hundred workers with ten milliseconds each are a second. The
    budget belongs to the loop, and tasks that come when it is spent wait in order. Each turn
    wakes one of them, so none starves.

    A computation between two calls of `give_way` is not interrupted: loops whose length a user
    chooses call it in each round.
    """

    def __init__(
        self, monotonic: Callable[[], float], *, share_seconds: float = SHARE_SECONDS
    ) -> None:
        self._monotonic = monotonic
        self._share = share_seconds
        self._began: float | None = None
        """When the first background work of this turn began; None if there was none."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def give_way(self) -> None:
        """Return immediately while the share of this turn lasts, else in a later turn."""
        loop = asyncio.get_running_loop()
        if self._began is None:
            self._begin(loop)
            return
        if self._monotonic() - self._began < self._share:
            return
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._began = self._monotonic()
        loop.call_soon(self._end, loop)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the first waiter, after the sockets were polled."""
        self._began = None
        while self._waiting:
            waiter = self._waiting.popleft()
            # A task that was cancelled while it waited needs no turn.
            if not waiter.done():
                waiter.set_result(None)
                self._begin(loop)
                return


class TurnShare:
    """Tells whether work of one sort has used its share of this turn of the event loop.

    For callbacks, which cannot wait as `Turns.give_way` does: they put their work off instead.
    """

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._began: float | None = None

    def is_left(self) -> bool:
        """Return whether more work may begin. The first call of a turn begins the share."""
        if self._began is None:
            self._began = self._monotonic()
            asyncio.get_running_loop().call_soon(self._end)
            return True
        return self._monotonic() - self._began < self._seconds

    def _end(self) -> None:
        self._began = None


class Step(Protocol):
    """Work for one peer."""

    def advance(self) -> None:
        """Do the next part of it."""
        ...


class StepTurns:
    """Shares the time for one sort of work among all peers, first come, first served: short steps
    of many peers, a few per turn of the event loop.

    The event loop tells all connections of their bytes in one turn. So what many peers send would
    add up to one long turn.
    """

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        """`seconds` is how long steps are done per turn as bytes are read, and as long again for
        those that waited."""
        self._monotonic = monotonic
        self._seconds = seconds
        self._share = TurnShare(monotonic, seconds)
        self._waiting: deque[Step] = deque()
        self._is_arranged = False

    @property
    def waiting(self) -> int:
        """How many steps wait for their turn."""
        return len(self._waiting)

    def is_free(self) -> bool:
        """Return whether this turn has time for a step that has not waited."""
        return not self._waiting and self._share.is_left()

    def wait(self, step: Step) -> None:
        """Do a step in a later turn, after those that wait already."""
        self._waiting.append(step)
        self._arrange()

    def _arrange(self) -> None:
        if self._waiting and not self._is_arranged:
            self._is_arranged = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        until = self._monotonic() + self._seconds
        while self._waiting:
            try:
                # It may wait again.
                self._waiting.popleft().advance()
            except Exception:
                log.exception("step failed")
            if self._monotonic() >= until:
                break
        self._is_arranged = False
        self._arrange()


@types.coroutine
def next_turn() -> Generator[None, None, None]:
    """Wait one turn of the event loop."""
    yield
