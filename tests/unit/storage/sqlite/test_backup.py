"""Copies of a database."""

import sqlite3
from pathlib import Path

import pytest

from kedge.storage.sqlite.backup import CopyFailure, check_database, copy_database


def rows(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    found = [value for (value,) in connection.execute("SELECT n FROM numbers ORDER BY n")]
    connection.close()
    return found


def test_a_copy_has_what_was_committed_and_only_that(tmp_path: Path) -> None:
    source = tmp_path / "a b%.db"
    writer = sqlite3.connect(source, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE numbers (n INTEGER)")
    writer.execute("INSERT INTO numbers VALUES (1)")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO numbers VALUES (2)")
    # In the log beside the file, of a writer that is in the middle of a transaction.
    copy_database(source, tmp_path / "copy.db")
    writer.execute("COMMIT")
    writer.close()
    assert rows(tmp_path / "copy.db") == [1]
    assert rows(source) == [1, 2]
    assert [each.name for each in tmp_path.glob("copy.db*")] == ["copy.db"]


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CopyFailure, match="cannot be copied"):
        copy_database(tmp_path / "none.db", tmp_path / "copy.db")
    (tmp_path / "text.db").write_text("no database, but long enough to be looked at" * 100)
    with pytest.raises(CopyFailure, match="is not a database"):
        check_database(tmp_path / "text.db")
