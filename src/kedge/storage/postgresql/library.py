"""The only import of asyncpg, which is loaded at the first connection and may not be installed."""

import importlib
from functools import cache
from typing import Any

from kedge.storage.store import StoreError


class LibraryMissing(StoreError):
    """asyncpg is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "--store postgresql:// needs the Python package asyncpg, which is not installed:"
            ' run pip install "kedge[postgresql]" in the environment of kedge'
        )


@cache
def load() -> Any:
    """The module `asyncpg`; raises LibraryMissing."""
    try:
        return importlib.import_module("asyncpg")
    except ModuleNotFoundError:
        raise LibraryMissing from None
