"""Every store, driven at random, agrees with a dict and a list."""

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.etcd.store import EtcdStore
from kedge.storage.memory import MemoryStore
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.store import PostgresStore
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import RevisionCompacted, RevisionConflict, Store, StoreEntry, StoreEvent
from kedge.testing.clock import FakeClock
from kedge.testing.etcd_process import EtcdProcess
from kedge.testing.postgresql_process import PostgresProcess

KEYS = ["/a", "/a/", "/a/b", "/a0", "/b", "/b/é", "/\U0010ffff", "/\ud7ffx", "/\ue000"]
PREFIXES = ["", "/", "/a", "/a/", "/b/", "/\U0010ffff", "/\ud7ff", "/c"]
TTL = 10
some_key = st.sampled_from(KEYS)
some_prefix = st.sampled_from(PREFIXES)
some_value = st.binary(max_size=8)


class StoreMachine(RuleBasedStateMachine):
    """The model: entries now, all events ever, where history begins, and who dies when."""

    least_compaction: ClassVar[int] = 0
    """The least revision whose compaction is noticed by a watch from 0."""

    async def open(self) -> Store:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.entries: dict[str, StoreEntry] = {}
        self.events: list[StoreEvent] = []
        self.deadlines: dict[str, float] = {}
        self.compacted = 0
        self.store: Store = self.run(self.open())

    def run(self, deed: Any) -> Any:
        return self.runner.run(deed)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()

    @property
    def revision(self) -> int:
        return 1 + len(self.events)

    def state(self, at: int) -> list[StoreEntry]:
        """What stood at a revision, told from the events alone."""
        entries: dict[str, StoreEntry] = {}
        for event in self.events[: at - 1]:
            if event.kind == "put":
                entries[event.entry.key] = event.entry
            else:
                del entries[event.entry.key]
        return [entries[key] for key in sorted(entries)]

    def record_delete(self, key: str) -> StoreEntry:
        old = self.entries.pop(key)
        self.deadlines.pop(key, None)
        entry = StoreEntry(key, old.value, self.revision + 1, old.created)
        self.events.append(StoreEvent("delete", entry, old))
        return entry

    def current_revision(self, key: str) -> int:
        return self.entries[key].revision if key in self.entries else 0

    @rule(key=some_key, value=some_value, ttl=st.sampled_from([0, 0, TTL]))
    def put(self, key: str, value: bytes, ttl: int) -> None:
        old = self.entries.get(key)
        revision = self.revision + 1
        entry = StoreEntry(key, value, revision, old.created if old else revision)
        written = self.run(self.store.put(key, value, expect=self.current_revision(key), ttl=ttl))
        self.entries[key] = entry
        self.events.append(StoreEvent("put", entry, old))
        self.deadlines.pop(key, None)
        if ttl:
            self.deadlines[key] = self.clock.monotonic() + ttl
        assert written == entry

    @rule(key=some_key, off=st.integers(-2, 2).filter(bool))
    def put_with_a_wrong_revision(self, key: str, off: int) -> None:
        with pytest.raises(RevisionConflict) as conflict:
            self.run(self.store.put(key, b"", expect=self.current_revision(key) + off))
        assert conflict.value.current == self.entries.get(key)

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.entries)))
        deleted = self.run(self.store.delete(key, expect=self.current_revision(key)))
        assert deleted == self.record_delete(key)

    @rule(keys=st.lists(some_key, min_size=2, max_size=6))
    def replace_concurrently(self, keys: list[str]) -> None:
        """Deletions and creations of the same keys, all waiting for the store at once."""
        deeds: list[Coroutine[Any, Any, StoreEntry]] = []
        wanted: list[StoreEntry] = []
        for key in keys:
            if key in self.entries:
                deeds.append(self.store.delete(key, expect=self.current_revision(key)))
                wanted.append(self.record_delete(key))
            else:
                entry = StoreEntry(key, b"x", self.revision + 1, self.revision + 1)
                deeds.append(self.store.put(key, b"x", expect=0))
                self.entries[key] = entry
                self.events.append(StoreEvent("put", entry, None))
                wanted.append(entry)

        async def all_at_once() -> list[StoreEntry]:
            return await asyncio.gather(*deeds)

        assert self.run(all_at_once()) == wanted

    @precondition(lambda self: self.deadlines)
    @rule(seconds=st.integers(1, TTL))
    def let_time_pass(self, seconds: int) -> None:
        moment = self.clock.monotonic() + seconds
        before = self.revision
        for deadline, key in sorted((when, key) for key, when in self.deadlines.items()):
            if deadline <= moment:
                self.record_delete(key)

        async def until_expired() -> list[StoreEvent]:
            expected = len(self.events) - before + 1
            await self.clock.advance(seconds)
            return await self.watched("", before, expected)

        assert self.run(until_expired()) == self.events[before - 1 :]

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        revision = data.draw(st.integers(0, self.revision))
        self.run(self.store.compact(revision))
        if revision >= self.least_compaction:
            self.compacted = max(self.compacted, revision)

    @rule(prefix=some_prefix, after=st.sampled_from(["", *KEYS]), limit=st.integers(0, 4))
    def list_now(self, prefix: str, after: str, limit: int) -> None:
        self.check_list(prefix, 0, after, limit)

    @rule(data=st.data(), prefix=some_prefix, limit=st.integers(0, 4))
    def list_the_past(self, data: st.DataObject, prefix: str, limit: int) -> None:
        at = data.draw(st.integers(1, self.revision))
        after = data.draw(st.sampled_from(["", *KEYS]))
        if at < self.compacted:
            with pytest.raises(RevisionCompacted):
                self.run(self.store.list(prefix, at=at))
        else:
            self.check_list(prefix, at, after, limit)

    def check_list(self, prefix: str, at: int, after: str, limit: int) -> None:
        page = self.run(self.store.list(prefix, at=at, after=after, limit=limit))
        fitting = [
            entry
            for entry in self.state(at or self.revision)
            if entry.key.startswith(prefix) and entry.key > after
        ]
        shown = fitting[:limit] if limit else fitting
        assert page.entries == shown
        assert page.revision == (at or self.revision)
        assert page.remaining == len(fitting) - len(shown)
        assert page.more == (page.remaining > 0)

    @rule(data=st.data(), prefix=some_prefix)
    def watch(self, data: st.DataObject, prefix: str) -> None:
        since = data.draw(st.integers(0, self.revision))
        if since < self.compacted:
            with pytest.raises(RevisionCompacted):
                self.run(self.watched(prefix, since, 1))
            return
        wanted = [
            event
            for event in self.events
            if event.entry.revision > since and event.entry.key.startswith(prefix)
        ]
        assert self.run(self.watched(prefix, since, len(wanted))) == wanted

    async def watched(self, prefix: str, since: int, count: int) -> list[StoreEvent]:
        """The first so many events of a watch."""
        async with aclosing(self.store.watch(prefix, since=since)) as watch:
            return [await anext(watch) for _ in range(count)]

    @invariant()
    def every_key_reads_as_written(self) -> None:
        assert self.store.revision == self.revision
        for key in KEYS[:3]:
            assert self.run(self.store.get(key)) == self.entries.get(key)


class MemoryMachine(StoreMachine):
    async def open(self) -> Store:
        return MemoryStore(self.clock)


class SqliteMachine(StoreMachine):
    directory: ClassVar[Path]

    async def open(self) -> Store:
        self.path = Path(tempfile.mkdtemp(dir=self.directory)) / "state.db"
        return await SqliteStore.open(self.path, self.clock)

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.run(SqliteStore.open(self.path, self.clock))


class EtcdMachine(StoreMachine):
    least_compaction = 2
    """Nothing happens at revision 1, so that etcd is not asked to compact it."""

    async def open(self) -> Store:
        self.etcd = EtcdProcess.throwaway()
        self.connection = EtcdConnection(endpoints=(self.etcd.endpoint,))
        return await EtcdStore.open(self.connection, self.clock)

    def teardown(self) -> None:
        super().teardown()
        self.etcd.remove()

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.run(EtcdStore.open(self.connection, self.clock))
        # The leases of their keys end later than their time; see test_store_etcd.py.
        self.deadlines.clear()

    @rule(keys=st.lists(some_key, min_size=2, max_size=6, unique=True))
    def replace_concurrently(self, keys: list[str]) -> None:
        """Etcd orders requests of different keys as they come. The revisions tell the order."""

        async def write() -> list[StoreEntry]:
            return await asyncio.gather(
                *(
                    self.store.delete(key, expect=self.current_revision(key))
                    if key in self.entries
                    else self.store.put(key, b"x", expect=0)
                    for key in keys
                )
            )

        for entry in sorted(self.run(write()), key=lambda entry: entry.revision):
            if entry.key in self.entries:
                assert self.record_delete(entry.key) == entry
            else:
                assert entry == StoreEntry(entry.key, b"x", self.revision + 1, self.revision + 1)
                self.entries[entry.key] = entry
                self.events.append(StoreEvent("put", entry, None))


class PostgresMachine(StoreMachine):
    server: ClassVar[PostgresProcess]

    async def open(self) -> Store:
        self.connection = PostgresConnection(address=self.server.new_address())
        return await PostgresStore.open(self.connection, self.clock)

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.run(PostgresStore.open(self.connection, self.clock))


def test_memory_agrees_with_the_model() -> None:
    run_state_machine_as_test(
        MemoryMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )


def test_sqlite_agrees_with_the_model(tmp_path: Path) -> None:
    SqliteMachine.directory = tmp_path
    run_state_machine_as_test(
        SqliteMachine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("etcd")
def test_etcd_agrees_with_the_model() -> None:
    run_state_machine_as_test(
        EtcdMachine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )


@pytest.mark.timeout(120)
def test_postgresql_agrees_with_the_model(shared_postgresql: PostgresProcess) -> None:
    PostgresMachine.server = shared_postgresql
    run_state_machine_as_test(
        PostgresMachine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )
