"""Scheduling loop: takes pods from the queue, decides, and starts the writes that follow."""

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from kedge.api.core_v1.event import MESSAGE_LIMIT
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.policy_v1.pod_disruption_budget import PodDisruptionBudget
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Cache
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.scheduler.cycle import (
    EXCESS,
    CycleState,
    FitError,
    Placement,
    PreparedFilters,
    decide,
    excess_of,
    refused,
)
from kedge.scheduler.decisions import DecisionLog, record
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.pod_writes import PodWrites
from kedge.scheduler.preemption import PreemptionCandidate, PreemptionImpossible, search_victims
from kedge.scheduler.queue import QueuedPod, SchedulingQueue
from kedge.scheduler.receivers import NEIGHBOURLY, PodReceiver
from kedge.scheduler.scores.score import Score
from kedge.scheduler.snapshot import Snapshot

log = logging.getLogger(__name__)

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
FEW_COMPARISONS: Final = 5_000
"""Up to so many label comparisons, a resting pod is checked whenever a node changes."""


class SchedulingLoop:
    """Decides about one pod at a time; binding and eviction run concurrently."""

    def __init__(
        self,
        snapshot: Snapshot,
        queue: SchedulingQueue,
        pods: PodReceiver,
        budgets: Cache[PodDisruptionBudget],
        deeds: PodWrites,
        recorder: Recorder,
        decisions: DecisionLog,
        clock: Clock,
        *,
        turn: CycleState,
        scores: Sequence[Score],
    ) -> None:
        self._snapshot = snapshot
        self._queue = queue
        self._pods = pods
        self._budgets = budgets
        self._writes = deeds
        self._recorder = recorder
        self._decisions = decisions
        self._clock = clock
        self._turn = turn
        self._scores = scores

    async def run(self) -> None:
        while True:
            entry = await self._queue.take(self._objections)
            try:
                await self._schedule(entry)
            except Exception:
                log.exception("cannot decide pod=%s/%s", *entry.demand.key)
                self._queue.retry(entry)
            # Many pods may wait; the rest of the process shall not wait for all of them.
            await self._clock.give_way()

    def _objections(self, demand: PodDemand, nodes: Collection[str]) -> frozenset[str]:
        """Return the filters that reject the pod on some of the nodes, whatever pods leave them."""
        if excess_of(demand, self._snapshot):
            return frozenset((EXCESS,))
        if self._snapshot.comparisons(demand) > FEW_COMPARISONS:
            # The check takes as long as a decision, and such decisions wait until no other pod
            # waits.
            return frozenset()
        prepared = PreparedFilters(demand, self._snapshot)
        found: set[str] = set()
        for name in nodes:
            node = self._snapshot.nodes.get(name)
            if node is None:
                continue
            refusal = refused(demand, node, self._snapshot, prepared)
            if refusal is None:
                return frozenset()
            found.add(refusal[0])
            if not refusal[1].final and any(
                each.priority < demand.priority for each in node.pods.values()
            ):
                return frozenset()
        return frozenset(found)

    async def _schedule(self, entry: QueuedPod) -> None:
        demand = entry.demand
        decision = decide(demand, self._snapshot, self._turn, scores=self._scores)
        self._decisions.add(record(demand, decision, self._snapshot, self._clock.now()))
        if isinstance(decision, Placement):
            self._snapshot.nominate(demand, "")
            self._snapshot.place(demand, decision.node)
            self._writes.begin(demand.uid, partial(self._bind, entry, decision.node))
        else:
            await self._make_room(entry, decision)

    # A node was found.

    async def _bind(self, entry: QueuedPod, node: str) -> None:
        pod = entry.demand.pod
        try:
            await self._writes.bind(pod, node)
        except (StatusError, OSError) as error:
            self._take_back(entry, error)
        else:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            message = f"Successfully assigned {where} to {node}"
            self._recorder.record(pod, NORMAL, "Scheduled", message)

    def _take_back(self, entry: QueuedPod, error: StatusError | OSError) -> None:
        """The pod is not where it was thought to be, unless it has been seen there since."""
        uid = entry.demand.uid
        if uid not in self._queue:
            return
        node = self._snapshot.home(uid)
        self._snapshot.remove(uid)
        self._queue.stir_node(node)
        self._queue.stir(NEIGHBOURLY)
        if isinstance(error, StatusError) and error.code == 404:
            self._queue.remove(uid)
            return
        self._queue.retry(entry)
        message = f'running Bind plugin "DefaultBinder": {error}'
        self._tell(entry.demand, SCHEDULER_ERROR, message, "")

    # None was found.

    async def _make_room(self, entry: QueuedPod, unfit: FitError) -> None:
        demand, message = entry.demand, unfit.message
        nominated: str | None = ""
        if unfit.nodes:
            found = await self._preempt(demand, unfit)
            if isinstance(found, PreemptionCandidate):
                nominated = found.node
                self._clear(demand, found)
            else:
                nominated = None if found.keeps_nomination else ""
                message = f"{message} {found.message}"
        if nominated is not None:
            self._nominate(demand, nominated)
        self._queue.rest(entry, unfit.blamed)
        self._tell(demand, UNSCHEDULABLE, message, nominated)

    async def _preempt(
        self, demand: PodDemand, unfit: FitError
    ) -> PreemptionCandidate | PreemptionImpossible:
        """Search victims node by node, and give way to requests in between."""
        search = search_victims(demand, self._snapshot, unfit, [*self._budgets], self._turn)
        while True:
            try:
                next(search)
            except StopIteration as end:
                found: PreemptionCandidate | PreemptionImpossible = end.value
                return found
            await self._clock.give_way()

    def _nominate(self, demand: PodDemand, node: str) -> None:
        former = self._snapshot.nomination(demand.uid)
        self._snapshot.nominate(demand, node)
        if former and former != node:
            self._queue.stir_node(former)

    def _clear(self, demand: PodDemand, candidate: PreemptionCandidate) -> None:
        """Send the victims away, and those of lower priority who hoped for the same node."""
        for other in [*self._snapshot.nominated.get(candidate.node, {}).values()]:
            if other.priority < demand.priority:
                self._snapshot.nominate(other, "")
                self._queue.activate(other.uid)
                self._writes.begin(other.uid, partial(self._writes.renounce, other.pod))
        for victim in candidate.victims:
            if not victim.terminating and victim.uid not in self._snapshot.condemned:
                self._snapshot.condemned.add(victim.uid)
                evict = partial(self._evict, victim, demand, candidate.node)
                self._writes.begin(victim.uid, evict)

    async def _evict(self, victim: PodDemand, demand: PodDemand, node: str) -> None:
        try:
            await self._writes.evict(self._newest(victim))
        except (StatusError, OSError):
            # The pod that was to get the place shall not wait for a victim that stays.
            self._snapshot.condemned.discard(victim.uid)
            self._queue.activate(demand.uid)
            raise
        message = f"Preempted by pod {demand.uid} on node {node}"
        self._recorder.record(victim.pod, NORMAL, "Preempted", message)

    def _tell(self, demand: PodDemand, reason: str, message: str, nominated: str | None) -> None:
        self._recorder.record(demand.pod, WARNING, "FailedScheduling", shortened(message))
        explain = partial(self._explain, demand, reason, message, nominated)
        self._writes.begin(demand.uid, explain)

    async def _explain(
        self, demand: PodDemand, reason: str, message: str, nominated: str | None
    ) -> None:
        await self._writes.explain(self._newest(demand), reason, message, nominated)

    def _newest(self, demand: PodDemand) -> Pod:
        pod = self._pods.get(demand.key)
        return pod if pod is not None and pod.metadata.uid == demand.uid else demand.pod


def shortened(message: str) -> str:
    """A message as an event can hold it."""
    if len(message) <= MESSAGE_LIMIT:
        return message
    return f"{message[: MESSAGE_LIMIT - 4]} ..."
