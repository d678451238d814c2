"""WriteTurns: writes that wait for a store's one writer, in which tenants take turns."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kedge.machinery.tenant import current_tenant
from kedge.machinery.write_guard import current_guard
from kedge.storage.store import (
    NEVER,
    PendingRevision,
    StoreEntry,
    StoreEvent,
    delete_event,
    put_event,
)

MANY: Final = 16
"""Writes of one tenant in a group after which the tenant rests. One that writes from fewer
connections does not flood, and would only be slower."""
LONGEST_REST_SECONDS: Final = 0.005


class Write:
    """A put or, without a value, a deletion, waiting for the writer."""

    __slots__ = (
        "after",
        "deadline",
        "expect",
        "future",
        "guard",
        "key",
        "revision",
        "tenant",
        "value",
    )

    def __init__(
        self,
        key: str,
        value: bytes | None,
        expect: int | PendingRevision,
        deadline: int,
        future: asyncio.Future[Any],
    ) -> None:
        if isinstance(expect, PendingRevision) and expect.value != NEVER:
            expect = expect.value  # committed by now: there is nothing to wait behind
        self.key = key
        self.value = value
        self.after = expect if isinstance(expect, PendingRevision) else None
        """The revision of the write that this one is on top of, for stores that chain writes."""
        self.expect = NEVER if isinstance(expect, PendingRevision) else expect
        self.deadline = deadline
        self.future = future
        # Behind the write that it is on top of: the queue of a tenant keeps its order.
        self.tenant = current_tenant() if self.after is None else self.after.tenant
        self.revision = PendingRevision(self.tenant)
        self.guard = current_guard()

    @property
    def is_abandoned(self) -> bool:
        """Whether the request of the write has ended."""
        return self.future.done()

    def event(self, current: StoreEntry | None, revision: int) -> StoreEvent:
        if self.value is None:
            return delete_event(current, self.key, self.expect, revision)
        return put_event(current, self.key, self.value, self.expect, revision)


class WriteTurns:
    """Groups of writes.

    A group contains one write of each tenant, then a second one, and so on. The write of a
    tenant that writes little is in the next group, however many writes of others wait. Writes of
    different tenants may change places: none of them is acknowledged.

    A tenant that has had many writes in a group rests as long as the group took. More of
    its writes arrive, which then share one commit, and the disk is free for the others: a write
    does not wait for a commit under way each time, and does not share its own with a flood.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: dict[str, deque[Write]] = {}
        """The writes that wait, by tenant, the next tenant first."""
        self._resting: frozenset[str] = frozenset()
        """Tenants whose writes wait until the rest is over."""
        self._rest_until = 0.0

    def __bool__(self) -> bool:
        """Whether any write waits, those of resting tenants included."""
        return bool(self._waiting)

    def add(self, write: Write) -> None:
        self._waiting.setdefault(write.tenant, deque()).append(write)

    def take(self, most: int) -> list[Write]:
        """Return the next group; empty if none waits, or if all that wait are resting.

        A write whose request has ended meanwhile is left out: what the request held for it, such
        as the room of a quota or the lease of a leader, may be another's by now.
        """
        if self._resting and self._monotonic() >= self._rest_until:
            self._resting = frozenset()
        taken: list[Write] = []
        turns = deque(name for name in self._waiting if name not in self._resting)
        while turns and len(taken) < most:
            name = turns.popleft()
            # The tenant is the last one from now on, if it has more.
            waiting = self._waiting.pop(name)
            write = waiting.popleft()
            if not write.is_abandoned:
                taken.append(write)
            if waiting:
                self._waiting[name] = waiting
                turns.append(name)
        return taken

    def rest(self, group: Sequence[Write], seconds: float) -> None:
        """Let tenants rest that had many writes in a group, which took so long."""
        counts = Counter(write.tenant for write in group)
        if many := frozenset(name for name, count in counts.items() if count >= MANY):
            self._resting = many
            self._rest_until = self._monotonic() + min(seconds, LONGEST_REST_SECONDS)

    def end_rest(self) -> None:
        """End the rest of all tenants."""
        self._resting = frozenset()

    @property
    def rest_seconds(self) -> float:
        """How long until those that rest go on."""
        return self._rest_until - self._monotonic()
