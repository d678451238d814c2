"""Counters of priority and fairness."""

from kedge.apiserver.fairness.flow_counts import FlowCounts


def test_a_request_is_counted_from_its_seats_to_its_end() -> None:
    counts = FlowCounts("schema", "level")
    counts.begin(3, 0.1)
    assert (counts.dispatched, counts.executing, counts.executing_seats) == (1, 1, 3)
    counts.end(3, 0.2)
    assert (counts.dispatched, counts.executing, counts.executing_seats) == (1, 0, 0)


def test_refusals_are_counted_by_reason() -> None:
    counts = FlowCounts("schema", "level")
    for reason in ("time-out", "queue-full", "time-out"):
        counts.reject(reason, 1)
    assert counts.rejected == {"time-out": 2, "queue-full": 1}
