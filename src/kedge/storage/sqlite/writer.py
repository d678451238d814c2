"""Writer: the thread that writes the file, many writes in one durable commit.

It also keeps the store usable on a full disk: deletions and small updates go on, in space that is
kept in reserve for them.
"""

import asyncio
import copy
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from threading import Thread
from typing import Any, TypeVar

from kedge.storage.lockfile import StoreLock
from kedge.storage.reserve import (
    LAST_BYTES,
    LOW_BYTES,
    STEP_BYTES,
    Reserve,
    allocate_log,
    row_bytes,
)
from kedge.storage.sqlite import database
from kedge.storage.sqlite import statements as sql
from kedge.storage.sqlite.rows import Row, compacted, head, row
from kedge.storage.sqlite.write_ahead_log import WriteAheadLog
from kedge.storage.sqlite.write_queue import WriterQueue, WriterTask
from kedge.storage.store import (
    DiskFull,
    PendingRevision,
    RevisionConflict,
    StoreEntry,
    StoreError,
    StoreEvent,
    delete_event,
)
from kedge.storage.write_turns import Write

GROUP = 32
"""Most writes that share one commit. More would cost hardly less each, and all who wait for the
commit or for the event loop, which then publishes all of them, would wait longer."""
CHUNK = 256
"""Keys that expire in one batch, so that other work waits only briefly."""
COMPACTION_STEP = 32
"""Revisions compacted in one go: about a millisecond, which is what a writer then waits longer."""
QUIET = 1.0
"""Seconds without a write after which the writer copies the rest of the log."""
SLACK = 4096
"""Bytes by which an object may grow on a full disk: a status, a deletion timestamp."""
RELIEF_STEPS = 32
"""Compactions in one go on a full disk."""

log = logging.getLogger(__name__)
T = TypeVar("T")
Outcome = tuple[asyncio.Future[Any], Any]
Deliver = Callable[[Sequence[StoreEvent], Sequence[Outcome]], None]


class Writer:
    """The thread that owns the writing connection: groups queued writes into one durable commit."""

    def __init__(self, held: StoreLock, deliver: Deliver, monotonic: Callable[[], float]) -> None:
        """`deliver` is called on the thread after each commit, with its events and outcomes."""
        path = held.path
        self._path = path
        self._held = held
        self._connection = database.connect(path)
        self._deliver = deliver
        self._monotonic = monotonic
        self._queue = WriterQueue(monotonic)
        self._log = WriteAheadLog(path)
        self.broken = ""
        """Why all writes are refused; empty if they are not."""
        self.full = False
        """Whether only deletions and small changes are accepted, until there is space."""
        self.head = head(self._connection)
        held.reach(self.head)
        self._reserve = Reserve(path, self._connection)
        allocate_log(path)
        self._relieve()
        self._thread = Thread(target=self._run, name="kedge-store-writer", daemon=True)
        self._thread.start()

    def submit(self, request: Write | WriterTask) -> None:
        self._queue.put(request)

    def close(self) -> None:
        self._queue.close()
        self._thread.join()
        self._log.close()
        self._connection.close()
        self._reserve.close()

    def sweep(self, now: int) -> tuple[list[StoreEvent], int | None]:
        """A chore: delete some keys that are due; the result is the next deadline."""
        keys = [key for (key,) in self._connection.execute(sql.DUE, (now, CHUNK))]
        entries = self._lookup(keys)
        events = [
            delete_event(entries[key], key, entries[key].revision, revision)
            for revision, key in enumerate(keys, self.head + 1)
        ]
        self._save([row(event, 0) for event in events])
        return events, self._connection.execute(sql.NEXT_DEADLINE).fetchone()[0]

    def compact(self, revision: int) -> tuple[list[StoreEvent], int]:
        """A chore: compact a few revisions, at most to that one; the result is how far it got."""
        since = compacted(self._connection)
        until = min(since + COMPACTION_STEP, revision)
        if until <= since:
            return [], since
        self._connection.execute("BEGIN IMMEDIATE")
        for statement in sql.COMPACT:
            self._connection.execute(statement, {"since": since, "until": until})
        self._connection.execute("COMMIT")
        self._log.grew(0, until - since)
        return [], until

    def _run(self) -> None:
        while not self._queue.has_ended:
            waits = self._log.untidy or self.full
            writes, tasks = self._queue.take(GROUP, QUIET if waits else None)
            if writes:
                begun = self._monotonic()
                self._commit(writes)
                self._queue.rest(writes, self._monotonic() - begun)
            for task in tasks:
                self._do(task)
            self._log.tend(self._connection, quiet=not writes and not tasks)
            if self.full:
                self._relieve()

    def _commit(self, writes: Sequence[Write]) -> None:
        try:
            events, outcomes = self._attempt(lambda: self._write(writes))
        except DiskFull as error:
            if len(writes) > 1:
                # The log has space for fewer: one large write must not fail the others.
                middle = len(writes) // 2
                self._commit(writes[:middle])
                self._commit(writes[middle:])
                return
            events, outcomes = [], [(write.future, error) for write in writes]
        except StoreError as error:
            events, outcomes = [], [(write.future, _copy_of(error)) for write in writes]
        self._deliver(events, outcomes)

    def _do(self, chore: WriterTask) -> None:
        events: list[StoreEvent] = []
        try:
            events, result = self._attempt(chore.work)
        except StoreError as error:
            result = error
        self._deliver(events, [(chore.future, result)])

    def _attempt(self, work: Callable[[], T]) -> T:
        """Do the work; on a full disk retry after a checkpoint, then retry with the space
        reserved for deletions."""
        for remedy in (self._make_room, self._run_full):
            try:
                return self._try(work)
            except DiskFull:
                remedy()
        return self._try(work)

    def _make_room(self) -> None:
        self._log.flush(self._connection)

    def _run_full(self) -> None:
        if not self.full:
            self.full = True
            log.error("disk full path=%s accepted=deletions and small changes", self._path)
        self._relieve()

    def _relieve(self) -> None:
        """Accept all writes again if there is space, on the disk or by compacting history."""
        try:
            # More than staying normal needs, so that the state does not flip with every write.
            if self._reserve.measure() < (LOW_BYTES + STEP_BYTES // 8 if self.full else LOW_BYTES):
                self._reserve.grow()
        except (OSError, sqlite3.Error) as error:
            self._undo(error)
            self.full = True
            self._forget()
        else:
            self._take_all()

    def _forget(self) -> None:
        """Compact all history: objects are worth more."""
        for _ in range(RELIEF_STEPS):
            try:
                if self.compact(self.head)[1] >= self.head:
                    break
            except sqlite3.Error as error:
                self._undo(error)
                break
        self._log.flush(self._connection)
        self._reserve.measure()

    def _take_all(self) -> None:
        if self.full:
            log.warning("disk no longer full path=%s accepted=everything", self._path)
        self.full = False
        allocate_log(self._path)

    def _try(self, work: Callable[[], T]) -> T:
        if self.broken:
            raise StoreError(self.broken)
        try:
            return work()
        except Exception as error:
            raise self._undo(error) from error

    def _undo(self, error: Exception) -> StoreError:
        """Roll back after a failure; if the file is in doubt even then, take no more writes."""
        message = f"{self._path}: {error}"
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            doubtful = head(self._connection) != self.head or database.is_fatal(error)
        except sqlite3.Error:
            doubtful = True
        if doubtful:
            self.broken = f"{message}; no more writes are taken until kedge is restarted"
        elif database.is_full(error):
            return database.no_space(self._path)
        return StoreError(self.broken or message)

    def _write(self, writes: Sequence[Write]) -> tuple[list[StoreEvent], list[Outcome]]:
        entries: dict[str, StoreEntry | None] = {**self._lookup({write.key for write in writes})}
        events: list[StoreEvent] = []
        rows: list[Row] = []
        outcomes: list[Outcome] = []
        revisions: dict[PendingRevision, int] = {}
        for write in writes:
            if write.after is not None:
                write.expect = revisions.get(write.after, write.after.value)
            try:
                event = write.event(entries.get(write.key), self.head + len(events) + 1)
                self._check_room(event)
            except (RevisionConflict, DiskFull) as refusal:
                outcomes.append((write.future, refusal))
                continue
            entries[write.key] = None if write.value is None else event.entry
            events.append(event)
            rows.append(row(event, write.deadline))
            outcomes.append((write.future, event.entry))
            revisions[write.revision] = event.entry.revision
        self._save(rows)
        # Not before the commit: if it fails, these revisions will be those of other writes.
        for pending, revision in revisions.items():
            pending.value = revision
        return events, outcomes

    def _check_room(self, event: StoreEvent) -> None:
        """On a full disk accept only deletions and writes that hardly grow an object, such as
        leases and statuses."""
        if not self.full or event.kind == "delete":
            return
        before, after = event.previous, event.entry
        small = before is not None and len(after.value) <= len(before.value) + SLACK
        if not small or self._reserve.free < LAST_BYTES:
            raise database.no_space(self._path)

    def _lookup(self, keys: Iterable[str]) -> dict[str, StoreEntry]:
        return {
            values[0]: StoreEntry(*values)
            for part in parts(list(keys))
            for values in self._connection.execute(sql.LOOKUPS[len(part)], part)
        }

    def _save(self, rows: Sequence[Row]) -> None:
        """Make the rows durable, all or none."""
        if not rows:
            return
        size = sum(row_bytes(values[5]) for values in rows)
        if self.full:
            self._reserve.free -= size
        else:
            self._reserve.spend(size)
        if len(rows) <= sql.MOST:
            self._insert(rows)  # by itself all or none
        else:
            self._connection.execute("BEGIN IMMEDIATE")
            for part in parts(rows):
                self._insert(part)
            self._connection.execute("COMMIT")
        self.head = rows[-1][0]
        self._held.reach(self.head)
        if self._reserve.free < 0:
            self._reserve.settle()
        self._log.grew(sum(len(values[5]) for values in rows), len(rows))

    def _insert(self, rows: Sequence[Row]) -> None:
        self._connection.execute(sql.INSERTS[len(rows)], [*chain.from_iterable(rows)])


def _copy_of(error: StoreError) -> StoreError:
    """Copy the exception, since each waiter raises its own."""
    return copy.copy(error)


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in stretches of as many as a statement takes."""
    for start in range(0, len(items), sql.MOST):
        yield items[start : start + sql.MOST]
