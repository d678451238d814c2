"""Queries of the PostgreSQL store when the library fails."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kedge.machinery.tenant import tenant
from kedge.storage.postgresql.failures import PostgresFailure, PostgresFailureKind
from kedge.storage.postgresql.patience import PATIENCE_SECONDS, Patience
from kedge.storage.postgresql.reader import PostgresReader
from kedge.storage.store import StoreClosed, StoreUnavailable
from kedge.testing.clock import FakeClock


class Session:
    """A connection that fails at first, with an error that is not one of PostgreSQL."""

    server = "db:5432"

    def __init__(self) -> None:
        self.is_broken = True

    async def fetch(
        self, query: str, *arguments: Any, seconds: float | None = None
    ) -> Sequence[Any]:
        if self.is_broken:
            raise RuntimeError("unable to perform operation on a closed transport")
        return [query]

    def disconnect(self) -> None:
        self.is_broken = False


async def test_an_error_of_the_library_fails_one_query_and_not_the_later_ones() -> None:
    reader = PostgresReader(Session(), Patience(FakeClock()))  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match="closed transport"):
        await reader.fetch("SELECT 1")
    assert await reader.fetch("SELECT 2") == ["SELECT 2"]
    await reader.close()


class SlowSession:
    """A connection whose answers come one by one."""

    server = "db:5432"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.Semaphore(0)

    async def fetch(
        self, query: str, *arguments: Any, seconds: float | None = None
    ) -> Sequence[Any]:
        self.asked.append(query)
        await self.answer.acquire()
        return [query]

    def disconnect(self) -> None:
        pass


async def test_tenants_take_turns_however_many_pages_one_of_them_wants() -> None:
    session = SlowSession()
    reader = PostgresReader(session, Patience(FakeClock()))  # type: ignore[arg-type]
    reading = []
    for name, count in (("greedy", 50), ("modest", 2), ("", 1)):
        with tenant(name):
            wanted = [reader.fetch(f"{name} {number}") for number in range(count)]
            reading += [asyncio.ensure_future(each) for each in wanted]
    for _ in reading:
        session.answer.release()
    await asyncio.gather(*reading)
    assert session.asked[:6] == ["greedy 0", "modest 0", " 0", "greedy 1", "modest 1", "greedy 2"]
    assert len(session.asked) == 53
    await reader.close()


class TooSlowSession(SlowSession):
    """A connection on which each query takes longer than it may."""

    async def fetch(
        self, query: str, *arguments: Any, seconds: float | None = None
    ) -> Sequence[Any]:
        self.asked.append(query)
        raise PostgresFailure(PostgresFailureKind.UNKNOWN, self.server, "no answer in 5 s")


async def test_a_query_that_always_takes_too_long_is_given_up_while_others_are_answered() -> None:
    clock = FakeClock()
    patience = Patience(clock)
    reader = PostgresReader(TooSlowSession(), patience)  # type: ignore[arg-type]
    reading = asyncio.ensure_future(reader.fetch("SELECT 1"))
    for _ in range(int(PATIENCE_SECONDS) + 2):
        await clock.advance(1)
        patience.answered()
    assert reading.done()
    with pytest.raises(StoreUnavailable, match="no answer"):
        await reading
    await reader.close()


async def test_queries_that_wait_end_with_the_store() -> None:
    reader = PostgresReader(SlowSession(), Patience(FakeClock()))  # type: ignore[arg-type]
    reading = [asyncio.ensure_future(reader.fetch(str(number))) for number in range(3)]
    await asyncio.wait(reading, timeout=0.01)
    await reader.close()
    outcomes = await asyncio.gather(*reading, return_exceptions=True)
    assert [type(each) for each in outcomes] == [StoreClosed] * 3
