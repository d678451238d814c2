"""Files that are opened, refused or found to be damaged."""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kedge.storage.lockfile import hold
from kedge.storage.sqlite import database, rows
from kedge.storage.sqlite.database import UnknownLayout
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import (
    StoreDamaged,
)
from kedge.testing.clock import FakeClock


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def replace_file(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def make_file(path: Path, content: str) -> bytes:
    path.parent.mkdir(exist_ok=True)
    if content == "text":
        path.write_text("dear diary, " * 100)
    else:
        connection = sqlite3.connect(path)
        connection.execute(content)
        connection.commit()
        connection.close()
    return bytes_of(path)


async def test_a_file_of_another_layout_is_refused_untouched(path: Path, clock: FakeClock) -> None:
    await (await SqliteStore.open(path, clock)).close()
    before = make_file(path, "PRAGMA user_version = 7")
    with pytest.raises(
        UnknownLayout, match=r"layout 7.*only layout 1: nothing was changed"
    ) as refusal:
        await SqliteStore.open(path, clock)
    assert (refusal.value.path, refusal.value.found, refusal.value.expected) == (path, 7, 1)
    assert bytes_of(path) == before


@pytest.mark.parametrize("content", ["text", "CREATE TABLE diary (day)"])
async def test_a_file_that_is_no_store_is_refused_untouched(
    path: Path, clock: FakeClock, content: str
) -> None:
    before = make_file(path, content)
    with pytest.raises(UnknownLayout, match="is not a kedge store, and"):
        await SqliteStore.open(path, clock)
    assert bytes_of(path) == before


def test_a_lack_of_space_while_opening_is_an_error_of_the_system(
    failure: Callable[[int], sqlite3.OperationalError], path: Path
) -> None:
    found = database.refusal(path, failure(sqlite3.SQLITE_FULL))
    assert isinstance(found, OSError)
    assert (found.errno, found.filename) == (errno.ENOSPC, str(path))
    assert isinstance(database.refusal(path, failure(sqlite3.SQLITE_NOTADB)), UnknownLayout)
    assert isinstance(database.refusal(path, failure(sqlite3.SQLITE_CORRUPT)), StoreDamaged)
    assert str(database.refusal(path, failure(sqlite3.SQLITE_IOERR))) == f"{path}: disk I/O error"


def test_a_file_that_is_no_database_is_not_made_one(
    open_files: Callable[[Path], list[str]], path: Path
) -> None:
    before = make_file(path, "text")
    with pytest.raises(UnknownLayout):
        database.open_first(path)
    assert bytes_of(path) == before
    assert open_files(path) == []


def test_connections_flush_each_commit_and_leave_the_log_to_the_store(path: Path) -> None:
    path.parent.mkdir()
    with closing(database.connect(path)) as connection:
        found = [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("synchronous", "wal_autocheckpoint", "journal_size_limit")
        ]
    full = 2
    assert found == [full, 0, 2 * database.RESTART_BYTES]


async def test_a_file_that_others_could_read_becomes_private(path: Path, clock: FakeClock) -> None:
    await (await SqliteStore.open(path, clock)).close()
    os.chmod(path, 0o644)
    await (await SqliteStore.open(path, clock)).close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


async def test_a_file_that_was_refused_is_not_in_use(path: Path, clock: FakeClock) -> None:
    await (await SqliteStore.open(path, clock)).close()
    make_file(path, "PRAGMA user_version = 7")
    for _ in range(2):
        with pytest.raises(UnknownLayout):
            await SqliteStore.open(path, clock)
    make_file(path, "PRAGMA user_version = 1")
    await (await SqliteStore.open(path, clock)).close()


async def test_a_store_whose_lock_file_was_removed_learns_anew_how_far_it_got(
    path: Path, clock: FakeClock
) -> None:
    await (await SqliteStore.open(path, clock)).close()
    older = bytes_of(path)
    store = await SqliteStore.open(path, clock)
    await store.put("/a", b"1", expect=0)
    await store.close()
    os.unlink(f"{path}.lock")
    await (await SqliteStore.open(path, clock)).close()
    replace_file(path, older)
    with pytest.raises(StoreDamaged, match="it ends at revision 1, but writes up to 2 were acknow"):
        await SqliteStore.open(path, clock)


async def test_writes_that_were_acknowledged_and_are_gone_are_missed(
    path: Path, clock: FakeClock
) -> None:
    store = await SqliteStore.open(path, clock)
    await store.put("/a", b"1", expect=0)
    await store.close()
    older = bytes_of(path)
    store = await SqliteStore.open(path, clock)
    await store.put("/b", b"1", expect=0)
    await store.close()
    replace_file(path, older)
    with pytest.raises(StoreDamaged, match="it ends at revision 2, but writes up to 3 were acknow"):
        await SqliteStore.open(path, clock)
    assert bytes_of(path) == older
    os.unlink(f"{path}.lock")
    store = await SqliteStore.open(path, clock)
    assert store.revision == 2
    await store.close()


async def test_a_file_that_was_cut_off_is_refused_untouched(path: Path, clock: FakeClock) -> None:
    await (await SqliteStore.open(path, clock)).close()
    replace_file(path, before := bytes_of(path)[:-4096])
    sizes = f"it was cut off after {len(before)} of {len(before) + 4096} bytes"
    with pytest.raises(StoreDamaged, match=sizes):
        await SqliteStore.open(path, clock)
    assert bytes_of(path) == before


def test_the_largest_pages_are_counted_too(path: Path) -> None:
    path.parent.mkdir()
    header = b"SQLite format 3\0" + (1).to_bytes(2, "big") + bytes(10) + (2).to_bytes(4, "big")
    replace_file(path, header.ljust(131_072))
    database.check_files(path)
    replace_file(path, header.ljust(131_071))
    with pytest.raises(StoreDamaged, match="cut off after 131071 of 131072 bytes"):
        database.check_files(path)


class Inspected:
    """A connection whose file has a fault."""

    def execute(self, statement: str) -> Any:
        return self

    def fetchone(self) -> tuple[str]:
        return ("row 1 missing\nfrom index",)


async def test_a_file_with_a_fault_is_refused_up_to_a_size(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await SqliteStore.open(path, clock)).close()
    connection: Any = Inspected()
    size = len(bytes_of(path))
    with closing(hold(path)) as held:
        monkeypatch.setattr(database, "CHECKED_BYTES", size)
        with pytest.raises(StoreDamaged, match=r"damaged: row 1 missing from index\. Nothing was"):
            database.check_content(connection, held)
        monkeypatch.setattr(database, "CHECKED_BYTES", size - 1)
        monkeypatch.setattr(rows, "head", lambda connection: held.reached)
        database.check_content(connection, held)


async def test_a_log_without_its_file_is_refused(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    await store.put("/a", b"1", expect=0)
    log = bytes_of(path.with_name("kedge.db-wal"))
    await store.close()
    replace_file(path.with_name("kedge.db-wal"), log)
    why = "is damaged: it is missing or empty, though its write-ahead log holds writes. Nothing"
    replace_file(path, b"")
    with pytest.raises(StoreDamaged, match=why):
        await SqliteStore.open(path, clock)
    os.unlink(path)
    with pytest.raises(StoreDamaged, match=why):
        await SqliteStore.open(path, clock)
