"""PostgresWriter: all writes of a server on one connection, a group of them in each transaction.

After a lost answer the writer knows what happened. Each write has a number of its own, which its
change has in history. And a new connection first takes the lock that the connection before it held
as long as it lived: what was under way there is then committed, or never will be.
"""

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import SystemRandom
from typing import Any, Final

from kedge.machinery.clock import Clock
from kedge.machinery.task_group import OwnedTask
from kedge.storage.postgresql import rows
from kedge.storage.postgresql.failures import PostgresFailure, PostgresFailureKind, store_error
from kedge.storage.postgresql.patience import Patience
from kedge.storage.postgresql.session import PostgresSession
from kedge.storage.postgresql.statements import Statements
from kedge.storage.store import (
    DiskFull,
    GuardLost,
    RevisionConflict,
    StoreEntry,
    StoreError,
    StoreEvent,
    WriteOutcomeUnknown,
)
from kedge.storage.write_turns import Write, WriteTurns

GROUP: Final = 64
"""Most writes in one transaction. More would cost hardly less each."""
GROUP_BYTES: Final = 4 << 20
"""The size of the values in one transaction, unless one value alone is larger."""
FENCE_SECONDS: Final = 0.05
"""How often the end of the connection before is looked for."""

_TERMINATE: Final = """SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) | objid::bigint = $1 AND objsubid = 1"""

log = logging.getLogger(__name__)


class _Numbered:
    """A write and its number."""

    __slots__ = ("token", "write")

    def __init__(self, write: Write, token: int) -> None:
        self.write = write
        self.token = token

    @property
    def size(self) -> int:
        return len(self.write.value or b"")

    def settle(self, outcome: StoreEntry | Exception) -> None:
        future = self.write.future
        if future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class PostgresWriter:
    """A task that takes what has arrived while the transaction before was under way."""

    def __init__(
        self,
        session: PostgresSession,
        queries: Statements,
        patience: Patience,
        clock: Clock,
        *,
        revision: Callable[[], int],
        publish: Callable[[Sequence[StoreEvent]], Awaitable[None]],
        ended: Callable[[], None],
        token: int,
    ) -> None:
        """`publish` gives events of this server to watchers, after those of others before them;
        `ended` is called after each transaction; `token` is the number of the first write."""
        self._session = session
        self._sql = queries
        self._patience = patience
        self._clock = clock
        self._revision = revision
        self._publish = publish
        self._ended = ended
        self._token = token
        self._turns = WriteTurns(clock.monotonic)
        self._arrival = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_full = False
        """Whether the last write failed for lack of space."""
        self.is_busy = False
        """Whether a transaction is under way."""
        self._running = OwnedTask(self._run())

    async def write(self, key: str, value: bytes | None, expect: int, deadline: int) -> StoreEntry:
        """Carry out a write; raises StoreError."""
        future: asyncio.Future[StoreEntry] = asyncio.get_running_loop().create_future()
        self._turns.add(Write(key, value, expect, deadline, future))
        self._idle.clear()
        self._arrival.set()
        return await future

    async def close(self) -> None:
        """Finish the writes under way."""
        await self._idle.wait()
        await self._running.close()
        self._session.disconnect()

    async def _run(self) -> None:
        while True:
            group = await self._next_group()
            begun = self._clock.monotonic()
            for part in _parts(group):
                await self._carry_out(part)
            self._turns.rest([each.write for each in group], self._clock.monotonic() - begun)

    async def _next_group(self) -> list[_Numbered]:
        while True:
            self._arrival.clear()
            if taken := self._turns.take(GROUP):
                return [self._numbered(write) for write in taken]
            if self._turns:
                await self._clock.sleep(max(self._turns.rest_seconds, 0.0))
                continue
            self._idle.set()
            await self._arrival.wait()

    def _numbered(self, write: Write) -> _Numbered:
        self._token += 1
        return _Numbered(write, self._token)

    async def _carry_out(self, group: Sequence[_Numbered]) -> None:
        """Carry out each write once, and tell its outcome."""
        self.is_busy = True
        try:
            await self._attempt(group)
        except Exception as error:
            if not isinstance(error, StoreError):
                log.exception("writes failed count=%d", len(group))
                error = WriteOutcomeUnknown(f"the writer failed: {error!r}")
            for each in group:
                each.settle(copy.copy(error))  # each waiter raises its own
        finally:
            self.is_busy = False
            self._ended()

    async def _attempt(self, group: Sequence[_Numbered]) -> None:
        since, is_unknown = self._revision(), False
        while group:
            try:
                if is_unknown:
                    group = await self._without_written(group, since)
                    is_unknown = False
                # The server may have been away for seconds.
                group = [each for each in group if not each.write.is_abandoned]
                if group:
                    await self._send(group)
                return
            except PostgresFailure as failure:
                is_unknown = is_unknown or failure.kind is PostgresFailureKind.UNKNOWN
                if is_unknown and not failure.is_passing:
                    # It says nothing about the request before it, which may have been carried out.
                    raise _given_up(failure, is_unknown=True) from None
                if not failure.is_passing:
                    await self._refused(group, failure)
                    return
                if self._patience.is_over():
                    raise _given_up(failure, is_unknown=is_unknown) from None
            await self._patience.pause()

    async def _refused(self, group: Sequence[_Numbered], failure: PostgresFailure) -> None:
        """Tell the writer why; of a group, each half may fare better than the other."""
        if len(group) > 1:
            middle = len(group) // 2
            for half in (group[:middle], group[middle:]):
                await self._carry_out(half)
            return
        error = store_error(failure, group[0].size)
        self.is_full = isinstance(error, DiskFull)
        group[0].settle(error)

    async def _send(self, group: Sequence[_Numbered]) -> None:
        writes = [each.write for each in group]
        found = await self._session.fetch(
            self._sql.write,
            [write.key.encode() for write in writes],
            [write.value for write in writes],
            [write.expect for write in writes],
            [write.deadline for write in writes],
            [each.token for each in group],
            [write.guard and write.guard.key.encode() for write in writes],
            [write.guard.revision if write.guard else 0 for write in writes],
        )
        self._patience.answered()
        self.is_full = False
        outcomes = [rows.outcome(write, row) for write, row in zip(writes, found, strict=True)]
        await self._tell(group, outcomes)

    async def _without_written(self, group: Sequence[_Numbered], since: int) -> list[_Numbered]:
        """Tell those writes their outcome that history has; returns the others."""
        # A commit behind them: they are as safe as if they had been acknowledged.
        await self._session.fetch(self._sql.settle)
        found = await self._session.fetch(self._sql.by_token, since, [each.token for each in group])
        past = rows.history(found)
        if past.compacted > since:
            raise WriteOutcomeUnknown(
                f"postgresql at {self._session.server} did not confirm writes, and their history is"
                " compacted. Read the object to see whether it was written"
            )
        self._patience.answered()
        tokens = [row[9] for row in found if row[2] is not None]
        events = dict(zip(tokens, past.events, strict=True))
        log.warning("answers were lost writes=%d written=%d", len(group), len(events))
        written = [each for each in group if each.token in events]
        await self._tell(written, [events[each.token] for each in written])
        return [each for each in group if each.token not in events]

    async def _tell(
        self,
        group: Sequence[_Numbered],
        outcomes: Sequence[StoreEvent | RevisionConflict | GuardLost],
    ) -> None:
        """Give events to watchers, then the outcomes to those who wrote."""
        await self._publish([each for each in outcomes if isinstance(each, StoreEvent)])
        for each, outcome in zip(group, outcomes, strict=True):
            each.settle(outcome.entry if isinstance(outcome, StoreEvent) else outcome)

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]:
        """Read on the connection of the writer, between its transactions."""
        return await self._session.fetch(query, *arguments)


def new_instance() -> int:
    """Return a number that no other server has: its lock, and where its tokens begin."""
    return SystemRandom().getrandbits(62)


async def fence(connected: Any, instance: int, clock: Clock, seconds: float) -> None:
    """Wait until the connection that this server had before has ended; raises TimeoutError."""
    give_up = clock.monotonic() + seconds
    while not await connected.fetchval("SELECT pg_try_advisory_lock($1)", instance):
        # After a cut of the network, the server keeps the old connection for hours.
        await connected.fetch(_TERMINATE, instance)
        if clock.monotonic() > give_up:
            raise TimeoutError
        await clock.sleep(FENCE_SECONDS)


def _parts(group: Sequence[_Numbered]) -> Iterator[Sequence[_Numbered]]:
    """Cut a group where it becomes too large."""
    start, size = 0, 0
    for place, each in enumerate(group):
        if place > start and size + each.size > GROUP_BYTES:
            yield group[start:place]
            start, size = place, 0
        size += each.size
    yield group[start:]


def _given_up(failure: PostgresFailure, *, is_unknown: bool) -> StoreError:
    """Return the error of writes that are not repeated any more."""
    if is_unknown:
        failure = PostgresFailure(PostgresFailureKind.UNKNOWN, failure.server, failure.text)
    return store_error(failure)
