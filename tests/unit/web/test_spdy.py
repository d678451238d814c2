"""SPDY frames, and streams that share a connection."""

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.testing.streams import MemoryStream, pair
from kedge.web import spdy
from kedge.web.spdy import (
    DataFrame,
    PingFrame,
    RstStream,
    SpdyConnection,
    SpdyError,
    SpdyFramer,
    SpdyParser,
    SynReply,
    SynStream,
)

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Lu", "Lt"]), max_size=20)
headers = st.dictionaries(texts.map(str.lower), texts, max_size=5)


def feed(parser: SpdyParser, data: bytes) -> list[spdy.Event]:
    """All that a parser makes of this."""
    parser.add(data)
    found = []
    while not parser.is_exhausted:
        found += parser.take(3)
    return found


def test_the_dictionary_is_the_published_one() -> None:
    assert len(spdy.DICTIONARY) == 1423
    assert zlib.adler32(spdy.DICTIONARY) == 0xE3C6A7C2


@given(st.lists(headers, max_size=5), st.lists(st.integers(1, 60), max_size=30))
def test_headers_are_read_as_they_were_written_however_they_are_cut(
    blocks: list[dict[str, str]], cuts: list[int]
) -> None:
    framer, parser = SpdyFramer(), SpdyParser()
    wire = b"".join(framer.syn_stream(2 * i + 1, block) for i, block in enumerate(blocks))
    found: list[spdy.Event] = []
    for size in cuts:
        found += feed(parser, wire[:size])
        wire = wire[size:]
    found += feed(parser, wire)
    assert found == [SynStream(2 * i + 1, block, False) for i, block in enumerate(blocks)]


def test_other_frames_are_understood_and_unknown_ones_passed_over() -> None:
    settings = struct.pack("!HHI", 0x8003, 4, 4) + b"\0\0\0\0"
    wire = (
        settings
        + SpdyFramer().syn_reply(1)
        + spdy.data(1, b"abc")
        + spdy.data(1, b"", final=True)
        + spdy.reset(3, spdy.ResetCode.CANCEL)
        + spdy.ping(7)
    )
    expected = [
        SynReply(1, False),
        DataFrame(1, b"abc", False),
        DataFrame(1, b"", True),
        RstStream(3, 5),
    ]
    assert feed(SpdyParser(), wire) == [*expected, PingFrame(7)]


def test_broken_frames_are_refused() -> None:
    other_version = struct.pack("!HHI", 0x8002, 1, 0)
    no_headers = struct.pack("!HHI", 0x8003, 1, 10) + b"\0" * 10
    garbage = struct.pack("!HHI", 0x8003, 1, 14) + b"\0" * 10 + b"zzzz"
    short_reset = struct.pack("!HHI", 0x8003, 3, 2) + b"\0\0"
    for wire in (other_version, no_headers, garbage, short_reset):
        with pytest.raises(SpdyError):
            feed(SpdyParser(), wire)


def test_headers_that_unfold_without_end_are_refused() -> None:
    bomb = SpdyFramer().syn_stream(1, {"a": "x" * 10_000_000})
    with pytest.raises(SpdyError, match="too long"):
        feed(SpdyParser(), bomb)


def test_headers_that_are_many_are_refused() -> None:
    many = SpdyFramer().syn_stream(1, {f"{number}": "" for number in range(33)})
    with pytest.raises(SpdyError, match="too many"):
        feed(SpdyParser(), many)


def test_a_long_control_frame_is_refused_by_its_length() -> None:
    with pytest.raises(SpdyError, match="too long"):
        feed(SpdyParser(), struct.pack("!HHI", 0x8003, 4, 1 << 23))


def test_data_is_handed_on_as_it_comes_and_not_kept() -> None:
    parser = SpdyParser()
    assert feed(parser, struct.pack("!II", 1, 1 << 24 | 10)) == []
    assert feed(parser, b"abc") == [DataFrame(1, b"abc", False)]
    assert not parser._buffer
    assert feed(parser, b"defghij") == [DataFrame(1, b"defghij", True)]


class Client:
    """The side that opens streams."""

    def __init__(self, end: MemoryStream) -> None:
        self.end = end
        self._framer = SpdyFramer()
        self._parser = SpdyParser()
        self._seen: list[spdy.Event] = []

    def open(self, stream: int, **headers: str) -> None:
        self.end.write(self._framer.syn_stream(stream, headers))

    async def next(self) -> spdy.Event:
        while not self._seen:
            self._seen += feed(self._parser, await self.end.read())
        return self._seen.pop(0)


@pytest.fixture
async def connected() -> AsyncIterator[tuple[Client, SpdyConnection]]:
    near, far = pair()
    connection = SpdyConnection(far)
    running = asyncio.ensure_future(connection.run())
    yield Client(near), connection
    near.close()
    await running


Connected = tuple[Client, SpdyConnection]


async def test_streams_carry_bytes_both_ways_until_both_have_finished(connected: Connected) -> None:
    client, connection = connected
    client.open(1, streamtype="data", port="80")
    opened = connection.opened()
    stream = await anext(opened)
    assert stream.headers == {"streamtype": "data", "port": "80"}
    connection.accept(stream)
    assert await client.next() == SynReply(1, False)
    client.end.write(spdy.data(1, b"question"))
    assert await stream.read() == b"question"
    client.end.write(spdy.data(1, b"", final=True))
    assert await stream.read() == b""
    stream.write(b"answer")
    stream.close()
    assert await client.next() == DataFrame(1, b"answer", False)
    assert await client.next() == DataFrame(1, b"", True)


async def test_pings_are_answered_while_streams_wait(connected: Connected) -> None:
    client, _ = connected
    client.end.write(spdy.ping(9))
    assert await client.next() == PingFrame(9)


async def test_a_stream_that_is_given_up_ends_for_whoever_reads_or_writes(
    connected: Connected,
) -> None:
    client, connection = connected
    client.open(1, streamtype="data")
    stream = await anext(connection.opened())
    client.end.write(spdy.reset(1, spdy.ResetCode.CANCEL))
    assert await stream.read() == b""
    with pytest.raises(ConnectionResetError):
        await stream.drain()


async def test_a_client_that_leaves_ends_all_streams(connected: Connected) -> None:
    client, connection = connected
    client.open(1, streamtype="data")
    opened = connection.opened()
    stream = await anext(opened)
    client.end.close()
    assert await stream.read() == b""
    assert [each async for each in opened] == []


async def test_a_stream_nobody_reads_holds_the_client_up_until_it_is_closed(
    connected: Connected,
) -> None:
    client, connection = connected
    client.open(1, streamtype="data")
    stream = await anext(connection.opened())
    for _ in range(5):
        client.end.write(spdy.data(1, b"x" * (1 << 20)))
    await asyncio.wait([asyncio.ensure_future(_turn())])
    client.end.write(spdy.ping(1))
    await _turn()
    assert not client.end._arrived
    stream.close()
    seen = [await client.next(), await client.next()]
    assert PingFrame(1) in seen


async def _turn() -> None:
    for _ in range(10):
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)


async def test_stream_numbers_must_rise_and_be_odd() -> None:
    for numbers in ([3, 1], [2]):
        near, far = pair()
        client, connection = Client(near), SpdyConnection(far)
        for number in numbers:
            client.open(number, streamtype="data")
        async with asyncio.timeout(60):
            await connection.run()


class Stuck(MemoryStream):
    """The end of a connection whose peer does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0
        self.reads = 0

    async def read(self) -> bytes:
        self.reads += 1
        return await super().read()

    def write(self, data: bytes) -> None:
        self.written += len(data)

    async def drain(self) -> None:
        await asyncio.get_running_loop().create_future()


async def test_a_peer_that_does_not_read_what_it_is_answered_is_not_read_from() -> None:
    framer = SpdyFramer()
    opening = b"".join(framer.syn_stream(2 * n + 1, {}) for n in range(700))
    for wire in (spdy.ping(1) * 10_000, opening):
        stuck = Stuck()
        stuck._arrived += wire
        stuck._ended = True
        running = asyncio.ensure_future(SpdyConnection(stuck).run())
        await asyncio.wait([running], timeout=0.1)
        assert not running.done()
        assert stuck.reads == 1
        assert 0 < stuck.written < 3000
        running.cancel()


class Counting(MemoryStream):
    """The end of a connection, with the sizes of all that was written to it."""

    def __init__(self, wire: bytes) -> None:
        super().__init__()
        self._arrived += wire
        self._ended = True
        self.sizes: list[int] = []

    def write(self, data: bytes) -> None:
        self.sizes.append(len(data))

    async def drain(self) -> None:
        pass


async def test_answers_to_many_frames_are_written_together() -> None:
    stream = Counting(spdy.ping(1) * 1000)
    await SpdyConnection(stream).run()
    assert sum(stream.sizes) == 1000 * len(spdy.ping(1))
    assert len(stream.sizes) < 20


async def test_streams_that_nobody_reads_hold_the_client_up_together(connected: Connected) -> None:
    client, connection = connected
    opened = connection.opened()
    streams = []
    for number in range(20):
        client.open(2 * number + 1, streamtype="data")
        streams.append(await anext(opened))
    for number in range(20):
        client.end.write(spdy.data(2 * number + 1, b"x" * 100_000))
    await _turn()
    client.end.write(spdy.ping(1))
    await _turn()
    assert not client.end._arrived
    for stream in streams:
        stream.close()
    for _ in streams:
        await client.next()
    assert await client.next() == PingFrame(1)
    assert connection.unread == 0


async def test_a_client_opens_streams_and_reads_them() -> None:
    near, far = pair()
    client, server = SpdyConnection(near), SpdyConnection(far)
    running = [asyncio.ensure_future(each.run()) for each in (client, server)]
    first, second = client.open({"streamtype": "error"}), client.open({"streamtype": "stdout"})
    assert (first.number, second.number) == (1, 3)
    opened = aiter(server.opened())
    error, stdout = await anext(opened), await anext(opened)
    assert [each.headers["streamtype"] for each in (error, stdout)] == ["error", "stdout"]
    server.accept(stdout)
    stdout.write(b"output")
    assert await second.read() == b"output"
    first.write_eof()
    assert await error.read() == b""
    near.close()
    far.close()
    await asyncio.gather(*running)
