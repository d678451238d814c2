"""How tenants share the event loop: those that use little of it do not wait for the others.

The loop runs everything that is ready and then polls the sockets, so a request waits for the sum of
all that is ready. A tenant that floods the server from a hundred connections would make every turn
as long as a hundred of its requests. Therefore the requests of a tenant that uses much of the loop
wait in a queue of the tenant. In each turn, as many of them begin or go on as fit a part of a
millisecond, and none while a request of another tenant is under way, for some milliseconds. Other
tenants' requests begin when they are read.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

from kedge.machinery.turns import next_turn

BUSY_SECONDS: Final = 0.05
"""A tenant that has used more of the last second or so is busy."""
HALF_LIFE_SECONDS: Final = 0.5
TURN_SECONDS: Final = 0.0005
"""How long busy tenants may work in one turn, before another piece of their work waits."""
HELD_SECONDS: Final = 0.01
"""How long a request of a tenant that is not busy holds back the others."""
LONGEST_HOLD_SECONDS: Final = 0.02
"""How long many such requests may do so together."""
FREE_SECONDS: Final = 0.005
"""How long they may not, after that."""
LONGEST_PAUSE_SECONDS: Final = 0.05
"""After so long one request begins although the turn is full: streams of busy tenants may fill
every turn."""
MOST_REMEMBERED: Final = 4096

Worker = TypeVar("Worker")


class TenantLoad(Generic[Worker]):
    """The time that one tenant uses, and its work that waits."""

    __slots__ = ("_moment", "_turns", "_used", "waiting")

    def __init__(self, turns: "TenantTurns[Worker]") -> None:
        self._turns = turns
        self._used = 0.0
        """Seconds; half of them are forgotten in each half-life."""
        self._moment = 0.0
        self.waiting: deque[Worker] = deque()

    def used(self, now: float) -> float:
        """Return the seconds that the tenant has used recently."""
        return self._used * math.exp2((self._moment - now) / HALF_LIFE_SECONDS)

    def is_busy(self, now: float) -> bool:
        """Whether the tenant's requests have to wait for their turn."""
        return bool(self.waiting) or self.used(now) > BUSY_SECONDS

    def spend(self, begun: float, now: float) -> None:
        """Record work between two times."""
        self._used = self.used(now) + now - begun
        self._moment = now
        if self._used > BUSY_SECONDS:
            self._turns.spend(now - begun)


class TenantTurns(Generic[Worker]):
    """The tenants, and the turns of those that wait."""

    def __init__(self, monotonic: Callable[[], float], work: Callable[[Worker], None]) -> None:
        """`work` does the next piece of work that has waited."""
        self.monotonic = monotonic
        self._work = work
        self._loads: dict[str, TenantLoad[Worker]] = {}
        self._queue: deque[TenantLoad[Worker]] = deque()
        """Tenants with work that waits, the next one first."""
        self._is_arranged = False
        self._begun = 0.0
        """When work that waited was last begun."""
        self._spent = 0.0
        """Seconds that busy tenants have used in this turn."""
        self._others: dict[object, float] = {}
        """Requests of tenants that are not busy, and when they began, the newest last."""
        self._held_from = 0.0
        """When the hold that lasts began; 0 if there is none."""
        self._free_until = 0.0
        self._released: list[asyncio.Future[None]] = []
        """Done when the hold that lasts is over. Each task has its own: to cancel a task is to
        cancel what it waits for."""

    def load(self, tenant: str) -> TenantLoad[Worker]:
        """Return the load of a tenant, which its connections share."""
        found = self._loads.get(tenant)
        if found is None:
            if len(self._loads) >= MOST_REMEMBERED:
                now = self.monotonic()
                self._loads = {n: each for n, each in self._loads.items() if each.is_busy(now)}
            found = self._loads[tenant] = TenantLoad(self)
        return found

    # Requests that are under way.

    def begin(self, request: object, load: TenantLoad[Worker]) -> None:
        """Note that a request is under way."""
        now = self.monotonic()
        if not load.is_busy(now):
            self._others[request] = now

    def end(self, request: object) -> None:
        """Note that a request is done, or sends a stream."""
        self._others.pop(request, None)
        if not self._others:
            self._release()

    def spend(self, seconds: float) -> None:
        """Count time of busy tenants in this turn."""
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._spent += seconds

    def _end_turn(self) -> None:
        self._spent = 0.0

    def pause(self, load: TenantLoad[Worker]) -> Generator[Any, None, None] | None:
        """Return what work of a tenant has to wait for before it goes on; None for nothing."""
        now = self.monotonic()
        if not load.is_busy(now):
            return None
        if (seconds := self._hold(now)) > 0:
            return self._hold_over(seconds).__await__()
        return next_turn() if self._spent >= TURN_SECONDS else None

    # Work that waits.

    def wait(self, load: TenantLoad[Worker], worker: Worker) -> None:
        """Let work of a tenant wait for its turn."""
        if not load.waiting:
            self._queue.append(load)
        load.waiting.append(worker)
        self._arrange()

    def _arrange(self) -> None:
        if not self._is_arranged:
            self._is_arranged = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Begin what fits this turn, one piece of work of each tenant after the other."""
        self._is_arranged = False
        while self._queue:
            now = self.monotonic()
            if self._spent >= TURN_SECONDS and now < self._begun + LONGEST_PAUSE_SECONDS:
                break
            if (seconds := self._hold(now)) > 0:
                self._is_arranged = True
                self._hold_over(seconds).add_done_callback(lambda _: self._turn())
                return
            load = self._queue.popleft()
            worker = load.waiting.popleft()
            if load.waiting:
                self._queue.append(load)
            self._begun = now
            self._work(worker)
        if self._queue:
            self._arrange()

    # Holds.

    def _hold(self, now: float) -> float:
        """Return for how many seconds requests of other tenants hold back the busy ones."""
        newest = next(reversed(self._others.values()), -math.inf)
        if now < self._free_until or now >= newest + HELD_SECONDS:
            self._held_from = 0.0
            return 0.0
        self._held_from = self._held_from or now
        if now >= self._held_from + LONGEST_HOLD_SECONDS:
            self._held_from, self._free_until = 0.0, now + FREE_SECONDS
            return 0.0
        return min(newest + HELD_SECONDS, self._held_from + LONGEST_HOLD_SECONDS) - now

    def _hold_over(self, seconds: float) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        if not self._released:
            loop.call_later(seconds, self._release)
        self._released.append(future := loop.create_future())
        return future

    def _release(self) -> None:
        released, self._released = self._released, []
        for future in released:
            if not future.done():
                future.set_result(None)


class MeteredWork(Coroutine[Any, Any, None]):
    """A coroutine that runs in turns with other tenants, and whose time is recorded."""

    __slots__ = ("_load", "_turns", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, None], load: TenantLoad[Any], turns: TenantTurns[Any]
    ) -> None:
        self._work = work
        self._load = load
        self._turns = turns

    def send(self, value: Any) -> Any:
        pause = self._turns.pause(self._load)
        if pause is not None:
            return next(pause)  # the task calls again when it is over
        begun = self._turns.monotonic()
        try:
            return self._work.send(value)
        finally:
            self._load.spend(begun, self._turns.monotonic())

    def throw(self, *error: Any) -> Any:
        begun = self._turns.monotonic()
        try:
            return self._work.throw(*error)
        finally:
            self._load.spend(begun, self._turns.monotonic())

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, None, None]:
        return self._work.__await__()
