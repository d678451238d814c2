"""Writes of the PostgreSQL store whose answers do not come."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from kedge.machinery.turns import next_turn
from kedge.storage.postgresql.failures import PostgresFailure, PostgresFailureKind
from kedge.storage.postgresql.patience import RETRY_SECONDS, Patience
from kedge.storage.postgresql.statements import statements
from kedge.storage.postgresql.writer import PostgresWriter
from kedge.storage.store import StoreEntry, StoreError, StoreEvent, WriteOutcomeUnknown
from kedge.testing.clock import FakeClock

SQL = statements("kedge")


class Session:
    """A connection that fails as the test says, and else carries writes out."""

    server = "db:5432"

    def __init__(self) -> None:
        self.failures: list[PostgresFailureKind] = []
        """Those of the next requests."""
        self.written: list[str] = []

    def fail(self, *kinds: PostgresFailureKind) -> None:
        self.failures += kinds

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]:
        await next_turn()
        if self.failures:
            raise PostgresFailure(self.failures.pop(0), self.server, "as the test says")
        if query != SQL.write:
            return []
        first = len(self.written) + 2
        self.written += [key.decode() for key in arguments[0]]
        return [(first + i, first + i, 0, 0, None) for i in range(len(arguments[0]))]

    def disconnect(self) -> None:
        pass


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
async def writer(session: Session, clock: FakeClock) -> AsyncIterator[PostgresWriter]:
    async def publish(events: Sequence[StoreEvent]) -> None:
        pass

    made = PostgresWriter(
        session,  # type: ignore[arg-type]
        SQL,
        Patience(clock),
        clock,
        revision=lambda: 1,
        publish=publish,
        ended=lambda: None,
        token=0,
    )
    yield made
    await made.close()


async def put(writer: PostgresWriter, key: str) -> StoreEntry | StoreError:
    try:
        return await writer.write(key, b"{}", 0, 0)
    except StoreError as error:
        return error


async def test_a_write_whose_request_ended_during_an_outage_is_not_carried_out_after_it(
    writer: PostgresWriter, session: Session, clock: FakeClock
) -> None:
    session.fail(*[PostgresFailureKind.WITHOUT_EFFECT] * 3)
    async with asyncio.TaskGroup() as tasks:
        ended = tasks.create_task(put(writer, "/ended"))
        tasks.create_task(put(writer, "/kept"))
        await clock.advance(RETRY_SECONDS)
        ended.cancel()
        await clock.advance(5 * RETRY_SECONDS)
    assert session.written == ["/kept"]


async def test_writes_without_an_answer_are_not_reported_as_refused(
    writer: PostgresWriter, session: Session, clock: FakeClock
) -> None:
    """Nor sent again, if the server cannot be asked what became of them."""
    session.fail(PostgresFailureKind.UNKNOWN, PostgresFailureKind.DENIED)
    async with asyncio.TaskGroup() as tasks:
        writes = [tasks.create_task(put(writer, key)) for key in ("/a", "/b")]
        await clock.advance(5 * RETRY_SECONDS)
    assert [type(each.result()) for each in writes] == [WriteOutcomeUnknown] * 2
    assert session.written == []
