"""Scheduling queue: pending pods by priority, retried when a change may make them fit."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final

import msgspec

from kedge.client.workqueue import Backoff
from kedge.machinery.clock import Clock
from kedge.scheduler.demand import PodDemand

BACKOFF: Final = Backoff(first=1.0, most=10.0)
PATIENCE: Final = 300.0
"""Seconds after which a pod is tried again although nothing seems to have changed."""

Objections = Callable[[PodDemand, Collection[str]], frozenset[str]]
"""The filters that refuse a pod on some nodes; none if one of the nodes might take it now."""


class QueuedPod(msgspec.Struct, eq=False):
    """A pending pod."""

    demand: PodDemand
    order: int = 0
    """Pods of the same priority are taken in this order."""
    attempts: int = 0
    blamed: frozenset[str] = frozenset()
    """The filters that refused it; whatever concerns none of them cannot help."""
    due: float = 0.0
    """When it is tried again at the latest, or at the earliest if it backs off."""
    place: str = ""
    """Where it is: active, resting, backing off, or taken."""

    def __lt__(self, other: "QueuedPod") -> bool:
        return (-self.demand.priority, self.order) < (-other.demand.priority, other.order)


class SchedulingQueue:
    """Hands out pods one at a time.

    A pod that fits nowhere rests until something happens that may help it. It then backs off as
    long as others are to be served, so that it cannot keep them waiting.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, QueuedPod] = {}
        """By uid."""
        self._active: list[tuple[int, int, QueuedPod]] = []
        """By priority, the highest first, and by the order in which they came. Entries that have
        left stay here until their turn: removing one would scan all others."""
        self._resting: dict[str, QueuedPod] = {}
        self._woken: dict[str, QueuedPod] = {}
        """Pods in backoff that may be taken when the active queue is empty."""
        self._failed: list[tuple[float, int, QueuedPod]] = []
        """Pods in backoff after an error, by the time of the retry."""
        self._order = count()
        self._nodes: set[str] = set()
        """Nodes on which something has happened."""
        self._filters: set[str] = set()
        """Filters that may judge any node differently than they did."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    # Changes of the queue.

    def put(self, demand: PodDemand) -> None:
        """A pod is new, or asks for something else than before."""
        entry = self._entries.get(demand.uid)
        if entry is None:
            entry = self._entries[demand.uid] = QueuedPod(demand)
        entry.demand = demand
        if entry.place == "taken":
            return
        self._leave(entry)
        self._activate(entry)

    def renew(self, demand: PodDemand) -> None:
        """A pod has changed, but not in what it asks for."""
        if (entry := self._entries.get(demand.uid)) is not None:
            entry.demand = demand

    def remove(self, uid: str) -> None:
        """A pod needs no node any more."""
        if (entry := self._entries.pop(uid, None)) is not None:
            self._leave(entry)

    def rest(self, entry: QueuedPod, blamed: frozenset[str]) -> None:
        """A pod that was taken fits nowhere."""
        if self._is_gone(entry):
            return
        entry.blamed = blamed
        entry.due = self._clock.monotonic() + PATIENCE
        entry.place = "resting"
        self._resting[entry.demand.uid] = entry

    def retry(self, entry: QueuedPod) -> None:
        """A pod that was taken could not be bound."""
        if self._is_gone(entry):
            return
        entry.due = self._clock.monotonic() + BACKOFF.delay(entry.attempts)
        entry.place = "failed"
        heappush(self._failed, (entry.due, next(self._order), entry))
        self._changed.set()

    def activate(self, uid: str) -> None:
        """Try a resting pod again, whatever the reason."""
        entry = self._resting.get(uid)
        if entry is not None:
            self._leave(entry)
            self._activate(entry)

    def stir_node(self, node: str) -> None:
        """Something has happened on a node that may help a pod there."""
        if self._resting:
            self._nodes.add(node)
            self._changed.set()

    def stir(self, filters: Iterable[str]) -> None:
        """Something has happened that lets filters judge all nodes differently."""
        if self._resting:
            self._filters.update(filters)
            self._changed.set()

    # Methods of the scheduling loop.

    async def take(self, objections: Objections) -> QueuedPod:
        """Return the next pod; the caller ends its attempt with rest, retry or remove."""
        while True:
            await self._revive(objections)
            entry = self._next()
            if entry is not None:
                entry.place = "taken"
                entry.attempts += 1
                return entry
            await self._change()

    def _next(self) -> QueuedPod | None:
        while self._active:
            _, order, entry = heappop(self._active)
            if entry.place == "active" and entry.order == order:
                return entry
        if self._woken:
            entry = min(self._woken.values())
            del self._woken[entry.demand.uid]
            return entry
        return None

    async def _revive(self, objections: Objections) -> None:
        """Move pods back to the queue whose back-off is over or that may fit now.

        Thousands may rest, and the filters check each, so this gives way to requests in between.
        Events that come meanwhile are kept for the next run.
        """
        now = self._clock.monotonic()
        while self._failed and self._failed[0][0] <= now:
            due, _, entry = heappop(self._failed)
            if entry.place == "failed" and entry.due == due:
                self._activate(entry)
        if self._nodes or self._filters or self._first_due() <= now:
            nodes, self._nodes = self._nodes, set()
            filters, self._filters = self._filters, set()
            for uid, entry in list(self._resting.items()):
                await self._clock.give_way()
                if self._resting.get(uid) is not entry:
                    continue
                if entry.due <= now or _has_hope(entry, nodes, filters, objections):
                    del self._resting[uid]
                    self._wake(entry, now)
        for uid, entry in list(self._woken.items()):
            if self._rested(entry) <= now:
                del self._woken[uid]
                self._activate(entry)

    def _first_due(self) -> float:
        """When the pod that has rested longest is tried again: they rest in that order."""
        return next((entry.due for entry in self._resting.values()), inf)

    def _wake(self, entry: QueuedPod, now: float) -> None:
        if self._rested(entry) <= now:
            self._activate(entry)
        else:
            entry.place = "woken"
            entry.order = next(self._order)
            self._woken[entry.demand.uid] = entry

    def _rested(self, entry: QueuedPod) -> float:
        """When a pod that failed has backed off for long enough."""
        return entry.due - PATIENCE + BACKOFF.delay(entry.attempts)

    def _activate(self, entry: QueuedPod) -> None:
        entry.place = "active"
        entry.order = next(self._order)
        heappush(self._active, (-entry.demand.priority, entry.order, entry))
        self._changed.set()

    def _leave(self, entry: QueuedPod) -> None:
        """Mark an entry as removed; the heaps skip it later."""
        self._resting.pop(entry.demand.uid, None)
        self._woken.pop(entry.demand.uid, None)
        entry.place = ""

    def _is_gone(self, entry: QueuedPod) -> bool:
        return self._entries.get(entry.demand.uid) is not entry

    async def _change(self) -> None:
        """Return after a change of the queue, or when a pod is due."""
        self._changed.clear()
        due = min(self._first_due(), self._failed[0][0] if self._failed else inf)
        if due == inf:
            await self._changed.wait()
            return
        seconds = due - self._clock.monotonic()
        async with asyncio.TaskGroup() as group:
            alarm = group.create_task(self._wake_after(seconds))
            await self._changed.wait()
            alarm.cancel()

    async def _wake_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._changed.set()


def _has_hope(
    entry: QueuedPod, nodes: Collection[str], filters: Collection[str], objections: Objections
) -> bool:
    """Return whether changes of some nodes or filters may make a pod schedulable."""
    if not entry.blamed or not entry.blamed.isdisjoint(filters):
        return True
    if not nodes:
        return False
    # A new reason does not help the pod, but its status must show the current reason.
    found = objections(entry.demand, nodes)
    return not found or not found <= entry.blamed
