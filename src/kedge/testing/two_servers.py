"""Two API servers on one store, whose events reach each of them at another moment."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

from kedge.machinery.turns import next_turn
from kedge.storage.memory import MemoryStore
from kedge.storage.store import StoreEntry, StoreEvent
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

T = TypeVar("T")


class LaggingStore(MemoryStore):
    """A store far away: writes take a while, and events come later, each watch at its own time."""

    def __init__(self, clock: FakeClock, seed: int = 1) -> None:
        super().__init__(clock)
        self._random = Random(seed)
        self.is_away = False

    @property
    def failure(self) -> str:
        return "away" if self.is_away else ""

    async def put(self, key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        await self._pass()
        return await super().put(key, value, expect=expect, ttl=ttl)

    async def delete(self, key: str, *, expect: int) -> StoreEntry:
        await self._pass()
        return await super().delete(key, expect=expect)

    async def newest(self) -> int:
        await self._pass()
        return self.revision

    async def watch(self, prefix: str, *, since: int) -> AsyncGenerator[StoreEvent, None]:
        async for event in super().watch(prefix, since=since):
            await self._pass()
            yield event

    async def _pass(self) -> None:
        for _ in range(self._random.randrange(8)):
            await next_turn()


@asynccontextmanager
async def two_servers(
    *admission: str, seed: int = 1
) -> AsyncIterator[tuple[LocalServer, LocalServer]]:
    clock = FakeClock()
    store = LaggingStore(clock, seed)
    names = admission or ("NamespaceLifecycle",)
    async with (
        LocalServer.running(store, clock, admission=names, is_shared=True) as one,
        LocalServer.running(store, clock, admission=names, is_shared=True) as other,
    ):
        yield one, other


async def while_time_passes(clock: FakeClock, *work: Coroutine[Any, Any, T]) -> list[T]:
    """Do all of this at once, while the clock goes on."""
    async with asyncio.TaskGroup() as tasks:
        doing = [tasks.create_task(each) for each in work]
        while not all(each.done() for each in doing):
            await clock.advance(0.01)
    return [each.result() for each in doing]
