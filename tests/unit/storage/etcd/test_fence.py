import asyncio

import pytest

from kedge.storage.etcd.fence import CreationFence
from kedge.storage.store import StoreEntry, WriteOutcomeUnknown
from kedge.testing.clock import FakeClock


async def test_those_that_wait_for_a_fence_that_cannot_be_written_do_not_try_one_by_one() -> None:
    clock, is_down, written = FakeClock(), True, 0

    async def write(key: str, expect: int) -> StoreEntry:
        nonlocal written
        written += 1
        await clock.sleep(10)
        if is_down:
            raise WriteOutcomeUnknown("no answer")
        return StoreEntry(key, b"", 7, 7)

    fence = CreationFence(write)
    waiting = [asyncio.ensure_future(fence.move(0)) for _ in range(5)]
    await clock.advance(10)
    assert all(isinstance(each.exception(), WriteOutcomeUnknown) for each in waiting)
    assert written == 1
    # One that comes later tries again, and so do those whose leader was cancelled.
    is_down = False
    first, second = (asyncio.ensure_future(fence.move(0)) for _ in range(2))
    await clock.advance(1)
    first.cancel()
    await clock.advance(10)
    assert fence.revision == 7
    await second
    await fence.move(0)
    assert written == 3
    with pytest.raises(asyncio.CancelledError):
        await first
