"""Metrics of API priority and fairness, under upstream's names."""

from collections.abc import Callable, Iterator
from typing import Final

from kedge.apiserver.fairness.flow_controller import FlowController, PriorityLevelState
from kedge.apiserver.telemetry import Telemetry, Values

Read = Callable[[PriorityLevelState], float]

_GAUGES: Final[tuple[tuple[str, str, Read], ...]] = (
    ("nominal_limit_seats", "Seats by the shares of the level.", lambda each: each.bounds.nominal),
    ("lower_limit_seats", "Seats that are not lent.", lambda each: each.bounds.least),
    ("upper_limit_seats", "Seats with all that may be borrowed.", lambda each: each.bounds.most),
    ("current_limit_seats", "Seats of the level now.", lambda each: each.queues.seats),
    ("current_executing_seats", "Seats in use.", lambda each: each.queues.running),
    ("current_inqueue_seats", "Seats that requests wait for.", lambda each: each.queues.waiting),
)


def add_flow_metrics(telemetry: Telemetry, flows: FlowController) -> None:
    """Add the metrics of each priority level, which are read when they are scraped."""
    for name, text, read in _GAUGES:
        telemetry.gauge(f"apiserver_flowcontrol_{name}", text, _values(flows, read))
    name = "apiserver_flowcontrol_rejected_requests_total"
    telemetry.counter(name, "Requests refused.", _values(flows, lambda each: each.refused))


def _values(flows: FlowController, read: Read) -> Values:
    def values() -> Iterator[tuple[str, float]]:
        for name, level in sorted(flows.current_levels().items()):
            yield f'priority_level="{name}"', read(level)

    return values
