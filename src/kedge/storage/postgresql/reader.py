"""PostgresReader: queries of any task, one at a time on one connection."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from kedge.machinery.task_group import OwnedTask
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


class PostgresReader:
    """Repeats queries while the server is away. A task that is cancelled leaves the connection
    alone: only the reader uses it."""

    def __init__(self, session: PostgresSession, patience: Patience) -> None:
        self._session = session
        self._patience = patience
        self._queue: asyncio.Queue[_Query] = asyncio.Queue()
        self._under_way: _Query | None = None
        self._running = OwnedTask(self._run())

    async def fetch(
        self, text: str, *arguments: Any, seconds: float | None = None
    ) -> Sequence[Any]:
        """Return the rows of a query that may be carried out twice; raises StoreError."""
        future: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Query(text, arguments, seconds, future))
        return await future

    async def close(self) -> None:
        await self._running.close()
        self._session.disconnect()
        if self._under_way is not None:
            self._queue.put_nowait(self._under_way)
        while not self._queue.empty():
            future = self._queue.get_nowait().future
            if not future.done():
                future.set_exception(StoreClosed())

    async def _run(self) -> None:
        while True:
            query = self._under_way = await self._queue.get()
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
        while not query.future.done():
            try:
                rows = await self._session.fetch(
                    query.text, *query.arguments, seconds=query.seconds
                )
            except PostgresFailure as failure:
                if not failure.is_passing or self._patience.is_over():
                    raise store_error(failure.without_effect()) from None
            else:
                self._patience.answered()
                return rows
            await self._patience.pause()
        return ()
