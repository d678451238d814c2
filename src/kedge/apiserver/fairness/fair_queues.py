"""The queues of a priority level: fair among flows, by virtual time.

Each flow is dealt a few of the queues, so that a flood fills only these, and other flows very
probably have at least one queue without it. Queues take turns by the seat-seconds that their
requests have used.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from kedge.apiserver.fairness.seat_use import SeatUse
from kedge.apiserver.fairness.work_estimate import WorkEstimate

GUESS_SECONDS: Final = 0.003
"""How long a request is assumed to take until it is done."""


def hand(flow: str, queues: int, size: int) -> list[int]:
    """Return the queues that a flow is dealt."""
    value = int.from_bytes(sha256(flow.encode()).digest()[:8], "little")
    dealt: list[int] = []
    for index in range(min(size, queues)):
        value, card = divmod(value, queues - index)
        for lower in sorted(dealt):
            card += lower <= card
        dealt.append(card)
    return dealt


class WaitingRequest:
    """A request that waits for seats, or has them."""

    __slots__ = ("arrived", "began", "details", "estimate", "flow", "queue", "start", "width")

    def __init__(
        self, estimate: WorkEstimate, start: Callable[[], None], details: tuple[str, ...] = ()
    ) -> None:
        self.estimate = estimate
        self.width = estimate.width
        self.start = start
        """Called when it has its seats."""
        self.details = details
        """Texts that say what the request is, for dumps."""
        self.flow = ""
        self.arrived = 0.0
        self.queue: FlowQueue | None = None
        self.began: float | None = None
        """The time at which it got its seats; None while it waits."""


class FlowQueue:
    """The waiting requests of a few flows."""

    __slots__ = ("next_turn", "running", "waiting")

    def __init__(self) -> None:
        # Not a deque, which takes half a kilobyte when it is empty: there are a thousand queues.
        self.waiting: list[WaitingRequest] = []
        self.running = 0
        """Seats of its requests that are being worked on."""
        self.next_turn = 0.0
        """The virtual time at which its next request may begin."""


class FairQueues:
    """Gives out the seats of a level. It does not wait itself: `offer` says whether a request has
    its seats, waits in a queue, or is too much, and `start` of a waiting one is called later."""

    def __init__(self, seats: int, queues: int, hand_size: int, length: int) -> None:
        self.seats = seats
        self.running = 0
        """Seats in use."""
        self.waiting = 0
        """Seats that waiting requests want."""
        self._hand_size = hand_size
        self._length = length
        self.queues = [FlowQueue() for _ in range(queues)]
        self.executing: dict[WaitingRequest, None] = {}
        """Requests that have their seats."""
        self._hands: dict[str, list[int]] = {}
        self.nominal = seats
        """Seats by the shares of the level. Metrics give demand as a multiple of them."""
        self.use = SeatUse()
        self._virtual = 0.0
        self._moment: float | None = None

    @property
    def is_free(self) -> bool:
        """Whether a request of one seat would not have to wait."""
        return not self.waiting and self.running < self.seats

    def has_turn(self, flow: str) -> bool:
        """Whether a flow need not wait for an answer that takes no seat. If no request of its
        queue waits, the next seat would be its own."""
        if self.is_free or not self.queues or not self.seats:
            return self.is_free
        return not self._queue_of(flow).waiting

    def offer(self, request: WaitingRequest, flow: str, now: float) -> bool:
        """Give the request its seats or a place in a queue; False if there is neither."""
        self._advance(now)
        request.flow, request.arrived = flow, now
        if not self.queues:
            return self._offer_unqueued(request, now)
        queue = self._queue_of(flow)
        if len(queue.waiting) >= self._length:
            return False
        if not queue.waiting and not queue.running:
            queue.next_turn = self._virtual
        queue.waiting.append(request)
        self.waiting += request.width
        request.queue = queue
        self._dispatch(now)
        return True

    def leave(self, request: WaitingRequest, now: float) -> None:
        """Take back the seats of a request that is done, or its place in the queue."""
        self._advance(now)
        if request.began is None:
            if request.queue is not None and request in request.queue.waiting:
                request.queue.waiting.remove(request)
                self.waiting -= request.width
            return
        self.running -= request.width
        self.executing.pop(request, None)
        if (queue := request.queue) is not None:
            queue.running -= request.width
            queue.next_turn -= request.width * (GUESS_SECONDS - (now - request.began))
        self._dispatch(now)

    def resize(self, seats: int, now: float) -> None:
        """Change the number of seats; requests that have theirs keep them."""
        self._advance(now)
        self.seats = seats
        self._dispatch(now)

    def _offer_unqueued(self, request: WaitingRequest, now: float) -> bool:
        """Without queues one request always passes, as in Kubernetes."""
        if self.running and self.running + request.width > self.seats:
            return False
        self._begin(request, now)
        return True

    def _queue_of(self, flow: str) -> FlowQueue:
        """Return the shortest queue of the flow's hand."""
        dealt = self._hands.get(flow)
        if dealt is None:
            if len(self._hands) >= 4096:
                self._hands.clear()
            dealt = self._hands[flow] = hand(flow, len(self.queues), self._hand_size)
        chosen = (self.queues[index] for index in dealt)
        return min(chosen, key=lambda queue: (len(queue.waiting), queue.running))

    def _advance(self, now: float) -> None:
        """Let virtual time pass: the more queues share the seats, the slower."""
        seconds = 0.0 if self._moment is None else now - self._moment
        active = queued = 0
        for queue in self.queues:
            if queue.waiting or queue.running:
                active += 1
                queued += len(queue.waiting)
        if active:
            used = min(self.running + self.waiting, max(self.seats, 1))
            self._virtual += seconds * used / active
        if seconds:
            self.use.wanted(self.running + self.waiting, self.nominal, seconds)
            self.use.used(self.running, len(self.executing), self.seats, seconds)
            self.use.queued(queued, len(self.queues) * self._length, seconds)
        self._moment = now

    def pass_time(self, now: float) -> None:
        """Count the time until now, for those who read `use`."""
        self._advance(now)

    def _dispatch(self, now: float) -> None:
        while self.waiting:
            ready = (queue for queue in self.queues if queue.waiting)
            queue = min(
                ready, key=lambda each: each.next_turn + each.waiting[0].width * GUESS_SECONDS
            )
            request = queue.waiting[0]
            # A request that is wider than all seats together runs alone.
            if self.running + request.width > self.seats and (self.running or not self.seats):
                return
            queue.waiting.pop(0)
            self.waiting -= request.width
            queue.running += request.width
            queue.next_turn += request.width * GUESS_SECONDS
            self._begin(request, now)

    def _begin(self, request: WaitingRequest, now: float) -> None:
        self.running += request.width
        self.executing[request] = None
        request.began = now
        request.start()
