"""WebSocket frames, and two sides that speak them."""

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.testing.streams import MemoryStream, pair
from kedge.web import websocket
from kedge.web.websocket import (
    CloseCode,
    FrameParser,
    FramePiece,
    Opcode,
    WebSocket,
    WebSocketError,
    frame,
    mask,
)

KEY = b"\x01\x02\x03\x04"


def head(opcode: int, *, final: bool = True, rsv: int = 0) -> int:
    return (0x80 if final else 0) | rsv | opcode


def unmasked(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    return bytes((head(opcode, final=final), len(payload))) + payload


def feed(parser: FrameParser, data: bytes) -> list[FramePiece]:
    """All that a parser makes of this."""
    parser.add(data)
    found = []
    while not parser.is_exhausted:
        found += parser.take(3)
    return found


def whole(pieces: list[FramePiece]) -> list[tuple[Opcode, bytes]]:
    """The messages that pieces are of, and control frames."""
    found: list[tuple[Opcode, bytes]] = []
    message = b""
    for piece in pieces:
        if piece.opcode >= Opcode.CLOSE:
            found.append((piece.opcode, piece.payload))
            continue
        assert piece.begins is (not message)
        message += piece.payload
        if piece.ends:
            found.append((piece.opcode, message))
            message = b""
    return found


def refused(data: bytes, *, masked: bool = False) -> CloseCode:
    with pytest.raises(WebSocketError) as caught:
        feed(FrameParser(masked=masked), data)
    return caught.value.code


@given(
    st.lists(st.tuples(st.sampled_from([Opcode.BINARY, Opcode.PING]), st.binary(max_size=125))),
    st.sampled_from([b"", KEY]),
    st.lists(st.integers(1, 40), max_size=40),
)
def test_frames_are_read_as_they_were_written_however_they_are_cut(
    sent: list[tuple[Opcode, bytes]], key: bytes, cuts: list[int]
) -> None:
    wire = b"".join(frame(opcode, payload, key) for opcode, payload in sent)
    parser = FrameParser(masked=bool(key))
    found: list[FramePiece] = []
    for size in cuts:
        found += feed(parser, wire[:size])
        wire = wire[size:]
    found += feed(parser, wire)
    assert whole(found) == sent


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 200_000])
def test_every_way_to_write_a_length_is_understood(size: int) -> None:
    payload = bytes(i % 251 for i in range(size))
    [received] = feed(FrameParser(masked=True), frame(Opcode.BINARY, payload, KEY))
    assert received.payload == payload


@given(st.binary(), st.binary(min_size=4, max_size=4))
def test_masking_twice_gives_back_the_same(payload: bytes, key: bytes) -> None:
    assert mask(mask(payload, key), key) == payload
    assert mask(payload, b"\0\0\0\0") == payload


def test_fragments_are_joined_around_control_frames() -> None:
    wire = (
        unmasked(Opcode.TEXT, b"he", final=False)
        + unmasked(Opcode.PING, b"?")
        + unmasked(Opcode.CONTINUATION, b"ll", final=False)
        + unmasked(Opcode.CONTINUATION, b"o")
    )
    found = feed(FrameParser(masked=False), wire)
    assert whole(found) == [(Opcode.PING, b"?"), (Opcode.TEXT, b"hello")]


def test_the_example_of_the_standard_is_read() -> None:
    wire = bytes.fromhex("81 85 37 fa 21 3d 7f 9f 4d 51 58")
    assert feed(FrameParser(masked=True), wire) == [(Opcode.TEXT, b"Hello", True, True)]
    assert websocket.accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_what_breaks_the_protocol_is_refused_with_its_code() -> None:
    good = frame(Opcode.BINARY, b"x")
    assert refused(good, masked=True) is CloseCode.PROTOCOL_ERROR  # clients must mask
    assert refused(frame(Opcode.BINARY, b"x", KEY)) is CloseCode.PROTOCOL_ERROR  # servers must not
    assert refused(bytes((head(2, rsv=0x40), 0))) is CloseCode.PROTOCOL_ERROR
    assert refused(bytes((head(3), 0))) is CloseCode.PROTOCOL_ERROR
    assert refused(unmasked(Opcode.CONTINUATION, b"x")) is CloseCode.PROTOCOL_ERROR
    two_beginnings = unmasked(Opcode.BINARY, b"x", final=False) + good
    assert refused(two_beginnings) is CloseCode.PROTOCOL_ERROR
    assert refused(unmasked(Opcode.PING, b"x", final=False)) is CloseCode.PROTOCOL_ERROR
    assert refused(bytes((head(Opcode.PING), 126, 0, 126))) is CloseCode.PROTOCOL_ERROR
    assert refused(frame(Opcode.TEXT, b"\xff")) is CloseCode.INVALID_DATA


def test_a_message_of_any_length_is_handed_on_as_it_comes_and_not_kept() -> None:
    parser = FrameParser(masked=True)
    assert feed(parser, bytes((head(2), 0xFF)) + (1 << 60).to_bytes(8, "big") + KEY) == []
    for size in (1, 2, 3, 100_000):
        payload = os.urandom(size)
        [piece] = feed(parser, mask(payload, parser._key))
        assert piece.payload == payload
        assert not piece.ends
    assert not parser._buffer


def test_text_is_checked_across_pieces() -> None:
    parser = FrameParser(masked=False)
    euro = "€".encode()
    assert len(feed(parser, unmasked(Opcode.TEXT, euro[:1], final=False))) == 1
    assert feed(parser, unmasked(Opcode.CONTINUATION, euro[1:]))[0].ends
    with pytest.raises(WebSocketError):
        feed(parser, unmasked(Opcode.TEXT, euro[:1]))


def test_only_so_many_frames_are_looked_at_in_one_go() -> None:
    parser = FrameParser(masked=False)
    parser.add(unmasked(Opcode.BINARY, b"x") * 5 + unmasked(Opcode.BINARY, b"", final=False) * 5)
    # A frame and its content are two steps; frames that say nothing are counted too.
    assert len(parser.take(6)) == 3
    assert not parser.is_exhausted


async def test_a_long_message_is_refused_where_it_would_have_to_be_kept() -> None:
    client, server = sides()
    client.send(b"x" * (websocket.MOST + 1))
    assert await server.receive() is None
    assert await client.receive() is None
    assert client.close_code == CloseCode.TOO_BIG


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


async def test_a_peer_that_does_not_read_its_pongs_is_not_read_from() -> None:
    stuck = Stuck()
    stuck._arrived += frame(Opcode.PING, b"x" * 100, KEY) * 1000
    stuck._ended = True
    receiving = asyncio.ensure_future(WebSocket(stuck).piece())
    await asyncio.wait([receiving], timeout=0.05)
    assert not receiving.done()
    assert stuck.reads == 1
    assert stuck.written < 200
    receiving.cancel()


def sides() -> tuple[WebSocket, WebSocket]:
    near, far = pair()
    return WebSocket(near, client=True), WebSocket(far)


async def test_messages_go_both_ways_and_pings_are_answered() -> None:
    client, server = sides()
    client.send(b"to the server")
    client.ping()
    client.send(b"text, too", text=True)
    assert await server.receive() == b"to the server"
    assert await server.receive() == b"text, too"
    server.send(b"to the client")
    assert await client.receive() == b"to the client"


async def test_a_goodbye_is_answered_and_ends_both_sides() -> None:
    client, server = sides()
    server.send(b"last words")
    closing = asyncio.ensure_future(server.close(CloseCode.NORMAL))
    assert await client.receive() == b"last words"
    assert await client.receive() is None
    assert client.close_code == CloseCode.NORMAL
    await closing
    assert server.close_code == CloseCode.NORMAL


async def test_a_peer_that_vanishes_ends_the_conversation() -> None:
    near, far = pair()
    near.close()
    assert await WebSocket(far).receive() is None


async def test_a_peer_that_breaks_the_rules_is_told_and_heard_no_more() -> None:
    near, far = pair()
    near.write(frame(Opcode.BINARY, b"not masked"))
    assert await WebSocket(far).receive() is None
    [said] = feed(FrameParser(masked=False), await near.read())
    assert websocket.closing(said.payload) == (CloseCode.PROTOCOL_ERROR, "wrongly masked")


async def test_a_tunnel_carries_bytes_whatever_the_messages_are() -> None:
    client, server = sides()
    for piece in (b"a", b"", b"bc"):
        client.send(piece)
    inside = websocket.WebSocketTunnel(server)
    assert await inside.read() == b"a"
    assert await inside.read() == b"bc"
    inside.write(b"back")
    assert await client.receive() == b"back"
    client.say_goodbye(CloseCode.NORMAL)
    assert await inside.read() == b""


def test_only_proper_requests_become_websockets() -> None:
    headers = {
        "connection": "keep-alive, Upgrade",
        "upgrade": "WebSocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": websocket.new_key(),
        "sec-websocket-protocol": "v5.channel.k8s.io, SPDY/3.1+portforward.k8s.io",
    }
    assert websocket.is_wanted(headers)
    assert websocket.refusal(headers) == ""
    offered = ["v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"]
    assert websocket.protocols(headers) == offered
    assert not websocket.is_wanted(headers | {"connection": "keep-alive"})
    assert websocket.refusal(headers | {"sec-websocket-version": "8"})
    assert websocket.refusal(headers | {"sec-websocket-key": "c2hvcnQ="})
    assert websocket.refusal(headers | {"sec-websocket-key": "%%%"})
