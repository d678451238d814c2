"""Classifies requests by FlowSchemas, and lets them wait for seats of their priority level."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from kedge.apiserver.fairness import flow_rules, seats
from kedge.apiserver.fairness.dropped_requests import DroppedRequests
from kedge.apiserver.fairness.fair_queues import FairQueues, WaitingRequest
from kedge.apiserver.fairness.flow_counts import FlowCounts
from kedge.apiserver.fairness.flow_rules import FlowSchemaRules, RequestDigest
from kedge.apiserver.fairness.seats import (
    LevelSettings,
    SeatAllocation,
    SeatBounds,
    SeatDemand,
    SettledDemand,
)
from kedge.apiserver.fairness.work_estimate import ONE_SEAT, WorkEstimate, most_seats
from kedge.apiserver.inflight import too_many
from kedge.apiserver.watchcache import Change, ResourceCache
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.web.message import Response

SCHEMA_HEADER: Final = "X-Kubernetes-PF-FlowSchema-UID"
LEVEL_HEADER: Final = "X-Kubernetes-PF-PriorityLevel-UID"
ADJUST_SECONDS: Final = 10
LONGEST_WAIT_SECONDS: Final = 15.0
REMEMBERED: Final = 4096
"""Classifications that are kept."""
LONGEST_TEXT: Final = 256
"""Characters of a verb and a path, or of a verb and a resource with its group and namespace, whose
classification is kept."""
_VERB: Final = RequestDigest._fields.index("verb")
"""The first of the fields that are texts of clients."""

CATCH_ALL: Final = "catch-all"
MOST_COUNTED: Final = 1000
"""Schemas whose requests are counted, those that were deleted included."""


class PriorityLevelState:
    """A priority level at work."""

    def __init__(
        self, settings: LevelSettings, bounds: SeatBounds, dropped: DroppedRequests
    ) -> None:
        self.settings = settings
        self.bounds = bounds
        self.demand = SeatDemand()
        self.dropped = dropped
        self.queues = FairQueues(
            bounds.nominal, settings.queues, settings.hand_size, settings.queue_length
        )
        self.most_seats = most_seats(bounds.nominal, settings.hand_size)
        """The most that one request may take."""

    def settle(self, now: float) -> SettledDemand:
        """Return the demand since the last call."""
        self.queues.pass_time(now)
        return self.demand.settle(
            self.queues.running + self.queues.waiting, *self.queues.use.settle()
        )


class RequestClass(NamedTuple):
    """Where a request belongs: its schema and level, and the flow within them."""

    level: PriorityLevelState
    flow: str
    counts: FlowCounts
    headers: tuple[tuple[str, str], ...]


class FlowController:
    """Follows FlowSchemas and PriorityLevelConfigurations, and applies them."""

    def __init__(
        self,
        schemas: ResourceCache,
        levels: ResourceCache,
        clock: Clock,
        *,
        total: int,
        defaults: Sequence[Mapping[str, Any]],
    ) -> None:
        """`defaults` are the objects that hold until there are stored ones of their names."""
        self._sources = schemas, levels
        self._clock = clock
        self._total = total
        self._defaults = defaults
        self.levels: dict[str, PriorityLevelState] = {}
        self._schemas: list[FlowSchemaRules] = []
        self._last = _rules_of(defaults, CATCH_ALL)
        """The schema of requests that no other one matches."""
        self.allocation = SeatAllocation({}, {}, 0.0)
        """How seats were lent at the last adjustment."""
        self.counts: dict[tuple[str, str], FlowCounts] = {}
        """By schema and level."""
        self.known: dict[tuple[object, ...], RequestClass] = {}
        """Classifications of earlier requests, by their digests; empty after a change."""
        self._is_stale = True
        """Whether objects have changed since the levels were built."""
        for cache in self._sources:
            cache.listeners.add(self._changed)

    def _changed(self, change: Change | None) -> None:
        # Built again with the next request: at the start of a cluster many objects come at once.
        self._is_stale = True
        self.known.clear()

    def now(self) -> float:
        """Return the moment by which the levels measure time."""
        return self._clock.monotonic()

    def current_levels(self) -> Mapping[str, PriorityLevelState]:
        """Return the levels as the objects describe them now, by name."""
        if self._is_stale:
            self._rebuild()
        return self.levels

    def classify(self, digest: RequestDigest) -> RequestClass:
        """Return where a request belongs."""
        if self._is_stale:
            self._rebuild()
        return self.known.get(digest) or self._remembered(digest)

    def _remembered(self, digest: RequestDigest) -> RequestClass:
        found = self._class_of(digest)
        # Methods and paths are texts of clients: long ones are classified again each time.
        if sum(map(len, digest[_VERB:])) < LONGEST_TEXT:
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            self.known[digest] = found
        return found

    def _class_of(self, digest: RequestDigest) -> RequestClass:
        found = (each for each in self._schemas if each.matches(digest))
        schema = next(found, self._last)
        level = self.levels[schema.level]
        uids = ((SCHEMA_HEADER, schema.uid), (LEVEL_HEADER, level.settings.uid))
        headers = tuple(each for each in uids if each[1])
        counts = self._counts_of(schema.name, schema.level)
        return RequestClass(level, f"{schema.name}/{schema.flow_of(digest)}", counts, headers)

    def _counts_of(self, schema: str, level: str) -> FlowCounts:
        """Return the counters of a schema; those of deleted schemas make room for new ones."""
        key = schema, level
        if key not in self.counts:
            if len(self.counts) >= MOST_COUNTED:
                present = {(each.name, each.level) for each in self._schemas}
                self.counts = {k: each for k, each in self.counts.items() if k in present}
            self.counts[key] = FlowCounts(schema, level)
        return self.counts[key]

    def _rebuild(self) -> None:
        """Take in the objects as they are now. A level whose settings stay keeps its queues."""
        self._is_stale = False
        self.known.clear()
        schemas = [flow_rules.schema_of(each) for each in self._objects("FlowSchema", 0)]
        settings = [seats.level_of(each) for each in self._objects("PriorityLevelConfiguration", 1)]
        bounds = seats.bounds_of(settings, self._total)
        levels = {each.name: self._level(each, bounds[each.name]) for each in settings}
        self.levels = levels
        # A schema without its level is dangling, and skipped.
        self._schemas = flow_rules.in_order(each for each in schemas if each.level in levels)

    def _level(self, settings: LevelSettings, bounds: SeatBounds) -> PriorityLevelState:
        known = self.levels.get(settings.name)
        if known is not None and known.settings == settings and known.bounds == bounds:
            return known
        return PriorityLevelState(settings, bounds, known.dropped if known else DroppedRequests())

    def _objects(self, kind: str, index: int) -> Iterable[Mapping[str, Any]]:
        """Return the stored objects of a kind, and the defaults that are not stored."""
        found = {each["metadata"]["name"]: each for each in self._defaults if each["kind"] == kind}
        stored = (item.document() for item in self._sources[index].values())
        return (found | {each["metadata"]["name"]: each for each in stored}).values()

    async def serve(
        self,
        place: RequestClass,
        pending: Awaitable[Response] | Response,
        estimate: WorkEstimate = ONE_SEAT,
        details: tuple[str, ...] = (),
        on_queued: Callable[[bool], None] | None = None,
    ) -> Response:
        """Return the answer when the request has its seats; 429 if it does not get any.

        `on_queued` is called with True before it waits for them, and with False after that.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = WaitingRequest(
            estimate, lambda: None if waiter.done() else waiter.set_result(None), details
        )
        is_seated = False
        try:
            await self._seated(request, waiter, place, on_queued or _ignore)
            is_seated = True
            return pending if isinstance(pending, Response) else await pending
        finally:
            if is_seated:
                self._leave(request, place)
            else:
                place.level.queues.leave(request, self._clock.monotonic())
            if isinstance(pending, Coroutine):
                pending.close()  # it has not begun if the request was refused

    async def _seated(
        self,
        request: WaitingRequest,
        waiter: asyncio.Future[None],
        place: RequestClass,
        on_queued: Callable[[bool], None],
    ) -> None:
        """Return when the request has its seats; 429 if it does not get any."""
        queues, counts = place.level.queues, place.counts
        begun = self._clock.monotonic()
        if not queues.offer(request, place.flow, begun):
            counts.reject("queue-full" if queues.queues else "concurrency-limit", 0.0)
            raise self._refusal(place.level)
        place.level.demand.note(queues.running + queues.waiting)
        if request.queue is not None:
            counts.queue_lengths.observe(len(request.queue.waiting) + waiter.done())
        if not waiter.done():
            counts.waiting += 1
            on_queued(True)
            try:
                await _granted(waiter)
            except TimeoutError:
                counts.reject("time-out", self._clock.monotonic() - begun)
                raise self._refusal(place.level) from None
            except BaseException:
                counts.reject("cancelled", self._clock.monotonic() - begun)
                raise
            finally:
                counts.waiting -= 1
                on_queued(False)
        counts.begin(request.width, self._clock.monotonic() - begun)

    def _refusal(self, level: PriorityLevelState) -> StatusError:
        """Return the 429 of a request, and count it for the `Retry-After` of its level."""
        return too_many(level.dropped.record(int(self._clock.monotonic())))

    def _leave(self, request: WaitingRequest, place: RequestClass) -> None:
        """Give back the seats, those for the watchers of a write after a while."""
        now, queues = self._clock.monotonic(), place.level.queues
        place.counts.end(request.width, now - (request.began or now))
        if not request.estimate.extra_seconds:
            queues.leave(request, now)
            return
        asyncio.get_running_loop().call_later(
            request.estimate.extra_seconds,
            lambda: queues.leave(request, self._clock.monotonic()),
        )

    def adjust(self) -> None:
        """Lend seats of idle levels to those with more demand."""
        if self._is_stale:
            self._rebuild()
        limited = {n: each for n, each in self.levels.items() if not each.settings.is_exempt}
        now = self._clock.monotonic()
        demands = {name: level.settle(now) for name, level in limited.items()}
        bounds = {name: level.bounds for name, level in limited.items()}
        self.allocation = seats.allocation(bounds, demands, self._total)
        for name, count in self.allocation.seats.items():
            if count != limited[name].queues.seats:
                limited[name].queues.resize(count, now)

    async def run(self) -> NoReturn:
        """Adjust seats until cancelled."""
        while True:
            await self._clock.sleep(ADJUST_SECONDS)
            self.adjust()


def _ignore(is_queued: bool) -> None:
    """Do nothing: the caller does not follow the request."""


async def _granted(waiter: asyncio.Future[None]) -> None:
    """Wait for seats; TimeoutError after the longest time, even if seats come at that moment."""
    async with asyncio.timeout(LONGEST_WAIT_SECONDS):
        await waiter


def _rules_of(objects: Iterable[Mapping[str, Any]], name: str) -> FlowSchemaRules:
    return next(
        flow_rules.schema_of(each)
        for each in objects
        if each["kind"] == "FlowSchema" and each["metadata"]["name"] == name
    )
