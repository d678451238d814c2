"""Unions of ranges, and ranges without others."""

from ipaddress import IPv4Network
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kedge.node.policies.ranges import Range, contains, network_range, union, without

ranges = st.builds(
    lambda first, size: Range(first, first + size), st.integers(0, 40), st.integers(0, 10)
)
several = st.lists(ranges, max_size=6)


def numbers(found: list[Range]) -> set[int]:
    return {number for first, last in found for number in range(first, last + 1)}


@given(several)
def test_a_union_has_the_same_numbers_and_gaps_between_its_ranges(given: list[Range]) -> None:
    found = union(given)
    assert numbers(list(found)) == numbers(given)
    assert all(one.last + 1 < two.first for one, two in pairwise(found))


@given(ranges, several)
def test_what_is_left_of_a_range(whole: Range, holes: list[Range]) -> None:
    assert numbers(list(without(whole, holes))) == numbers([whole]) - numbers(holes)


@given(several, st.integers(-1, 60))
def test_whether_a_number_is_in_a_union(given: list[Range], number: int) -> None:
    assert contains(union(given), number) == (number in numbers(given))


def test_a_network_is_the_range_of_all_its_addresses() -> None:
    assert network_range(IPv4Network("0.0.1.0/30")) == Range(256, 259)
