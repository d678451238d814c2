"""The log is copied into the file in time."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from kedge.storage.sqlite import database, write_ahead_log, writer
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.sqlite.write_ahead_log import WriteAheadLog
from kedge.testing.clock import FakeClock


async def test_the_log_does_not_grow_for_ever(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead_log, "COPY_BYTES", 200_000)
    monkeypatch.setattr(database, "RESTART_BYTES", 800_000)
    store = await SqliteStore.open(path, clock)
    for turn in range(60):
        await asyncio.gather(*(store.put(f"/{turn}/{i}", b"x" * 3000, expect=0) for i in range(20)))
    size = path.with_name("kedge.db-wal").stat().st_size
    await store.close()
    assert size < 5_000_000


class Checkpoints:
    """Notes the connections whose log is copied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: list[sqlite3.Connection] = []
        self.came = threading.Event()
        monkeypatch.setattr(database, "checkpoint", self._note)

    def _note(self, connection: sqlite3.Connection) -> None:
        self.of.append(connection)
        self.came.set()


async def test_the_rest_of_the_log_is_copied_when_all_is_quiet(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "QUIET", 0.01)
    store = await SqliteStore.open(path, clock)
    done = Checkpoints(monkeypatch)
    await store.put("/a", b"1", expect=0)
    assert await asyncio.to_thread(done.came.wait, 10)
    await store.close()


def test_the_log_is_copied_by_a_side_thread_and_now_and_then_by_the_writer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    page = 8192
    monkeypatch.setattr(write_ahead_log, "COPY_BYTES", 2 * page)
    monkeypatch.setattr(database, "RESTART_BYTES", 4 * page)
    done = Checkpoints(monkeypatch)
    with closing(database.connect(path)) as writing, closing(WriteAheadLog(path)) as log:
        side = log._connection

        def tended(*, quiet: bool = False) -> list[sqlite3.Connection]:
            """Tend the log and wait for its side thread; return the checkpoints of it."""
            done.of.clear()
            log.tend(writing, quiet=quiet)
            if log._copying is not None:
                log._copying.result()
            return [*done.of]

        assert not log.untidy
        assert tended() == []
        log.grew(page - 1, 0)
        assert log.untidy
        log.grew(0, 1)
        assert tended() == []
        log.grew(1, 0)
        assert tended() == [side, side]
        assert tended() == []
        log.grew(0, 2)
        assert tended() == [side, side]
        assert tended() == [writing]
        assert not log.untidy
        log.grew(1, 0)
        assert log.untidy
        assert tended(quiet=True) == [writing]
        assert not log.untidy
        log.grew(0, 2)
        log.tend(writing, quiet=False)
        done.of.clear()
        log.flush(writing)
        assert done.of[-1] is writing
        assert not log.untidy
        assert tended() == []


def test_a_flush_waits_for_the_copy_of_the_side_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    threads: list[str] = []
    may_end = threading.Event()

    def checkpoint(connection: sqlite3.Connection) -> None:
        threads.append(threading.current_thread().name)
        if len(threads) == 1:
            may_end.wait(10)

    monkeypatch.setattr(database, "checkpoint", checkpoint)
    monkeypatch.setattr(write_ahead_log, "COPY_BYTES", 1)
    with closing(database.open_first(path)) as writing, closing(WriteAheadLog(path)) as log:
        log.grew(1, 1)
        log.tend(writing, quiet=False)
        flush = threading.Thread(target=log.flush, args=(writing,), name="flush")
        flush.start()
        may_end.set()
        flush.join(10)
    assert threads == ["kedge-store-log_0", "kedge-store-log_0", "flush"]
