"""The seats that requests take."""

import pytest

from kedge.apiserver.fairness.work_estimate import (
    ONE_SEAT,
    WorkEstimate,
    most_seats,
    of_list,
    of_write,
)


@pytest.mark.parametrize(
    ("count", "size", "limit", "most", "seats"),
    [
        (0, 0, 0, 50, 1),
        (99, 1000, 0, 50, 1),
        (101, 1000, 0, 50, 2),
        (101, 1000, 500, 50, 2),
        (101, 1000, 50, 50, 1),
        (100_000, 1000, 0, 50, 10),
        (100_000, 1000, 0, 3, 3),
    ],
)
def test_a_list_takes_seats_by_its_bytes(
    count: int, size: int, limit: int, most: int, seats: int
) -> None:
    assert of_list(count, size, limit, most) == WorkEstimate(seats)


def test_a_write_takes_seats_by_its_watchers() -> None:
    assert of_write(9, 50) is ONE_SEAT
    assert of_write(10, 50) == WorkEstimate(1, 1, 0.005)
    assert of_write(95, 50) == WorkEstimate(1, 10, 0.005)
    assert of_write(400, 50) == WorkEstimate(1, 10, 0.02), "the same work on fewer seats"
    assert of_write(95, 5).width == 5


@pytest.mark.parametrize(
    ("nominal", "hand", "most"), [(245, 6, 37), (245, 0, 37), (13, 4, 2), (40, 8, 5), (0, 8, 1)]
)
def test_a_level_bounds_the_seats_of_a_request(nominal: int, hand: int, most: int) -> None:
    assert most_seats(nominal, hand) == most
