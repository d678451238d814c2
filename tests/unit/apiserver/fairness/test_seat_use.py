"""Values that are counted for as long as they held."""

import pytest

from kedge.apiserver.fairness.fair_queues import FairQueues, WaitingRequest
from kedge.apiserver.fairness.seat_use import SeatUse
from kedge.apiserver.fairness.work_estimate import ONE_SEAT

SECOND = 1_000_000_000


def buckets(lines: list[str]) -> dict[str, str]:
    found = (line.rsplit(" ", 1) for line in lines if "_bucket" in line)
    return {head.split('le="')[1].split('"')[0]: count for head, count in found}


def test_mean_and_deviation_are_weighed_by_time() -> None:
    use = SeatUse()
    use.wanted(0, 10, 3.0)
    use.wanted(8, 10, 1.0)
    mean, deviation = use.settle()
    assert mean == 2.0
    assert deviation == pytest.approx(3.4641, abs=1e-3)
    assert use.settle() == (0.0, 0.0)


def test_time_is_counted_in_nanoseconds_by_the_ratio() -> None:
    use = SeatUse()
    use.wanted(5, 10, 2.0)
    use.wanted(15, 10, 1.0)
    found = buckets(list(use.demand.lines("d", "")))
    assert found["0.4"] == "0"
    assert found["0.6"] == str(2 * SECOND)
    assert found["1.7"] == found["+Inf"] == str(3 * SECOND)


def test_queues_count_the_time_for_which_seats_are_used() -> None:
    queues = FairQueues(2, 4, 2, 5)
    requests = [WaitingRequest(ONE_SEAT, lambda: None) for _ in range(3)]
    for request in requests:
        queues.offer(request, "a", 10.0)
    queues.leave(requests[0], 14.0)
    queues.pass_time(15.0)
    assert buckets(list(queues.use.seats.lines("s", "")))["0.99"] == "0"
    assert buckets(list(queues.use.seats.lines("s", "")))["1"] == str(5 * SECOND)
    assert buckets(list(queues.use.waiting.lines("w", "")))["0"] == str(SECOND)
    assert queues.use.settle()[0] == pytest.approx((3 * 4 + 2) / 5)
