"""How fast nodes are given up."""

import pytest

from kedge.controllers.nodes.zones import EvictionRate, ZoneState, rate_of, state_of


@pytest.mark.parametrize(
    ("ready", "bad", "state"),
    [
        (0, 0, ZoneState.NORMAL),
        (1, 0, ZoneState.NORMAL),
        (0, 1, ZoneState.FULL),
        (1, 1, ZoneState.NORMAL),
        (1, 2, ZoneState.NORMAL),
        (1, 3, ZoneState.PARTIAL),
        (10, 3, ZoneState.NORMAL),
        (9, 11, ZoneState.PARTIAL),
    ],
)
def test_a_zone_is_judged_by_its_share_of_bad_nodes(ready: int, bad: int, state: ZoneState) -> None:
    assert state_of([True] * ready + [False] * bad) is state


@pytest.mark.parametrize(
    ("state", "size", "everywhere", "rate"),
    [
        (ZoneState.NORMAL, 3, False, 0.1),
        (ZoneState.FULL, 3, False, 0.1),
        (ZoneState.FULL, 3, True, 0.0),
        (ZoneState.PARTIAL, 50, False, 0.0),
        (ZoneState.PARTIAL, 51, False, 0.01),
    ],
)
def test_nobody_is_given_up_where_the_zone_itself_is_in_trouble(
    state: ZoneState, size: int, everywhere: bool, rate: float
) -> None:
    assert rate_of(state, size, everywhere=everywhere) == rate


def test_one_node_is_given_up_every_ten_seconds() -> None:
    allowance = EvictionRate()
    assert allowance.take(100.0) == 0.0
    assert allowance.take(104.0) == pytest.approx(6.0)
    assert allowance.take(110.0) == 0.0


def test_no_node_is_given_up_until_the_rate_changes() -> None:
    allowance = EvictionRate()
    assert allowance.change(0.0)
    assert allowance.take(100.0) is None
    assert not allowance.change(0.0)
    assert allowance.change(0.1)
    assert allowance.take(100.0) == 0.0
