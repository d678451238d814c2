"""The file of a store, and errors of SQLite."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kedge.testing.clock import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "kedge.db"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def open_files() -> Callable[[Path], list[str]]:
    """Returns the files in the directory of a store that this process has open."""

    def found_open(path: Path) -> list[str]:
        found = []
        for number in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):
                found.append(os.readlink(f"/proc/self/fd/{number}"))
        return [each for each in found if each.startswith(f"{path.parent}/")]

    return found_open


@pytest.fixture
def failure() -> Callable[[int], sqlite3.OperationalError]:
    """Returns the error of SQLite with a code."""

    def made(code: int) -> sqlite3.OperationalError:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        return error

    return made
