"""Sums and distributions of pods: which are exact, and what bounds the others."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kedge.metrics.aggregate_windows import Columns, aggregate
from kedge.metrics.frame import index
from kedge.metrics.statistics import rank
from kedge.metrics.windows import RESOURCES


def row(mean: float, peak: float, percentile: float) -> list[float]:
    numbers = [0.0] * (1 + max(index("1d", "95th", each) for each in RESOURCES))
    for statistic, number in (("mean", mean), ("max", peak), ("95th", percentile)):
        numbers[index("1m", statistic, "cpu")] = number
    return numbers


def row_of(samples: list[int]) -> list[float]:
    return row(sum(samples) / len(samples), max(samples), sorted(samples)[rank(len(samples)) - 1])


def test_means_are_added_and_maxima_bound_the_maximum_from_both_sides() -> None:
    made = aggregate(Columns([row(10, 30, 20), row(5, 50, 40)]), "1m")
    assert made.total["mean"]["cpu"] == 15
    assert made.total["max"]["cpu"] == 80
    assert made.lower["max"]["cpu"] == 50
    assert made.total["95th"]["cpu"] == 80
    assert made.lower["95th"]["cpu"] == 40


def test_a_small_mean_bounds_the_95th_better_than_the_maxima() -> None:
    made = aggregate(Columns([row(1, 1000, 2), row(1, 1000, 3)]), "1m")
    assert made.total["95th"]["cpu"] == 40


def test_one_pod_is_exact() -> None:
    made = aggregate(Columns([row(10, 30, 20)]), "1m")
    assert made.total["95th"]["cpu"] == made.lower["95th"]["cpu"] == 20
    assert made.total["max"]["cpu"] == made.lower["max"]["cpu"] == 30


def test_the_distribution_is_that_of_the_means() -> None:
    made = aggregate(Columns([row(mean, 900, 900) for mean in range(40, 0, -1)]), "1m")
    found = {name: amounts["cpu"] for name, amounts in made.distribution.items()}
    assert found == {"min": 1, "50th": 20, "95th": 38, "max": 40}


def test_missing_numbers_are_left_out() -> None:
    made = aggregate(Columns([row(-1, -1, -1), row(5, 7, 6)]), "1m")
    assert {name: amounts["cpu"] for name, amounts in made.total.items()} == {
        "mean": 5,
        "max": 7,
        "95th": 6,
    }
    assert aggregate(Columns([row(-1, -1, -1)]), "1m").total["mean"].get("cpu") is None


def test_pods_that_are_busy_in_turn_exceed_the_sum_of_their_percentiles() -> None:
    samples = [[100 if at % 25 == pod else 0 for at in range(100)] for pod in range(25)]
    made = aggregate(Columns([row_of(each) for each in samples]), "1m")
    assert made.lower["95th"]["cpu"] == 0
    assert made.total["95th"]["cpu"] >= 100


series = st.lists(st.integers(0, 1000), min_size=40, max_size=40)


@given(st.lists(series, min_size=1, max_size=6))
def test_the_statistics_of_the_sum_are_within_the_bounds(samples: list[list[int]]) -> None:
    exact = row_of([sum(each) for each in zip(*samples, strict=True)])
    made = aggregate(Columns([row_of(each) for each in samples]), "1m")
    slack = 1e-6
    for statistic in ("max", "95th"):
        bounds = made.lower[statistic]["cpu"], exact[index("1m", statistic, "cpu")]
        upper = made.total[statistic]["cpu"] + slack
        assert all(least <= most for least, most in pairwise((*bounds, upper)))
