import asyncio
import os
from typing import Any, cast

import msgspec
import pytest

from kedge.node.runtime.cri import streams
from kedge.node.runtime.cri.streams import RemoteStreams, exit_code
from kedge.node.runtime.runtime import RuntimeFailure


def test_the_exit_code_is_in_the_status() -> None:
    assert exit_code(b'{"metadata":{},"status":"Success"}') == 0
    causes = [{"reason": "ExitCode", "message": "3"}]
    failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    assert exit_code(msgspec.json.encode(failure)) == 3


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b'{"status": "Failure", "message": "no such program"}', "no such program"),
        (b"not JSON", "not JSON"),
        (b"", "without an exit code"),
    ],
)
def test_a_command_that_did_not_run_is_a_failure(said: bytes, message: str) -> None:
    with pytest.raises(RuntimeFailure, match=message):
        exit_code(said)


@pytest.mark.parametrize("url", ["https://127.0.0.1:1/exec/x", "/exec/x"])
async def test_streams_with_tls_are_refused_in_words(url: str) -> None:
    with pytest.raises(RuntimeFailure, match="enable_tls_streaming = false"):
        await streams.connect(url)


class FakeSpdy:
    """A connection that lasts until it is closed."""

    def __init__(self) -> None:
        self.is_closed = self.has_ended = False
        self.begun = asyncio.Event()

    async def run(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.has_ended = True

    def open(self, headers: dict[str, str]) -> Any:
        return object()

    async def close(self) -> None:
        self.is_closed = True


async def test_streams_that_cannot_be_opened_leave_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(**_: object) -> Any:
        raise OSError("too many open files")

    connection = FakeSpdy()
    opened = RemoteStreams(cast(Any, connection), None)
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(asyncio, "open_unix_connection", refused)
    await connection.begun.wait()
    with pytest.raises(OSError, match="too many"):
        await opened.open(stdin=True, stdout=True, stderr=True, tty=False)
    assert connection.is_closed
    assert connection.has_ended
    assert os.listdir("/proc/self/fd") == before
