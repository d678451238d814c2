"""Keys are looked at once each, in order."""

import asyncio

from kedge.apiserver.pending_keys import PendingKeys
from kedge.testing.clock import FakeClock


async def test_keys_come_once_each_in_the_order_of_their_first_addition() -> None:
    keys = PendingKeys()
    for key in ("b", "a", "b"):
        keys.add(key)
    assert [await keys.next(), await keys.next()] == ["b", "a"]
    keys.add("b")
    assert await keys.next() == "b"


async def test_a_key_that_comes_later_is_waited_for() -> None:
    keys = PendingKeys()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(keys.next())
        await FakeClock().advance(0)
        assert not waiting.done()
        keys.add("a")
    assert waiting.result() == "a"
