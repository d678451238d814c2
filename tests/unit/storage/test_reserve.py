"""Space that the store reserves in advance."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.storage.reserve import (
    LOG_BYTES,
    LOW_BYTES,
    STEP_BYTES,
    Reserve,
    allocate_log,
    row_bytes,
)
from kedge.storage.sqlite.database import checkpoint, connect, open_first


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kedge.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    open_first(path).close()
    made = connect(path)
    yield made
    made.close()


@pytest.fixture
def reserve(path: Path, connection: sqlite3.Connection) -> Iterator[Reserve]:
    made = Reserve(path, connection)
    yield made
    made.close()


def on_disk(path: Path) -> int:
    return os.stat(path).st_blocks * 512


def pages(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA page_count").fetchone()[0]) * 4096


def test_free_pages_are_on_disk_also_after_the_log_was_copied(
    path: Path, connection: sqlite3.Connection, reserve: Reserve
) -> None:
    reserve.grow()
    assert reserve.free >= STEP_BYTES
    checkpoint(connection)
    assert on_disk(path) >= pages(connection) >= STEP_BYTES
    assert connection.execute("SELECT count(*) FROM contents").fetchone() == (0,)


def test_what_is_spent_is_counted_and_made_good_in_time(reserve: Reserve) -> None:
    reserve.grow()
    for _ in range(3000):
        reserve.spend(row_bytes(b"x" * 1000))
        assert reserve.free >= LOW_BYTES - row_bytes(b"x" * 1000)


def test_rows_that_are_larger_than_the_reserve_have_their_room_too(
    path: Path, reserve: Reserve
) -> None:
    reserve.spend(8 * STEP_BYTES)
    assert on_disk(path) >= 8 * STEP_BYTES


def test_the_log_has_its_blocks_from_the_beginning(
    path: Path, connection: sqlite3.Connection
) -> None:
    connection.execute("INSERT INTO contents VALUES (1, x'00')")
    assert allocate_log(path)
    assert on_disk(Path(f"{path}-wal")) >= LOG_BYTES
    other = connect(path)
    assert other.execute("SELECT revision FROM contents").fetchall() == [(1,)]
    other.close()


def test_without_a_log_there_is_nothing_to_give_blocks_to(path: Path) -> None:
    assert not allocate_log(path)
