from pathlib import Path
from types import SimpleNamespace

import pytest

from kedge.node.runtime.cri.connection import (
    CriConnection,
    RuntimeUnavailable,
    UnsupportedCall,
)
from kedge.node.runtime.runtime import NotFoundError, RuntimeFailure


class Refusal:
    """An error of the gRPC library."""

    def __init__(self, code: str, details: str) -> None:
        self._code, self._details = code, details

    def code(self) -> SimpleNamespace:
        return SimpleNamespace(name=self._code)

    def details(self) -> str:
        return self._details


@pytest.mark.parametrize(
    ("code", "details", "expected", "text"),
    [
        ("NOT_FOUND", "no c", NotFoundError, "no c"),
        ("DEADLINE_EXCEEDED", "late", TimeoutError, "ExecSync took too long: late"),
        # CRI-O has given up a little before the deadline.
        ("CANCELLED", "Stream removed", TimeoutError, "ExecSync took too long: Stream removed"),
        ("UNAVAILABLE", "", RuntimeUnavailable, "nothing answers at /run/c.sock"),
        ("UNIMPLEMENTED", "", UnsupportedCall, "does not know ExecSync"),
        ("UNKNOWN", "broken", RuntimeFailure, "broken"),
        ("INTERNAL", "", RuntimeFailure, "ExecSync failed: INTERNAL"),
    ],
)
async def test_errors_have_types(
    code: str, details: str, expected: type[Exception], text: str
) -> None:
    connection = CriConnection(Path("/run/c.sock"))
    failure = connection._failure("ExecSync", Refusal(code, details))
    assert type(failure) is expected
    assert text in str(failure)
    await connection.close()
