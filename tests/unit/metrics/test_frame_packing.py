import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.metrics.frame_packing import Unpackable, by_number, by_weight, pack, unpack


@given(st.binary(max_size=400), st.sampled_from([2, 8]))
def test_weights_become_the_same_numbers_again(numbers: bytes, width: int) -> None:
    numbers = numbers[: len(numbers) // width * width]
    assert by_number(by_weight(numbers, width), width) == numbers


def test_bytes_of_equal_weight_are_beside_each_other() -> None:
    assert by_weight(bytes([1, 2, 3, 4, 5, 6]), 2) == bytes([1, 3, 5, 2, 4, 6])


@given(st.binary(max_size=400))
def test_packed_bytes_are_unpacked(plain: bytes) -> None:
    assert unpack(pack(plain), len(plain) + 1) == plain


def test_a_small_text_does_not_become_a_huge_one() -> None:
    with pytest.raises(Unpackable, match="longer than allowed"):
        unpack(pack(bytes(10_000_000)), 1000)
