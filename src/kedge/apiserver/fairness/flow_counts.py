"""Counters of priority and fairness for the requests of one FlowSchema at one level."""

from typing import Final

from kedge.apiserver.histogram import MetricHistogram

SECONDS: Final = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
SEATS: Final = (1, 2, 4, 10)
QUEUE_LENGTHS: Final = (0, 10, 25, 50, 100, 250, 500, 1000)


class FlowCounts:
    """Counters for the metrics."""

    __slots__ = (
        "dispatched",
        "executing",
        "executing_seats",
        "execution",
        "level",
        "queue_lengths",
        "rejected",
        "schema",
        "seats",
        "waited",
        "waiting",
    )

    def __init__(self, schema: str, level: str) -> None:
        self.schema = schema
        self.level = level
        self.dispatched = 0
        """Requests that were worked on, those that took no seats included."""
        self.executing = 0
        self.executing_seats = 0
        self.waiting = 0
        self.rejected: dict[str, int] = {}
        """By reason."""
        self.execution = MetricHistogram(SECONDS)
        self.seats = MetricHistogram(SEATS)
        self.queue_lengths = MetricHistogram(QUEUE_LENGTHS)
        """Requests in the queue of a request when it came, itself included."""
        self.waited = {execute: MetricHistogram(SECONDS) for execute in (True, False)}
        """Seconds in queues, by whether the request got its seats."""

    def reject(self, reason: str, seconds: float) -> None:
        """Count a request that does not get seats."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        self.waited[False].observe(seconds)

    def begin(self, seats: int, waited: float) -> None:
        """Count a request that has its seats."""
        self.dispatched += 1
        self.executing += 1
        self.executing_seats += seats
        self.seats.observe(seats)
        self.waited[True].observe(waited)

    def end(self, seats: int, seconds: float) -> None:
        """Count a request that is done."""
        self.executing -= 1
        self.executing_seats -= seats
        self.execution.observe(seconds)
