"""The output of a container in the live view."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.cli.usage.top.live.log_text import MOST_BYTES, MOST_LINES, CutLines, LogText
from kedge.client.transport import Unreachable
from kedge.machinery.errors import StatusError
from kedge.testing.clock import FakeClock


def test_lines_are_cut_where_they_end_or_are_too_long() -> None:
    cutter = CutLines()
    assert cutter.feed(b"one\ntw") == [b"one"]
    assert cutter.feed(b"o\n\nrest") == [b"two", b""]
    assert cutter.end() == [b"rest"]
    assert cutter.end() == []


def test_output_without_line_breaks_does_not_fill_the_memory() -> None:
    cutter = CutLines()
    for _ in range(100):
        assert cutter.feed(b"x" * MOST_BYTES) == []
    assert cutter.feed(b"\n") == [b"x" * MOST_BYTES]


class Output:
    """A client whose streams are lists of pieces, or failures."""

    def __init__(self, *streams: list[bytes] | Exception) -> None:
        self._streams = [*streams]
        self.asked: list[Any] = []

    @asynccontextmanager
    async def stream(self, path: str, query: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append((path, query))
        found = self._streams.pop(0)
        if isinstance(found, Exception):
            raise found

        async def pieces() -> AsyncIterator[bytes]:
            for each in found:
                yield each

        yield pieces()


async def read(*streams: list[bytes] | Exception) -> tuple[list[str], Output]:
    clock, output = FakeClock(), Output(*streams)
    text = LogText(output, clock, lambda: None)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(text.follow("shop", "web", "main"))
        while not reading.done():
            await clock.advance(1)
    return text.lines, output


async def test_output_is_shown_without_commands_to_the_terminal() -> None:
    lines, output = await read([b"one\n\x1b[2Jtw", b"o\xff\n"])
    assert lines == ["one", "two\N{REPLACEMENT CHARACTER}", "(the output has ended)"]
    path, query = output.asked[0]
    assert path == "/api/v1/namespaces/shop/pods/web/log"
    assert query["container"] == "main"
    assert query["follow"] == "true"


async def test_only_the_newest_lines_are_kept() -> None:
    lines, _ = await read([b"".join(b"%d\n" % each for each in range(MOST_LINES + 10))])
    assert (lines[0], len(lines)) == ("10", MOST_LINES + 1)


async def test_a_server_that_goes_away_is_asked_again() -> None:
    lines, output = await read(
        Unreachable("nobody answers"), StatusError(503, "x", "busy"), [b"new\n"]
    )
    assert lines == ["new", "(the output has ended)"]
    assert len(output.asked) == 3


async def test_a_container_that_has_not_started_is_said() -> None:
    lines, output = await read(StatusError(400, "BadRequest", "container is waiting to start"))
    assert lines == ["(container is waiting to start)"]
    assert len(output.asked) == 1


def test_silence_is_said() -> None:
    text = LogText(Output(), FakeClock(), lambda: None)  # type: ignore[arg-type]
    assert text.lines == ["(no output yet)"]


@pytest.mark.parametrize("size", [1, 1 << 19])
async def test_a_container_that_only_writes_is_read_with_pauses(size: int) -> None:
    clock = FakeClock()
    text = LogText(Output([b"x" * size] * 2), clock, lambda: None)  # type: ignore[arg-type]
    reading = asyncio.ensure_future(text.follow("shop", "web", ""))
    await clock.advance(0)
    assert reading.done() == (size == 1)
    await clock.advance(0.2)
    await clock.advance(0.2)
    assert reading.done()
