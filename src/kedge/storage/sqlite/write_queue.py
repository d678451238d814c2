"""WriterQueue: requests for the writer's thread."""

import asyncio
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from kedge.storage.store import StoreEvent
from kedge.storage.write_turns import Write, WriteTurns


class WriterTask:
    """Anything else the writer does between two groups; yields events and a result."""

    __slots__ = ("future", "work")

    def __init__(
        self, work: Callable[[], tuple[list[StoreEvent], Any]], future: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.future = future


class WriterQueue:
    """Requests of any thread for the writer."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._arrived: SimpleQueue[Write | WriterTask | None] = SimpleQueue()
        self._turns = WriteTurns(monotonic)
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

    def take(self, most: int, idle_seconds: float | None) -> tuple[list[Write], list[WriterTask]]:
        """Return the next writes and all tasks; nothing after an idle time."""
        while True:
            while not self._arrived.empty():
                self._sort(self._arrived.get_nowait())
            if self._is_closed:
                self._turns.end_rest()
            writes = self._turns.take(most)
            if writes or self._tasks or self._is_closed:
                tasks, self._tasks = self._tasks, []
                return writes, tasks
            has_resting = bool(self._turns)
            try:
                timeout = max(self._turns.rest_seconds, 0.0) if has_resting else idle_seconds
                self._sort(self._arrived.get(timeout=timeout))
            except Empty:
                if not has_resting:
                    return [], []

    def rest(self, group: Sequence[Write], seconds: float) -> None:
        """Let tenants rest that had many writes in a group, which took so long."""
        self._turns.rest(group, seconds)

    def _sort(self, request: Write | WriterTask | None) -> None:
        if request is None:
            self._is_closed = True
        elif isinstance(request, WriterTask):
            self._tasks.append(request)
        else:
            self._turns.add(request)
