"""Two connections that are made to speak with each other."""

import asyncio

import pytest

from kedge.machinery.turns import Turns
from kedge.testing.clock import BusyClock
from kedge.testing.streams import MemoryStream, pair
from kedge.web import tunnel


async def test_bytes_go_both_ways_and_each_end_is_passed_on() -> None:
    left, near = pair()
    right, far = pair()
    joined = asyncio.ensure_future(tunnel.join(near, far))
    left.write(b"question")
    assert await right.read() == b"question"
    left.write_eof()
    assert await right.read() == b""
    right.write(b"answer after the end of the question")
    assert await left.read() == b"answer after the end of the question"
    right.close()
    assert await left.read() == b""
    await joined
    assert near.closed
    assert far.closed


async def test_when_one_peer_vanishes_the_other_is_hung_up_on() -> None:
    left, near = pair()
    right, far = pair()
    joined = asyncio.ensure_future(tunnel.join(near, far))
    left.close()
    assert await right.read() == b""
    right.write(b"into the void")
    right.close()
    await joined


async def test_streams_share_the_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = BusyClock()
    turns = Turns(clock.monotonic, share_seconds=tunnel.SHARE_SECONDS)
    monkeypatch.setitem(tunnel._TURNS, asyncio.get_running_loop(), turns)
    step, pieces = 0.002, 5

    class Eager(MemoryStream):
        """A peer that sends and reads as fast as it can."""

        def __init__(self) -> None:
            super().__init__()
            self.other = self
            self.left = pieces

        async def read(self) -> bytes:
            self.left -= 1
            return b"x" if self.left >= 0 else b""

        def write(self, data: bytes) -> None:
            clock.spend(step)

    async with asyncio.TaskGroup() as tasks:
        joined = [tasks.create_task(tunnel.join(Eager(), Eager())) for _ in range(20)]
        await clock.observe(lambda: all(task.done() for task in joined))
    assert sum(clock.slices) >= 20 * 2 * pieces * step * 0.99
    assert max(clock.slices) <= tunnel.SHARE_SECONDS + 2 * step
