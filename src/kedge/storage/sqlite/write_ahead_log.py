"""WriteAheadLog: when and by which thread the log is copied into the file."""

import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kedge.storage.sqlite import database

COPY_BYTES = 8 << 20
"""Log written until a side thread copies it into the file, which disturbs no writer."""


class WriteAheadLog:
    """Keeps the write-ahead log short without writers having to wait for it.

    A side thread copies most of the log into the file. Only when nothing at all is left to copy can
    the log start over, so now and then the writer copies the little that came in meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._connection = database.connect(path)
        self._side = ThreadPoolExecutor(1, "kedge-store-log")
        self._copying: Future[None] | None = None
        self._since_copy = 0
        self._since_restart = 0

    @property
    def untidy(self) -> bool:
        return self._since_restart > 0

    def grew(self, value_bytes: int, changes: int) -> None:
        # About two pages per change besides the value; SQLite does not tell the exact figure.
        grown = value_bytes + changes * 8192
        self._since_copy += grown
        self._since_restart += grown

    def tend(self, writing: sqlite3.Connection, *, quiet: bool) -> None:
        """Called by the writer between two groups, and when it has nothing to do."""
        if self._copying is not None and not self._copying.done():
            return
        if quiet or (self._copying is not None and self._since_restart >= database.RESTART_BYTES):
            self._since_copy = self._since_restart = 0
            database.checkpoint(writing)
        self._copying = None
        if self._since_copy >= COPY_BYTES:
            self._since_copy = 0
            self._copying = self._side.submit(self._copy)

    def flush(self, writing: sqlite3.Connection) -> None:
        """Checkpoint the whole log, so that the next write starts at its beginning."""
        if self._copying is not None:
            self._copying.result()
            self._copying = None
        self._since_copy = self._since_restart = 0
        database.checkpoint(writing)

    def close(self) -> None:
        self._side.shutdown()
        self._connection.close()

    def _copy(self) -> None:
        # The second round is short, and leaves next to nothing for the writer.
        database.checkpoint(self._connection)
        database.checkpoint(self._connection)
