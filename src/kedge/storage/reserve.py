"""Space that the SQLite store reserves in advance, so that it can delete objects on a full disk.

A commit goes to the write-ahead log, and its pages later to the file. If either had to grow on a
full disk, nothing could be written, not even deletions. So the file has free pages on disk
before they are needed, in SQLite's list of free pages, and the log has its blocks from the
beginning: it is overwritten after a checkpoint.

etcd has an alarm instead, which refuses everything but deletions and wants an operator to compact,
defragment and disarm it. Kubelets keep images and logs off a threshold. A reserve file that is
deleted when space runs out would be simpler, but the program that filled the disk would take
that space too.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final

LOG_BYTES: Final = 4 << 20
"""Bytes of the write-ahead log from the beginning: a few hundred deletions until a checkpoint."""
STEP_BYTES: Final = 1 << 20
"""How much the file grows by at a time; SQLite's cache holds twice as much."""
LOW_BYTES: Final = 512 << 10
"""Free pages that are left for deletions and for what keeps the cluster alive."""
LAST_BYTES: Final = 128 << 10
"""Free pages that are left for deletions alone."""
ROW_BYTES: Final = 1024
"""About how many bytes a change takes besides its value."""
_NOBODY: Final = -1
"""A revision that no change has."""


class Reserve:
    """The free pages of one file; used by the thread that writes it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        # Open as long as the connections are: closing it would drop the locks of all of them.
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._connection = connection
        self._page = int(connection.execute("PRAGMA page_size").fetchone()[0])
        self.free = self.measure()
        """Bytes of free pages, about: counted down while writing, and measured now and then."""

    def measure(self) -> int:
        self.free = int(self._value("freelist_count")) * self._page
        return self.free

    def spend(self, size: int) -> None:
        """Reserve space for rows of so many bytes in all, growing the file if free pages run
        low.

        OSError or sqlite3.Error if it cannot grow.
        """
        self.free -= size
        if self.free >= LOW_BYTES:
            return
        if self.measure() < LOW_BYTES + size:
            self.grow(size)
        self.free -= size

    def grow(self, size: int = 0) -> None:
        """Grow the free pages, with space for rows of so many bytes besides."""
        self._allocate(self._value("page_count") * self._page + size + 2 * STEP_BYTES)
        if self.free < LOW_BYTES:
            self._free_pages()
        self.settle()
        self.measure()

    def settle(self) -> None:
        """Allocate all pages on disk: a checkpoint truncates the file to the size it knew."""
        self._allocate(self._value("page_count") * self._page)

    def close(self) -> None:
        os.close(self._file)

    def _free_pages(self) -> None:
        """Grow the file by free pages, which SQLite counts but does not write.

        Nothing is acknowledged here, so nothing is synced: the commit that follows syncs the log.
        A second sync per megabyte of new objects made other tenants' writes wait twice as long.
        """
        filler = (_NOBODY, self.free + STEP_BYTES)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        try:
            self._fill_and_delete(filler)
        finally:
            self._connection.execute("PRAGMA synchronous = FULL")

    def _fill_and_delete(self, filler: tuple[int, int]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.execute("INSERT INTO contents VALUES (?, zeroblob(?))", filler)
            self._connection.execute("DELETE FROM contents WHERE revision = ?", (_NOBODY,))
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _allocate(self, size: int) -> None:
        there = os.fstat(self._file).st_size
        if size > there:
            os.posix_fallocate(self._file, there, size - there)

    def _value(self, pragma: str) -> int:
        return int(self._connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def allocate_log(path: Path) -> bool:
    """Allocate the log's blocks; returns whether there was space. SQLite treats zeros as the end
    of the log."""
    for size in (LOG_BYTES, LOG_BYTES // 4):
        try:
            log = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            there = os.fstat(log).st_size
            if there < size:
                os.posix_fallocate(log, there, size - there)
        except OSError:
            os.truncate(log, there)
            continue
        else:
            return size == LOG_BYTES
        finally:
            os.close(log)
    return False


def row_bytes(value: bytes) -> int:
    """Return about how many bytes a row with this value takes."""
    return len(value) + len(value) // 4 + ROW_BYTES
