import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.protobuf_wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    bytes_field,
    decode_varint,
    double_field,
    encode_varint,
    fields,
    signed,
    varint_field,
)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (150, b"\x96\x01"), (300, b"\xac\x02")],
)
def test_varints_are_those_of_the_specification(number: int, encoded: bytes) -> None:
    assert encode_varint(number) == encoded
    assert decode_varint(b"x" + encoded + b"y", 1) == (number, 1 + len(encoded))


@given(st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1))
def test_a_signed_number_survives_the_round_trip(number: int) -> None:
    encoded = encode_varint(number)
    assert len(encoded) <= 10
    assert signed(decode_varint(encoded, 0)[0]) == number


def test_negative_numbers_take_ten_bytes() -> None:
    assert encode_varint(-1) == b"\xff" * 9 + b"\x01"


@given(
    st.lists(
        st.tuples(st.integers(1, 1 << 28), st.integers(0, (1 << 64) - 1) | st.binary(max_size=300))
    )
)
def test_fields_are_read_as_they_were_written(written: list[tuple[int, int | bytes]]) -> None:
    data = b"".join(
        varint_field(number, value) if isinstance(value, int) else bytes_field(number, value)
        for number, value in written
    )
    expected = [
        (number, VARINT if isinstance(value, int) else BYTES, value) for number, value in written
    ]
    assert list(fields(data)) == expected


def test_fixed_fields_are_read_by_their_size() -> None:
    data = double_field(1, 0.5) + encode_varint(2 << 3 | FIXED32) + b"abcd"
    assert list(fields(data)) == [
        (1, FIXED64, b"\x00\x00\x00\x00\x00\x00\xe0?"),
        (2, FIXED32, b"abcd"),
    ]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x08", "unexpected EOF"),
        (b"\x0a\x05abc", "unexpected EOF"),
        (b"\x09abc", "unexpected EOF"),
        (b"\x08" + b"\xff" * 10, "integer overflow"),
        (b"\x00\x01", "illegal tag 0"),
        (b"\x0b", "illegal wireType 3"),
    ],
)
def test_broken_messages_are_refused_in_the_words_of_go(data: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        list(fields(data))
