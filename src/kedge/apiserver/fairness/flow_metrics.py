"""Metrics of API priority and fairness, under upstream's names."""

from collections.abc import Callable, Iterator
from typing import Final

from kedge.apiserver.fairness.flow_controller import FlowController, PriorityLevelState
from kedge.apiserver.fairness.flow_counts import FlowCounts
from kedge.apiserver.telemetry import Histograms, Telemetry, Values

Read = Callable[[PriorityLevelState], float]
ReadCount = Callable[[FlowCounts], float]

_PREFIX: Final = "apiserver_flowcontrol"
_GAUGES: Final[tuple[tuple[str, str, Read], ...]] = (
    ("nominal_limit_seats", "Seats by the shares of the level.", lambda each: each.bounds.nominal),
    ("lower_limit_seats", "Seats that are not lent.", lambda each: each.bounds.least),
    ("upper_limit_seats", "Seats with all that may be borrowed.", lambda each: each.bounds.most),
    ("current_limit_seats", "Seats of the level now.", lambda each: each.queues.seats),
    (
        "demand_seats_high_watermark",
        "The most seats that were wanted in the last 10 seconds.",
        lambda each: each.demand.settled.highest,
    ),
    (
        "demand_seats_average",
        "The mean of the seats that were wanted in the last 10 seconds.",
        lambda each: each.demand.settled.mean,
    ),
    (
        "demand_seats_stdev",
        "The standard deviation of the seats that were wanted in the last 10 seconds.",
        lambda each: each.demand.settled.deviation,
    ),
    (
        "demand_seats_smoothed",
        "Seats that were wanted, falling slowly.",
        lambda each: each.demand.settled.smooth,
    ),
)
_FLOW_GAUGES: Final[tuple[tuple[str, str, ReadCount], ...]] = (
    ("current_executing_requests", "Requests with seats.", lambda each: each.executing),
    ("current_executing_seats", "Seats in use.", lambda each: each.executing_seats),
    ("current_inqueue_requests", "Requests that wait for seats.", lambda each: each.waiting),
)


def add_flow_metrics(telemetry: Telemetry, flows: FlowController) -> None:
    """Add the metrics of priority levels and their flows, which are read when they are scraped."""
    for name, text, read in _GAUGES:
        telemetry.gauge(f"{_PREFIX}_{name}", text, _of_levels(flows, read))
    for name, text, count in _FLOW_GAUGES:
        telemetry.gauge(f"{_PREFIX}_{name}", text, _of_flows(flows, count))
    name = "current_inqueue_seats"
    text = "Seats that requests wait for."
    telemetry.gauge(f"{_PREFIX}_{name}", text, _of_levels(flows, lambda each: each.queues.waiting))
    telemetry.gauge(
        f"{_PREFIX}_target_seats",
        "Seats that the level should have.",
        lambda: (
            (f'priority_level="{name}"', target)
            for name, target in sorted(flows.allocation.targets.items())
        ),
    )
    telemetry.gauge(
        f"{_PREFIX}_seat_fair_frac",
        "The part of its target that each level gets.",
        lambda: iter((("", flows.allocation.factor),)),
    )
    dispatched = _of_flows(flows, lambda each: each.dispatched)
    telemetry.counter(f"{_PREFIX}_dispatched_requests_total", "Requests worked on.", dispatched)
    telemetry.counter(f"{_PREFIX}_rejected_requests_total", "Requests refused.", _rejected(flows))
    for name, text, histograms in (
        ("request_wait_duration_seconds", "Seconds in queues.", _waits(flows)),
        ("request_execution_seconds", "Seconds with seats.", _executions(flows)),
        ("work_estimated_seats", "Seats that requests take.", _widths(flows)),
        ("request_queue_length_after_enqueue", "Requests in a queue.", _lengths(flows)),
        ("demand_seats", "Time by wanted seats of nominal ones, in nanoseconds.", _demand(flows)),
        (
            "priority_level_seat_utilization",
            "Time by the part of seats in use, in nanoseconds.",
            _seat_use(flows),
        ),
        (
            "priority_level_request_utilization",
            "Time by the part of places that requests have, in nanoseconds.",
            _request_use(flows),
        ),
    ):
        telemetry.histogram(f"{_PREFIX}_{name}", text, histograms)


def _of_levels(flows: FlowController, read: Read) -> Values:
    def values() -> Iterator[tuple[str, float]]:
        for name, level in sorted(flows.current_levels().items()):
            yield f'priority_level="{name}"', read(level)

    return values


def _flow(counts: FlowCounts) -> str:
    return f'flow_schema="{counts.schema}",priority_level="{counts.level}"'


def _of_flows(flows: FlowController, read: ReadCount) -> Values:
    return lambda: ((_flow(each), read(each)) for each in _sorted(flows))


def _sorted(flows: FlowController) -> list[FlowCounts]:
    return [each for _, each in sorted(flows.counts.items())]


def _rejected(flows: FlowController) -> Values:
    return lambda: (
        (f'{_flow(each)},reason="{reason}"', number)
        for each in _sorted(flows)
        for reason, number in sorted(each.rejected.items())
    )


def _waits(flows: FlowController) -> Histograms:
    return lambda: (
        (f'execute="{str(execute).lower()}",{_flow(each)}', histogram)
        for each in _sorted(flows)
        for execute, histogram in each.waited.items()
    )


def _executions(flows: FlowController) -> Histograms:
    return lambda: ((f'{_flow(each)},type="regular"', each.execution) for each in _sorted(flows))


def _widths(flows: FlowController) -> Histograms:
    return lambda: ((_flow(each), each.seats) for each in _sorted(flows))


def _lengths(flows: FlowController) -> Histograms:
    return lambda: ((_flow(each), each.queue_lengths) for each in _sorted(flows))


def _levels_until_now(flows: FlowController) -> Iterator[tuple[str, PriorityLevelState]]:
    now = flows.now()
    for name, level in sorted(flows.current_levels().items()):
        if not level.settings.is_exempt:
            level.queues.pass_time(now)
            yield f'priority_level="{name}"', level


def _demand(flows: FlowController) -> Histograms:
    return lambda: ((label, level.queues.use.demand) for label, level in _levels_until_now(flows))


def _seat_use(flows: FlowController) -> Histograms:
    return lambda: (
        (f'phase="executing",{label}', level.queues.use.seats)
        for label, level in _levels_until_now(flows)
    )


def _request_use(flows: FlowController) -> Histograms:
    return lambda: (
        (f'phase="{phase}",{label}', histogram)
        for label, level in _levels_until_now(flows)
        for phase, histogram in (
            ("executing", level.queues.use.executing),
            ("waiting", level.queues.use.waiting),
        )
    )
