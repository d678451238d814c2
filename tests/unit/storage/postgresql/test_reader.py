"""Queries of the PostgreSQL store when the library fails."""

from collections.abc import Sequence
from typing import Any

import pytest

from kedge.storage.postgresql.patience import Patience
from kedge.storage.postgresql.reader import PostgresReader
from kedge.storage.store import StoreUnavailable
from kedge.testing.clock import FakeClock


class Session:
    """A connection that fails at first, with an error that is not one of PostgreSQL."""

    server = "db:5432"

    def __init__(self) -> None:
        self.is_broken = True

    async def fetch(
        self, query: str, *arguments: Any, seconds: float | None = None
    ) -> Sequence[Any]:
        if self.is_broken:
            raise RuntimeError("unable to perform operation on a closed transport")
        return [query]

    def disconnect(self) -> None:
        self.is_broken = False


async def test_an_error_of_the_library_fails_one_query_and_not_the_later_ones() -> None:
    reader = PostgresReader(Session(), Patience(FakeClock()))  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match="closed transport"):
        await reader.fetch("SELECT 1")
    assert await reader.fetch("SELECT 2") == ["SELECT 2"]
    await reader.close()
