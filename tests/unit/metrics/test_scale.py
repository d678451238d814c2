"""Codes of values: how far the value of a code may be from the value that was coded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.metrics.scale import CPU, MEMORY


@given(st.floats(min_value=0.0001, max_value=255.0))
def test_codes_of_cpu_are_within_half_a_step_of_the_value(value: float) -> None:
    assert CPU.value(CPU.code(value)) == pytest.approx(value, rel=0.0073)


@given(st.floats(min_value=2.0**16, max_value=2.0**41))
def test_codes_are_within_one_percent_of_the_value(value: float) -> None:
    assert MEMORY.value(MEMORY.code(value)) == pytest.approx(value, rel=0.009)


def test_too_little_reads_as_nothing_and_too_much_as_the_most() -> None:
    assert CPU.value(CPU.code(0.00001)) == 0
    assert CPU.value(CPU.code(1000.0)) == pytest.approx(256, rel=0.02)
