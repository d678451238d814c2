"""WriterQueue: requests for the writer's thread, in which tenants take turns."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from kedge.machinery.tenant import current_tenant
from kedge.storage.store import StoreEntry, StoreEvent, delete_event, put_event

MANY: Final = 16
"""Writes of one tenant in a group after which the tenant rests. One that writes from fewer
connections does not flood, and would only be slower."""
LONGEST_REST_SECONDS: Final = 0.005


class Write:
    """A put or, without a value, a deletion, waiting for the writer."""

    __slots__ = ("deadline", "expect", "future", "key", "tenant", "value")

    def __init__(
        self, key: str, value: bytes | None, expect: int, deadline: int, future: asyncio.Future[Any]
    ) -> None:
        self.key = key
        self.value = value
        self.expect = expect
        self.deadline = deadline
        self.future = future
        self.tenant = current_tenant()

    def event(self, current: StoreEntry | None, revision: int) -> StoreEvent:
        if self.value is None:
            return delete_event(current, self.key, self.expect, revision)
        return put_event(current, self.key, self.value, self.expect, revision)


class WriterTask:
    """Anything else the writer does between two groups; yields events and a result."""

    __slots__ = ("future", "work")

    def __init__(
        self, work: Callable[[], tuple[list[StoreEvent], Any]], future: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.future = future


class WriterQueue:
    """Requests of any thread for the writer.

    A group of writes contains one of each tenant, then a second one, and so on. The write of a
    tenant that writes little is in the next group, however many writes of others wait. Writes of
    different tenants may change places: none of them is acknowledged.

    A tenant that has had many writes in a group rests as long as the group took. More of
    its writes arrive, which then share one commit, and the disk is free for the others: a write
    does not wait for a commit under way each time, and does not share its own with a flood.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._arrived: SimpleQueue[Write | WriterTask | None] = SimpleQueue()
        self._writes: dict[str, deque[Write]] = {}
        """The writes that wait, by tenant, the next tenant first."""
        self._tasks: list[WriterTask] = []
        self._is_closed = False
        self._resting: frozenset[str] = frozenset()
        """Tenants whose writes wait until the rest is over."""
        self._rest_until = 0.0

    def put(self, request: Write | WriterTask) -> None:
        self._arrived.put(request)

    def close(self) -> None:
        """Let the writer end after what is queued."""
        self._arrived.put(None)

    @property
    def has_ended(self) -> bool:
        """Whether the queue is closed and everything was taken."""
        return self._is_closed and not self._writes

    def take(self, most: int, idle_seconds: float | None) -> tuple[list[Write], list[WriterTask]]:
        """Return the next writes and all tasks; nothing after an idle time."""
        while True:
            while not self._arrived.empty():
                self._sort(self._arrived.get_nowait())
            now = self._monotonic()
            if self._is_closed or now >= self._rest_until:
                self._resting = frozenset()
            writes = self._next_writes(most)
            if writes or self._tasks or self._is_closed:
                tasks, self._tasks = self._tasks, []
                return writes, tasks
            has_resting = bool(self._writes)
            try:
                timeout = self._rest_until - now if has_resting else idle_seconds
                self._sort(self._arrived.get(timeout=timeout))
            except Empty:
                if not has_resting:
                    return [], []

    def rest(self, group: Sequence[Write], seconds: float) -> None:
        """Let tenants rest that had many writes in a group, which took so long."""
        counts = Counter(write.tenant for write in group)
        if many := frozenset(name for name, count in counts.items() if count >= MANY):
            self._resting = many
            self._rest_until = self._monotonic() + min(seconds, LONGEST_REST_SECONDS)

    def _sort(self, request: Write | WriterTask | None) -> None:
        if request is None:
            self._is_closed = True
        elif isinstance(request, WriterTask):
            self._tasks.append(request)
        else:
            self._writes.setdefault(request.tenant, deque()).append(request)

    def _next_writes(self, most: int) -> list[Write]:
        taken: list[Write] = []
        turns = deque(name for name in self._writes if name not in self._resting)
        while turns and len(taken) < most:
            name = turns.popleft()
            # The tenant is the last one from now on, if it has more.
            waiting = self._writes.pop(name)
            taken.append(waiting.popleft())
            if waiting:
                self._writes[name] = waiting
                turns.append(name)
        return taken
