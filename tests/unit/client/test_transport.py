import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kedge.client.transport import (
    BUFFER,
    Body,
    Call,
    Inflow,
    LocalResponse,
    LocalSink,
    LocalTransport,
    Stream,
    WatchInflow,
)


@dataclass
class Said:
    body: Body
    status: int = 200
    content_type: str = "text/plain"
    headers: list[tuple[str, str]] = field(default_factory=list)


def saying(answer: LocalResponse) -> LocalTransport:
    return LocalTransport(lambda call: answer)


async def test_a_writer_is_held_back_until_the_reader_has_caught_up() -> None:
    inflow = Inflow()
    inflow.write(b"x" * (BUFFER + 1))
    assert inflow.paused
    async with asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(inflow.drain())
        assert len(await anext(inflow)) == BUFFER + 1
        await draining
    assert not inflow.paused


async def test_who_tells_of_objects_is_held_back_like_who_writes() -> None:
    tidings = WatchInflow()
    tidings.tell("ADDED", b"x" * (BUFFER + 1))
    assert tidings.paused
    async with asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(tidings.drain())
        assert len(await tidings.news()) == 1
        await draining
    assert not tidings.paused


async def test_what_was_written_before_an_error_is_read_before_it() -> None:
    inflow = Inflow()
    inflow.write(b"all I had")
    inflow.end(ConnectionResetError("gone"))
    assert await anext(inflow) == b"all I had"
    with pytest.raises(ConnectionResetError):
        await anext(inflow)


async def test_leaving_a_stream_stops_whoever_writes_it() -> None:
    stopped = asyncio.Event()

    async def ticking(sink: LocalSink) -> None:
        try:
            sink.write(b"tick")
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with saying(Said(ticking)).stream(Call("GET", "/")) as stream:
        assert await anext(stream.pieces) == b"tick"
    assert stopped.is_set()


async def test_an_error_inside_a_stream_arrives_as_it_was_raised() -> None:
    async def waiting(sink: LocalSink) -> None:
        await asyncio.Event().wait()

    with pytest.raises(KeyError):
        async with saying(Said(waiting)).stream(Call("GET", "/")):
            raise KeyError


async def test_a_body_in_pieces_and_a_poured_one_are_sent_whole() -> None:
    async def pouring(sink: LocalSink) -> None:
        sink.write(b"a")
        sink.write(b"b")

    for body in (iter([b"a", b"b"]), pouring):
        assert (await saying(Said(body)).send(Call("GET", "/"))).body == b"ab"


async def test_repeated_headers_are_joined_under_one_name() -> None:
    answer = Said(b"", headers=[("Warning", "one"), ("Warning", "two")])
    reply = await saying(answer).send(Call("GET", "/"))
    assert reply.headers == {"content-type": "text/plain", "warning": "one,two"}


async def test_a_body_is_read_up_to_a_limit() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"abc", b"", b"de"):
            yield piece

    assert await Stream(200, {}, pieces()).at_most(5) == b"abcde"
    assert await Stream(200, {}, pieces()).at_most(4) is None


async def test_a_body_of_small_pieces_takes_no_more_memory_than_its_content() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(100_000):
            yield number.to_bytes(3)

    stream = Stream(200, {}, pieces())
    tracemalloc.start()
    try:
        body = await stream.at_most(1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert body is not None
    assert len(body) == 300_000
    assert peak < 2_000_000


def test_small_pieces_that_nobody_reads_stop_their_source() -> None:
    inflow = Inflow(buffer=1000)
    for _ in range(30):
        inflow.write(b"x")
    assert inflow.paused
