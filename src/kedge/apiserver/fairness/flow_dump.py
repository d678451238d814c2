"""Dumps of priority levels, queues and requests, for people who look for a bottleneck."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from kedge.apiserver.fairness.fair_queues import WaitingRequest
from kedge.apiserver.fairness.flow_controller import FlowController, PriorityLevelState
from kedge.machinery.clock import Clock

PATH: Final = "debug/api_priority_and_fairness"
_MOST_ROWS: Final = 5_000
_WIDTH: Final = 8
_LEVELS: Final = (
    "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests",
    "ExecutingRequests", "DispatchedRequests", "RejectedRequests", "TimedoutRequests",
    "CancelledRequests",
)  # fmt: skip
_QUEUES: Final = (
    "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse",
    "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
)  # fmt: skip
# The fifth is spelt as upstream spells it.
_REQUESTS: Final = (
    "PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher",
    "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime",
)  # fmt: skip
_DETAILS: Final = ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")  # fmt: skip  # noqa: E501
_NEVER: Final = "0001-01-01T00:00:00Z"


def dump(flows: FlowController, name: str, clock: Clock, *, details: bool) -> str | None:
    """Return the table of that name; None if there is none."""
    levels = sorted(flows.current_levels().items())
    if name == "dump_priority_levels":
        return table([_LEVELS, *(_level_row(*each, flows) for each in levels)])
    if name == "dump_queues":
        return table([_QUEUES, *(row for each in levels for row in _queue_rows(*each))])
    if name == "dump_requests":
        header = (*_REQUESTS, *_DETAILS) if details else _REQUESTS
        rows = (row for each in levels for row in _request_rows(*each, clock, details=details))
        return table([header, *(row for row, _ in zip(rows, range(_MOST_ROWS), strict=False))])
    return None


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows in aligned columns, with commas."""
    count = len(rows[0])
    widths = [max(_WIDTH, max(len(row[i]) for row in rows) + 2) for i in range(count - 1)]
    lines = (
        "".join(f"{cell},".ljust(width) for cell, width in zip(row, widths, strict=False)) + row[-1]
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def _level_row(name: str, level: PriorityLevelState, flows: FlowController) -> list[str]:
    counts = [each for each in flows.counts.values() if each.level == name]
    rejected = [sum(each.rejected.get(r, 0) for each in counts) for r in _REASONS]
    queues = level.queues
    waiting = sum(len(queue.waiting) for queue in queues.queues)
    executing = sum(each.executing for each in counts)
    return [
        name,
        str(sum(bool(queue.waiting) for queue in queues.queues)),
        _truth(not waiting and not executing),
        "false",
        str(waiting),
        str(executing),
        str(sum(each.dispatched for each in counts)),
        str(rejected[0] + rejected[1]),
        str(rejected[2]),
        str(rejected[3]),
    ]


_REASONS: Final = ("queue-full", "concurrency-limit", "time-out", "cancelled")


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _queue_rows(name: str, level: PriorityLevelState) -> Iterator[list[str]]:
    for index, queue in enumerate(level.queues.queues):
        seats = sum(each.estimate.seats for each in queue.waiting)
        widest = sum(each.width for each in queue.waiting)
        work = sum(each.width * 0.003 for each in queue.waiting)
        yield [
            name,
            str(index),
            str(len(queue.waiting)),
            str(sum(each.queue is queue for each in level.queues.executing)),
            str(queue.running),
            f"{queue.next_turn:.8f}ss",
            str(seats),
            str(widest),
            f"{work:.8f}ss",
        ]


def _request_rows(
    name: str, level: PriorityLevelState, clock: Clock, *, details: bool
) -> Iterator[list[str]]:
    places = {id(queue): index for index, queue in enumerate(level.queues.queues)}
    waiting = (
        (request, index, place)
        for index, queue in enumerate(level.queues.queues)
        for place, request in enumerate(queue.waiting)
    )
    running = ((each, places.get(id(each.queue), -1), -1) for each in level.queues.executing)
    requests: Iterable[Iterable[tuple[WaitingRequest, int, int]]] = (waiting, running)
    for request, index, place in (each for part in requests for each in part):
        yield [name, *_request_row(request, index, place, clock), *(request.details * details)]


def _request_row(request: WaitingRequest, index: int, place: int, clock: Clock) -> list[str]:
    estimate = request.estimate
    schema, _, flow = request.flow.partition("/")
    extra = f"{estimate.extra_seconds * 1000:g}ms" if estimate.extra_seconds else "0s"
    return [
        schema,
        str(index),
        str(place),
        flow,
        _time(request.arrived, clock),
        str(estimate.seats),
        str(estimate.final_seats),
        extra,
        _NEVER if request.began is None else _time(request.began, clock),
    ]


def _time(moment: float, clock: Clock) -> str:
    then: datetime = clock.now() - timedelta(seconds=clock.monotonic() - moment)
    return then.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
