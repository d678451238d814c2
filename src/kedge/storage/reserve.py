"""Space that the SQLite store owns before it needs it, so that a full disk finds it able to delete.

A commit goes to the write-ahead log, and its pages later to the file. Were either to grow at a
moment when the disk is full, nothing could be written any more: not even the deletions that would
make room. So the pages of the file are on disk before they are used, as free pages that SQLite
keeps a list of, and the log has its blocks from the beginning: once copied it is written over.

etcd has an alarm instead, which refuses everything but deletions and wants an operator to compact,
defragment and disarm it. Kubelets keep images and logs off a threshold. A file that is deleted when
space runs out would be simpler still; but whatever filled the disk takes that space as well.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final

LOG_BYTES: Final = 4 << 20
"""What the write-ahead log has from the beginning: some hundred deletions, until it is copied."""
STEP_BYTES: Final = 1 << 20
"""How much the file grows by at a time; SQLite's cache holds twice as much."""
LOW_BYTES: Final = 512 << 10
"""Free pages that are left for deletions and for what keeps the cluster alive."""
LAST_BYTES: Final = 128 << 10
"""Free pages that are left for deletions alone."""
ROW_BYTES: Final = 1024
"""About what a change takes besides its value."""
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
        """Count on rows of so many bytes in all, growing the file if free pages run low.

        OSError or sqlite3.Error if it cannot grow.
        """
        self.free -= size
        if self.free >= LOW_BYTES:
            return
        if self.measure() < LOW_BYTES + size:
            self.grow(size)
        self.free -= size

    def grow(self, size: int = 0) -> None:
        """Have free pages, and room on disk for rows of so many bytes besides."""
        self._allocate(self._value("page_count") * self._page + size + 2 * STEP_BYTES)
        if self.free < LOW_BYTES:
            self._free_pages()
        self.settle()
        self.measure()

    def settle(self) -> None:
        """See that all pages are on disk: a copy of the log cuts the file to the size it knew."""
        self._allocate(self._value("page_count") * self._page)

    def close(self) -> None:
        os.close(self._file)

    def _free_pages(self) -> None:
        """Make the file longer by pages that are free: those are counted, but not written."""
        filler = (_NOBODY, self.free + STEP_BYTES)
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
    """Give the log its blocks; whether there was room. To SQLite it ends where it makes no sense,
    and zeros make none."""
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
    """About what a row with this value takes in the file."""
    return len(value) + len(value) // 4 + ROW_BYTES
