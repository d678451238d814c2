"""Channels in messages that come in pieces."""

import base64
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kedge.node.server.channels import ChannelReader
from kedge.web.websocket import FramePiece, Opcode


def pieces(message: bytes, cuts: list[int]) -> list[FramePiece]:
    edges = sorted({0, len(message), *(min(cut, len(message)) for cut in cuts)})
    parts = [message[a:b] for a, b in pairwise(edges)] or [b""]
    last = len(parts) - 1
    return [
        FramePiece(Opcode.BINARY, part, number == 0, number == last)
        for number, part in enumerate(parts)
    ]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=50)), max_size=5),
    st.booleans(),
    st.lists(st.integers(0, 70), max_size=8),
)
def test_channels_are_told_apart_however_messages_are_cut(
    sent: list[tuple[int, bytes]], binary: bool, cuts: list[int]
) -> None:
    reader = ChannelReader(binary=binary)
    for channel, data in sent:
        first = bytes((channel,)) if binary else b"%d" % channel
        message = first + (data if binary else base64.b64encode(data))
        found = [reader.read(piece) for piece in pieces(message, cuts)]
        assert {each.channel for each in found if each.data} <= {channel}
        assert b"".join(each.data for each in found) == data


def test_what_is_no_base64_is_left_out_to_the_end_of_its_message() -> None:
    reader = ChannelReader(binary=False)
    found = [reader.read(piece) for piece in pieces(b"0%%%%YWJj", [5])]
    assert {each.channel for each in found if each.data} <= {-1}
    assert reader.read(pieces(b"0YWJj", [])[0]) == (0, b"abc")
    assert reader.read(pieces(b"", [])[0]) == (-1, b"")
