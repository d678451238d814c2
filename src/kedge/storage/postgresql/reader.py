"""PostgresReader: queries of any task, one at a time on one connection, in turns of tenants."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kedge.machinery.task_group import OwnedTask
from kedge.machinery.tenant import current_tenant
from kedge.storage.postgresql.failures import PostgresFailure, store_error
from kedge.storage.postgresql.patience import Patience
from kedge.storage.postgresql.session import PostgresSession
from kedge.storage.store import StoreClosed, StoreError, StoreUnavailable

log = logging.getLogger(__name__)


class _Query(NamedTuple):
    text: str
    arguments: tuple[Any, ...]
    seconds: float | None
    future: asyncio.Future[Sequence[Any]]


class _QueryTurns:
    """Queries that wait. The query of a tenant waits for one of each other tenant at most, however
    many pages of lists these want."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Query]] = {}
        """By tenant, the next tenant first."""
        self._arrival = asyncio.Event()

    def add(self, query: _Query) -> None:
        self._waiting.setdefault(current_tenant(), deque()).append(query)
        self._arrival.set()

    async def take(self) -> _Query:
        """Return the next query, once there is one."""
        while not self._waiting:
            self._arrival.clear()
            await self._arrival.wait()
        tenant = next(iter(self._waiting))
        # The tenant is the last one from now on, if it has more.
        waiting = self._waiting.pop(tenant)
        query = waiting.popleft()
        if waiting:
            self._waiting[tenant] = waiting
        return query

    def drain(self) -> Iterator[_Query]:
        """Take all that wait."""
        waiting, self._waiting = self._waiting, {}
        for queries in waiting.values():
            yield from queries


class PostgresReader:
    """Repeats queries while the server is away. A task that is cancelled leaves the connection
    alone: only the reader uses it."""

    def __init__(self, session: PostgresSession, patience: Patience) -> None:
        self._session = session
        self._patience = patience
        self._turns = _QueryTurns()
        self._under_way: _Query | None = None
        self._running = OwnedTask(self._run())

    async def fetch(
        self, text: str, *arguments: Any, seconds: float | None = None
    ) -> Sequence[Any]:
        """Return the rows of a query that may be carried out twice; raises StoreError."""
        future: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        self._turns.add(_Query(text, arguments, seconds, future))
        return await future

    async def close(self) -> None:
        await self._running.close()
        self._session.disconnect()
        if self._under_way is not None:
            self._turns.add(self._under_way)
        for query in self._turns.drain():
            if not query.future.done():
                query.future.set_exception(StoreClosed())

    async def _run(self) -> None:
        while True:
            query = self._under_way = await self._turns.take()
            try:
                rows = await self._carry_out(query)
            except Exception as error:
                if not isinstance(error, StoreError):
                    # The library failed. Later queries must not wait for a reader that has ended.
                    log.exception("query failed")
                    self._session.disconnect()
                    error = StoreUnavailable(f"the query failed: {error!r}")
                if not query.future.done():
                    query.future.set_exception(error)
            else:
                if not query.future.done():
                    query.future.set_result(rows)
            self._under_way = None

    async def _carry_out(self, query: _Query) -> Sequence[Any]:
        own = self._patience.of_one()
        while not query.future.done():
            try:
                rows = await self._session.fetch(
                    query.text, *query.arguments, seconds=query.seconds
                )
            except PostgresFailure as failure:
                is_over = self._patience.is_over() or own.is_over()
                if not failure.is_passing or is_over:
                    raise store_error(failure.without_effect()) from None
            else:
                self._patience.answered()
                return rows
            await self._patience.pause()
        return ()
