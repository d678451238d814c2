"""A log that a program sets aside by itself when it has grown large, however long it runs.

A program in the background has its log as its standard output and error, opened by its starter for
appending. The starter looks at the size at every start only, and a server runs for months.
"""

import contextlib
import logging
import os
from typing import Final

from kedge.restarter.program import LOG_LIMIT

_OUTPUT: Final = 1
_ERROR: Final = 2


class BoundedLogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error. If that is the file `name` of the working directory, there are at
    most two of it: `name` and `name.1`, each little larger than the limit."""

    def __init__(self, name: str, limit: int = LOG_LIMIT) -> None:
        super().__init__()
        self._name = name
        self._limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        with contextlib.suppress(OSError):
            if os.fstat(_ERROR).st_size >= self._limit:
                self._begin_anew()

    def _begin_anew(self) -> None:
        # Standard error may have been redirected: only our own log file is rotated.
        if not os.path.samestat(os.stat(self._name), os.fstat(_ERROR)):
            return
        also_output = os.path.samestat(os.fstat(_OUTPUT), os.fstat(_ERROR))
        # First, because it may fail on a full disk, and there must be a file of this name.
        beside = f".{self._name}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
        new = os.open(beside, flags, 0o600)
        try:
            os.replace(self._name, f"{self._name}.1")
            os.replace(beside, self._name)
            for number in (_OUTPUT, _ERROR) if also_output else (_ERROR,):
                os.dup2(new, number)
        finally:
            os.close(new)
