"""A store in memory whose queued writes are committed when a test says so."""

import asyncio
from collections.abc import Collection
from typing import Any

from kedge.storage.memory import MemoryStore
from kedge.storage.store import PendingRevision, QueuedPut, StoreError
from kedge.storage.write_turns import Write
from kedge.testing.clock import FakeClock


class QueueingStore(MemoryStore):
    """Implements ChainingStore: `submit` waits for `commit`, and `put` and `delete` do not."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.queued: list[Write] = []
        self.groups: list[int] = []
        """How many writes each commit had."""

    def submit(
        self, key: str, value: bytes, *, expect: int | PendingRevision, ttl: int = 0
    ) -> QueuedPut:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        write = Write(key, value, expect, ttl, future)
        self.queued.append(write)
        return QueuedPut(write.revision, future)

    async def commit(self, failing: Collection[int] = ()) -> None:
        """Carry out all queued writes, but for those that fail, by their numbers."""
        writes, self.queued = self.queued, []
        self.groups.append(len(writes))
        for number, write in enumerate(writes):
            if write.is_abandoned:
                continue
            assert write.value is not None
            expect = write.expect if write.after is None else write.after.value
            try:
                if number in failing:
                    raise StoreError("the disk has failed")
                entry = await self.put(write.key, write.value, expect=expect, ttl=write.deadline)
            except StoreError as error:
                write.future.set_exception(error)
            else:
                write.revision.value = entry.revision
                write.future.set_result(entry)
