"""Errors of the store as clients see them."""

import pytest

from kedge.storage.store import (
    DiskFull,
    FutureRevision,
    StoreEntry,
    StoreError,
    StoreUnavailable,
    ValueTooLarge,
    WriteOutcomeUnknown,
)
from kedge.testing.local_server import LocalServer

PATH = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (StoreUnavailable("down"), 503, "ServiceUnavailable"),
        (WriteOutcomeUnknown("who knows"), 504, "Timeout"),
        (ValueTooLarge("too much"), 413, "RequestEntityTooLarge"),
        (DiskFull("no space"), 507, "InsufficientStorage"),
        (FutureRevision(8, 7), 504, "Timeout"),
        (StoreError("broken"), 500, "InternalError"),
    ],
)
async def test_an_error_of_the_store_has_its_code(
    server: LocalServer,
    monkeypatch: pytest.MonkeyPatch,
    error: StoreError,
    code: int,
    reason: str,
) -> None:
    async def put(key: str, value: bytes, *, expect: int, ttl: int = 0) -> StoreEntry:
        raise error

    monkeypatch.setattr(server.store, "put", put)
    answer = await server.call("POST", PATH, {"metadata": {"name": "a"}})
    assert (answer.status, answer.reason) == (code, reason)
    assert str(error) in answer.message
    is_passing = code == 503 or isinstance(error, FutureRevision)
    assert answer.headers.get("Retry-After", "") == ("1" if is_passing else "")
