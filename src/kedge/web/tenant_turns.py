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
_STEPS_REMEMBERED: Final = 16
"""Over about how many steps their length is averaged."""
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
        """Record work between two times, and count it in this turn."""
        self.record(begun, now)
        if self._used > BUSY_SECONDS:
            self._turns.spend(now - begun)

    def record(self, begun: float, now: float) -> None:
        """Record work between two times that its turn has counted before."""
        self._used = self.used(now) + now - begun
        self._moment = now


class TenantHolds:
    """Requests of tenants that are not busy, which hold back the busy ones."""

    def __init__(self) -> None:
        self._requests: dict[object, float] = {}
        """When they began, the newest last."""
        self._held_from = 0.0
        """When the hold that lasts began; 0 if there is none."""
        self._free_until = 0.0

    def begin(self, request: object, now: float) -> None:
        """Note that a request is under way."""
        self._requests[request] = now

    def end(self, request: object) -> bool:
        """Note that a request is done; returns whether it was the last one."""
        return self._requests.pop(request, None) is not None and not self._requests

    def seconds(self, now: float) -> float:
        """Return for how long the busy tenants are held back; 0 if they are not."""
        newest = next(reversed(self._requests.values()), -math.inf)
        if now < self._free_until or now >= newest + HELD_SECONDS:
            self._held_from = 0.0
            return 0.0
        self._held_from = self._held_from or now
        if now >= self._held_from + LONGEST_HOLD_SECONDS:
            self._held_from, self._free_until = 0.0, now + FREE_SECONDS
            return 0.0
        return min(newest + HELD_SECONDS, self._held_from + LONGEST_HOLD_SECONDS) - now


class TenantTurns(Generic[Worker]):
    """The tenants, and the turns of those that wait."""

    def __init__(self, monotonic: Callable[[], float], work: Callable[[Worker], None]) -> None:
        """`work` does the next piece of work that has waited."""
        self.monotonic = monotonic
        self._work = work
        self._loads: dict[str, TenantLoad[Worker]] = {}
        self._queue: deque[TenantLoad[Worker]] = deque()
        """Tenants with work that waits, the next one first."""
        self._steps: deque[asyncio.Future[None]] = deque()
        """Steps of requests that have begun, the next one first."""
        self._step_seconds = TURN_SECONDS
        """How long a step takes, about."""
        self._is_arranged = False
        self._timer: asyncio.TimerHandle | None = None
        """Arranges the next turn when the hold that lasts is over."""
        self._begun = 0.0
        """When work that waited was last begun."""
        self._spent = 0.0
        """Seconds that busy tenants have used in this turn."""
        self._holds = TenantHolds()

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
            self._holds.begin(request, now)

    def end(self, request: object) -> None:
        """Note that a request is done, or sends a stream."""
        if self._holds.end(request) and self._timer is not None:
            self._timer.cancel()
            self._resume()

    def spend(self, seconds: float) -> None:
        """Count time of busy tenants in this turn."""
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._spent += seconds

    def _end_turn(self) -> None:
        self._spent = 0.0

    def pause(self, load: TenantLoad[Worker]) -> "asyncio.Future[None] | None":
        """Return what a step of a tenant's work has to wait for; None for nothing."""
        now = self.monotonic()
        if not load.is_busy(now):
            return None
        is_free = not self._steps and self._spent < TURN_SECONDS
        if is_free and not self._holds.seconds(now):
            return None
        # Each step has its own: to cancel a task is to cancel what it waits for.
        self._steps.append(step := asyncio.get_running_loop().create_future())
        self._arrange()
        return step

    def pause_again(self) -> "asyncio.Future[None] | None":
        """Return what a step whose turn has come has to wait for, if it is held back since then."""
        if not self._holds.seconds(self.monotonic()):
            return None
        self._steps.appendleft(step := asyncio.get_running_loop().create_future())
        self._arrange()
        return step

    def took(self, begun: float, now: float) -> None:
        """Learn how long steps take."""
        self._step_seconds += (now - begun - self._step_seconds) / _STEPS_REMEMBERED

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

    def _resume(self) -> None:
        self._timer, self._is_arranged = None, False
        self._arrange()

    def _turn(self) -> None:
        """Continue and begin what fits this turn: a step of a request that waits for its turn, and
        a request of the next tenant, and so on."""
        self._is_arranged = False
        while self._queue or self._steps:
            now = self.monotonic()
            if self._spent >= TURN_SECONDS and now < self._begun + LONGEST_PAUSE_SECONDS:
                break
            if seconds := self._holds.seconds(now):
                self._is_arranged = True
                self._timer = asyncio.get_running_loop().call_later(seconds, self._resume)
                return
            self._begun = now
            self._continue_step()
            self._begin_work()
        if self._queue or self._steps:
            self._arrange()

    def _continue_step(self) -> None:
        """Let one step go on. It runs after this call, so its time is counted in advance: a turn
        that woke all steps, to see which of them fit, would be as long as there are many."""
        while self._steps:
            step = self._steps.popleft()
            if not step.done():
                step.set_result(None)
                self.spend(self._step_seconds)
                return

    def _begin_work(self) -> None:
        if self._queue:
            load = self._queue.popleft()
            worker = load.waiting.popleft()
            if load.waiting:
                self._queue.append(load)
            self._work(worker)


class MeteredWork(Coroutine[Any, Any, None]):
    """A coroutine that runs in turns with other tenants, and whose time is recorded."""

    __slots__ = ("_has_waited", "_load", "_turns", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, None], load: TenantLoad[Any], turns: TenantTurns[Any]
    ) -> None:
        self._work = work
        self._load = load
        self._turns = turns
        self._has_waited = False

    def send(self, value: Any) -> Any:
        turns = self._turns
        pause = turns.pause_again() if self._has_waited else turns.pause(self._load)
        if pause is not None:
            self._has_waited = True
            return next(pause.__await__())  # the task calls again when it is over
        begun = turns.monotonic()
        try:
            return self._work.send(value)
        finally:
            now = turns.monotonic()
            turns.took(begun, now)
            if self._has_waited:
                self._has_waited = False
                self._load.record(begun, now)
            else:
                self._load.spend(begun, now)

    def throw(self, *error: Any) -> Any:
        self._has_waited = False
        begun = self._turns.monotonic()
        try:
            return self._work.throw(*error)
        finally:
            self._load.spend(begun, self._turns.monotonic())

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, None, None]:
        return self._work.__await__()
