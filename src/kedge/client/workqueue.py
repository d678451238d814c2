"""WorkQueue: keys that need attention, each at most once, and failed ones less and less often."""

import asyncio
from collections import deque
from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Generic, TypeVar

import msgspec

from kedge.machinery.clock import Clock

K = TypeVar("K", bound=Hashable)


class Backoff(msgspec.Struct, frozen=True):
    """How long to wait after the first failure, and at most; it doubles in between."""

    first: float = 0.005
    most: float = 60.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        # Beyond 2**40 the limit has long been reached, and floats would overflow some day.
        return min(self.first * 2.0 ** min(failures - 1, 40), self.most)


class WorkQueue(Generic[K]):
    """Hands out keys to workers. A key that is added while it is worked on comes again after."""

    def __init__(self, clock: Clock, backoff: Backoff | None = None) -> None:
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        """Keys in `_ready`, and those that will be when their worker is done."""
        self._working: set[K] = set()
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        """When each delayed key comes up; what `_delayed` says otherwise is out of date."""
        self._order = count()
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._slept_until = -inf

    def __len__(self) -> int:
        """How many keys wait, those not counted that wait for their time."""
        return len(self._ready)

    def add(self, key: K) -> None:
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._working:
            self._ready.append(key)
            self._changed.set()

    def add_later(self, key: K, seconds: float) -> None:
        """Add a key when that much time has passed; one that comes up sooner anyway stays so."""
        due = self._now() + seconds
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heappush(self._delayed, (due, next(self._order), key))
        self._changed.set()

    def retry(self, key: K) -> int:
        """Add a key that failed, after a while; says how often it has failed in a row."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_later(key, self._backoff.delay(failures))
        return failures

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure is its first."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Return the next key; the caller must call `done` for it."""
        while True:
            self._promote()
            if self._ready:
                key = self._ready.popleft()
                self._waiting.discard(key)
                self._working.add(key)
                return key
            await self._change()

    def done(self, key: K) -> None:
        self._working.discard(key)
        if key in self._waiting:
            self._ready.append(key)
            self._changed.set()

    def _promote(self) -> None:
        """Add the delayed keys whose time has come."""
        now = self._now()
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heappop(self._delayed)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)

    async def _change(self) -> None:
        """Return when a key was added or the next delayed one is due."""
        self._changed.clear()
        if not self._delayed:
            await self._changed.wait()
            return
        async with asyncio.TaskGroup() as group:
            alarm = group.create_task(self._wake_at(self._delayed[0][0]))
            await self._changed.wait()
            alarm.cancel()

    async def _wake_at(self, due: float) -> None:
        await self._clock.sleep(due - self._now())
        self._slept_until = max(self._slept_until, due)
        self._changed.set()

    def _now(self) -> float:
        """The time, or the one until which this queue has slept: a clock that stands still lets
        short pauses pass without moving (travel_clock.py), and a retry must not wait for it."""
        return max(self._clock.monotonic(), self._slept_until)
