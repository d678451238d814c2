"""The rank of the 95th."""

import math

from hypothesis import given
from hypothesis import strategies as st

from kedge.metrics.statistics import Total, rank
from kedge.metrics.windows import STATISTICS


@given(st.integers(0, 10_000))
def test_the_95th_is_by_nearest_rank(count: int) -> None:
    assert rank(count) == math.ceil(count * 95 / 100)


def test_a_total_keeps_its_maximum_when_values_are_taken_away() -> None:
    total = Total()
    total.add(4.0, 2.0, 3.0)
    total.add(-2.0, -1.0, -1.0)
    assert (total.sum, total.weight, total.peak) == (2.0, 1.0, 3.0)


def test_statistics_are_in_the_order_of_the_table() -> None:
    assert STATISTICS == ("mean", "max", "95th")
