"""Codes of details are near their values, and keep their order."""

from hypothesis import given
from hypothesis import strategies as st

from kedge.metrics.detail_scale import ABSENT, NOTHING, code, value

amounts = st.floats(1e-6, 1e15)


@given(amounts)
def test_a_code_is_within_four_hundredths_of_a_percent(amount: float) -> None:
    assert abs(value(code(amount)) / amount - 1) < 0.0004


@given(amounts, amounts)
def test_codes_have_the_order_of_their_values(one: float, other: float) -> None:
    assert (code(one) <= code(other)) or one > other


def test_small_counts_are_exact() -> None:
    assert [round(value(code(number))) for number in range(1300)] == list(range(1300))


def test_missing_and_extreme_values_have_codes() -> None:
    assert [code(each) for each in (-1.0, float("nan"))] == [ABSENT, ABSENT]
    assert [code(each) for each in (0.0, 1e-9)] == [NOTHING, NOTHING]
    assert code(float("inf")) == code(1e30) == ABSENT - 1
