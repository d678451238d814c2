"""Copy a database, also while a server writes to it."""

import contextlib
import sqlite3
from pathlib import Path
from urllib.parse import quote


class CopyFailure(Exception):
    """The database cannot be copied, or the copy is damaged."""


def copy_database(source: Path, target: Path) -> None:
    """Copy the database as it is at one moment. Writers are not held up: in WAL mode they go on
    beside a reader, and the copy has everything that was acknowledged before it began."""
    try:
        with (
            contextlib.closing(_open(source, "ro")) as reader,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            # All pages in one step are one read transaction, and so one moment.
            reader.backup(copy, pages=-1)
            # The copy is one file, whatever the source has beside it.
            copy.execute("PRAGMA journal_mode = DELETE").fetchone()
        check_database(target)
    except sqlite3.Error as error:
        raise CopyFailure(f"{source} cannot be copied: {error}") from error


def check_database(path: Path) -> None:
    """Raise CopyFailure unless the database is whole."""
    try:
        with contextlib.closing(_open(path, "ro")) as reader:
            (found,) = reader.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise CopyFailure(f"{path} is not a database: {error}") from error
    if found != "ok":
        raise CopyFailure(f"{path} is damaged: {found}")


def _open(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True)
