"""WriteQueue: requests for the writer's thread, in which tenants take turns."""

import asyncio
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from kedge.machinery.tenant import current_tenant
from kedge.storage.store import StoreEntry, StoreEvent, delete_event, put_event


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


class WriteQueue:
    """Requests of any thread for the writer.

    A group of writes contains one of each tenant, then a second one, and so on. The write of a
    tenant that writes little is in the next group, however many writes of others wait. Writes of
    different tenants may change places: none of them is acknowledged yet.
    """

    def __init__(self) -> None:
        self._arrived: SimpleQueue[Write | WriterTask | None] = SimpleQueue()
        self._turns: deque[deque[Write]] = deque()
        """The writes of each tenant that has some, the next tenant first."""
        self._writes: dict[str, deque[Write]] = {}
        self._tasks: list[WriterTask] = []
        self._is_closed = False

    def put(self, request: Write | WriterTask) -> None:
        self._arrived.put(request)

    def close(self) -> None:
        """Let the writer end after what is queued."""
        self._arrived.put(None)

    @property
    def has_ended(self) -> bool:
        """Whether the queue is closed and everything was taken."""
        return self._is_closed and not self._turns

    def take(self, most: int, timeout: float | None) -> tuple[list[Write], list[WriterTask]]:
        """Return the next writes and all tasks; waits for some, up to the timeout."""
        if not self._turns and not self._is_closed:
            try:
                self._sort(self._arrived.get(timeout=timeout))
            except Empty:
                return [], []
        while not self._arrived.empty():
            self._sort(self._arrived.get_nowait())
        tasks, self._tasks = self._tasks, []
        return self._next_writes(most), tasks

    def _sort(self, request: Write | WriterTask | None) -> None:
        if request is None:
            self._is_closed = True
        elif isinstance(request, WriterTask):
            self._tasks.append(request)
        elif (writes := self._writes.get(request.tenant)) is not None:
            writes.append(request)
        else:
            self._writes[request.tenant] = first = deque((request,))
            self._turns.append(first)

    def _next_writes(self, most: int) -> list[Write]:
        taken: list[Write] = []
        while self._turns and len(taken) < most:
            writes = self._turns.popleft()
            taken.append(write := writes.popleft())
            if writes:
                self._turns.append(writes)
            else:
                del self._writes[write.tenant]
        return taken
