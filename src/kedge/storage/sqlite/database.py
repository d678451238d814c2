"""Opening the file of a store, checking it, and naming its failures."""

import errno
import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from kedge.machinery import reserve_files
from kedge.storage.lockfile import StoreLock
from kedge.storage.sqlite import rows
from kedge.storage.sqlite import statements as sql
from kedge.storage.store import DiskFull, StoreDamaged, StoreError

RESTART_BYTES = 32 << 20
"""Log written until the writer itself copies the rest, so that the log starts over."""
FATAL = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_FSYNC}
"""Errors after which the file cannot be trusted to take further writes."""
FULL = {
    sqlite3.SQLITE_FULL,
    # A quota or a file size limit has the same effect as a full disk.
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
"""Errors that mean that there is no space."""
WAL_MAGIC = 0x377F0682
"""The first bytes of a write-ahead log, except the last bit."""
CHECKED_BYTES = 32 << 20
"""A file up to this size is checked completely when it is opened; larger ones where they are
read."""

log = logging.getLogger(__name__)


class UnknownLayout(StoreError):
    """The file was written by another version of kedge, or by something else."""

    def __init__(self, path: Path, found: int | None) -> None:
        what = "is not a kedge store" if found is None else f"has storage layout {found}"
        super().__init__(
            f"{path} {what}, and this kedge reads only layout {sql.LAYOUT}: nothing was changed."
            " Start the version of kedge that wrote the file, put the right file back, or begin"
            " anew with 'kedge down --purge'"
        )
        self.path = path
        self.found = found
        self.expected = sql.LAYOUT


def checked(held: StoreLock) -> sqlite3.Connection:
    """Open the file after checking that it is undamaged and has our layout; makes a new one."""
    path = held.path
    check_files(path)
    # SQLite gives its own files beside this one the same mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    path.chmod(0o600)
    if path.stat().st_size > 0:
        reserve_files.with_room(path.parent, lambda: look_through(held))
    return reserve_files.with_room(path.parent, lambda: open_first(path))


def look_through(held: StoreLock) -> None:
    """Raise the error if the file is damaged. Opens it read-only: closing a writable connection
    would checkpoint the log, and destroy the rest of a torn one."""
    path = held.path
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            if not is_new(connection):
                check_layout(path, *identity(connection))
                check_content(connection, held)
        except sqlite3.DatabaseError as error:
            raise refusal(path, error) from error


def check_files(path: Path) -> None:
    """Raise StoreDamaged if the files' sizes and headers cannot be those of a store."""
    size, header = start_of(path)
    _, log_header = start_of(Path(f"{path}-wal"))
    logged = int.from_bytes(log_header[:4], "big") & ~1 == WAL_MAGIC
    if size == 0 and logged:
        raise damaged(path, "it is missing or empty, though its write-ahead log holds writes")
    # With a log, the file may not have all pages yet.
    pages, page_bytes = int.from_bytes(header[28:32], "big"), int.from_bytes(header[16:18], "big")
    expected = pages * (65536 if page_bytes == 1 else page_bytes)
    if header.startswith(b"SQLite format 3\0") and not logged and size < expected:
        raise damaged(path, f"it was cut off after {size} of {expected} bytes")


def start_of(path: Path) -> tuple[int, bytes]:
    """Return the size and the first bytes of a file; 0 and nothing if it does not exist."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size, file.read(100)
    except FileNotFoundError:
        return 0, b""


def open_first(path: Path) -> sqlite3.Connection:
    """Open the file; a new one gets our layout."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        if is_new(connection):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(sql.SCHEMA)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise refusal(path, error) from error
    return connection


def refusal(path: Path, error: sqlite3.DatabaseError) -> Exception:
    """Return the error if the file cannot be opened; lack of space becomes an OSError, for
    `with_room`."""
    if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
        return UnknownLayout(path, None)
    if is_full(error):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return failure_of(path, error)


def check_layout(path: Path, application: int, layout: int) -> None:
    if application != sql.APPLICATION:
        raise UnknownLayout(path, None)
    if layout != sql.LAYOUT:
        raise UnknownLayout(path, layout)


def check_content(connection: sqlite3.Connection, held: StoreLock) -> None:
    """Raise StoreDamaged if pages are inconsistent, or if acknowledged writes are lost."""
    path = held.path
    if path.stat().st_size <= CHECKED_BYTES:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damaged(path, found.replace("\n", " "))
    if (newest := rows.head(connection)) < held.reached:
        raise damaged(
            path,
            f"it ends at revision {newest}, but writes up to {held.reached} were acknowledged:"
            f" its write-ahead log {path.name}-wal is missing or cut off, or the file is an older"
            " copy",
        )


def damaged(path: Path, why: str) -> StoreDamaged:
    name = path.name
    return StoreDamaged(
        f"{path}, which holds all objects of the cluster, is damaged: {why}. Nothing was changed."
        f" Put back a copy of the directory, or of {name} alone, and then remove {name}-wal,"
        f" {name}-shm and {name}.lock; to go on with what is there, remove {name}.lock; 'sqlite3"
        f" {name} .recover' prints what can be read of a file that cannot be opened; 'kedge down"
        " --purge' deletes the cluster, to begin anew"
    )


def no_space(path: Path) -> DiskFull:
    return DiskFull(
        f"the disk that holds {path} is full: objects can still be deleted, and written again once"
        " there is space"
    )


def failure_of(path: Path, error: sqlite3.Error) -> StoreError:
    if is_fatal(error):
        return damaged(path, str(error))
    return no_space(path) if is_full(error) else StoreError(f"{path}: {error}")


def is_new(connection: sqlite3.Connection) -> bool:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return tables == 0 and identity(connection) == (0, 0)


def identity(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    return application, layout


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=4 * sql.MOST
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    # A log that is written over is faster than one that grows, so this much of it is left standing.
    connection.execute(f"PRAGMA journal_size_limit = {2 * RESTART_BYTES}")
    return connection


def checkpoint(connection: sqlite3.Connection) -> None:
    """Copy what can be copied from the log into the file without making anybody wait."""
    try:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.Error as error:
        # Nothing is lost: the log keeps what was not copied, and the next round tries again.
        log.warning("checkpoint failed error=%s", error)


def is_fatal(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return code in FATAL or code & 0xFF in FATAL


def is_full(error: Exception) -> bool:
    """Return whether the error is a lack of space."""
    code = getattr(error, "sqlite_errorcode", 0)
    return (
        code in FULL
        or isinstance(error, DiskFull)
        or reserve_files.is_full(error)
        or (isinstance(error, OSError) and error.errno == errno.EFBIG)
    )
