from kedge.apiserver.fairness.seats import (
    SeatBounds,
    SeatDemand,
    SettledDemand,
    allocation,
    bounds_of,
    level_of,
)
from kedge.apiserver.flow_control import default_objects

LEVELS = [
    level_of(each) for each in default_objects() if each["kind"] == "PriorityLevelConfiguration"
]


def test_the_levels_of_a_cluster_have_the_seats_of_kubernetes() -> None:
    assert {name: each.nominal for name, each in bounds_of(LEVELS, 600).items()} == {
        "exempt": 0,
        "leader-election": 25,
        "node-high": 98,
        "system": 74,
        "workload-high": 98,
        "workload-low": 245,
        "global-default": 49,
        "catch-all": 13,
    }


def test_a_level_lends_and_borrows_within_its_bounds() -> None:
    assert bounds_of(LEVELS, 600)["workload-low"] == SeatBounds(245, 25, 600)
    limited = {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 50}
    level = level_of({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": limited}})
    assert bounds_of([level], 100)["l"] == SeatBounds(100, 100, 150)


def test_idle_levels_lend_their_seats() -> None:
    bounds = {"busy": SeatBounds(50, 25, 100), "idle": SeatBounds(50, 10, 100)}
    busy = SettledDemand(90, smooth=90.0)
    found = allocation(bounds, {"busy": busy, "idle": SettledDemand()}, 100)
    assert found.seats == {"busy": 90, "idle": 10}
    assert found.targets == {"busy": 90, "idle": 10}
    assert 0.99 < found.factor < 1.01


def test_two_busy_levels_have_their_nominal_seats() -> None:
    bounds = {"a": SeatBounds(60, 10, 100), "b": SeatBounds(40, 10, 100)}
    busy = SettledDemand(200, smooth=200.0)
    assert allocation(bounds, {"a": busy, "b": busy}, 100).seats == {"a": 60, "b": 40}


def test_demand_rises_at_once_and_falls_slowly() -> None:
    demand = SeatDemand()
    demand.note(100)
    assert demand.settle(0, 70.0, 30.0) == SettledDemand(100, 70.0, 30.0, 100.0)
    later = demand.settle(0, 0.0, 0.0)
    assert later.highest == 0
    assert 97 < later.smooth < 98
