"""Scheduling loop: takes pods from the queue, decides, and starts the writes that follow."""

import asyncio
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from kedge.api.core_v1.event import MESSAGE_LIMIT
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.policy_v1.pod_disruption_budget import PodDisruptionBudget
from kedge.api.resource_v1.claim_conditions import (
    BindingState,
    binding_failure,
    binding_state,
    has_binding_conditions,
)
from kedge.api.resource_v1.extended_resources import is_made_for_resources
from kedge.api.resource_v1.pod_claims import NOT_CREATED, ClaimMissing
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Cache, Key
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.scheduler.claim_writes import ClaimWriteFailed, ClaimWrites
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
from kedge.scheduler.filters.dynamic_resources import unavailable_on
from kedge.scheduler.filters.filters import DYNAMIC_RESOURCES, VOLUME_BINDING
from kedge.scheduler.filters.volume_binding import volume_plan
from kedge.scheduler.pod_writes import PodWrites
from kedge.scheduler.preemption import PreemptionCandidate, PreemptionImpossible, search_victims
from kedge.scheduler.queue import QueuedPod, SchedulingQueue
from kedge.scheduler.receivers import NEIGHBOURLY, PodReceiver
from kedge.scheduler.reservations import ClaimReservation, claim_reservations
from kedge.scheduler.scores.score import Score
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.storage import VolumePlan
from kedge.scheduler.volume_writes import ClaimBinding, VolumeBindingFailed

log = logging.getLogger(__name__)

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
BIND: Final = 'Bind plugin "DefaultBinder"'
PRE_BIND: Final = 'PreBind plugin "DynamicResources"'
PRE_BIND_VOLUMES: Final = 'PreBind plugin "VolumeBinding"'
BINDING_TIMEOUT: Final = 600.0
"""Seconds for which a pod waits for the binding conditions of its devices."""
BINDING_POLL_SECONDS: Final = 1.0
SELECTOR_SECONDS: Final = 1.0
"""Seconds for which one attempt evaluates the selectors of a pod's claims; other pods wait."""
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
        claims: ClaimWrites,
        volumes: ClaimBinding,
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
        self._claims = claims
        self._volumes = volumes
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
        self._snapshot.devices.forget_proposals()
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
        is_evaluated = await self._evaluate_selectors(entry)
        demand = entry.demand
        if demand.uid not in self._queue:
            return
        decision = decide(demand, self._snapshot, self._turn, scores=self._scores)
        self._decisions.add(record(demand, decision, self._snapshot, self._clock.now()))
        if isinstance(decision, Placement):
            reservations = self._reserve(demand, decision.node)
            self._snapshot.nominate(demand, "")
            self._snapshot.place(demand, decision.node)
            plan = self._volume_plan(demand, decision.node)
            bind = partial(self._bind, entry, decision.node, reservations, plan)
            self._writes.begin(demand.uid, bind)
        elif decision.error or not is_evaluated:
            # The next attempt continues with the results of this one.
            self._queue.retry(entry)
            reason = SCHEDULER_ERROR if decision.error else UNSCHEDULABLE
            self._tell(demand, reason, decision.message, None)
        else:
            await self._make_room(entry, decision)

    async def _evaluate_selectors(self, entry: QueuedPod) -> bool:
        """Evaluate the selectors of a pod's claims; return whether the time was enough."""
        ends = self._clock.monotonic() + SELECTOR_SECONDS
        devices = self._snapshot.devices
        demand = entry.demand
        resources = [name for name, _ in demand.others]
        for long in devices.evaluate_selectors(demand.pod, resources):
            if long is not None:
                devices.keep(long, await asyncio.to_thread(long.result))
            await self._clock.give_way()
            if self._clock.monotonic() >= ends:
                return False
        return True

    # A node was found.

    def _reserve(self, demand: PodDemand, node: str) -> list[ClaimReservation]:
        """Take the devices that were proposed for a pod; return the claims to write."""
        reservations = claim_reservations(demand, self._snapshot.nodes[node], self._snapshot)
        for each in reservations:
            if each.allocation is not None:
                self._snapshot.devices.reserve(each.claim, each.allocation)
        return reservations

    def _volume_plan(self, demand: PodDemand, node: str) -> VolumePlan:
        """Promise the volumes of a pod's claims; return the writes that its claims need."""
        storage = self._snapshot.storage
        claims = [*storage.claims_for(demand.pod)]
        plan = volume_plan(claims, self._snapshot.nodes[node], storage) if claims else VolumePlan()
        if isinstance(plan, str):
            return VolumePlan()
        storage.promise(plan, node)
        return plan

    async def _bind(
        self,
        entry: QueuedPod,
        node: str,
        reservations: Sequence[ClaimReservation],
        plan: VolumePlan,
    ) -> None:
        """Write the claims of a pod, wait for their volumes and devices, and bind the pod."""
        if not plan:
            await self._bind_devices(entry, node, reservations)
            return
        try:
            asked = await self._volumes.write(plan, node)
        except (StatusError, OSError, VolumeBindingFailed) as error:
            self._give_volumes_back(entry, plan, error)
            return
        self._writes.wait(self._bind_when_bound(entry, node, reservations, plan, asked))

    async def _bind_when_bound(
        self,
        entry: QueuedPod,
        node: str,
        reservations: Sequence[ClaimReservation],
        plan: VolumePlan,
        asked: Mapping[Key, int],
    ) -> None:
        state = self._snapshot.nodes.get(node)
        failure = f'binding volumes: node "{node}" not found'
        if state is not None:
            failure = await self._volumes.bound(plan, state, asked)
        if failure:
            self._give_volumes_back(entry, plan, VolumeBindingFailed(failure))
            return
        self._snapshot.storage.release(plan)
        bind = partial(self._bind_devices, entry, node, reservations)
        self._writes.begin(entry.demand.uid, bind)

    def _give_volumes_back(self, entry: QueuedPod, plan: VolumePlan, error: Exception) -> None:
        self._snapshot.storage.release(plan)
        self._queue.stir((VOLUME_BINDING,))
        self._take_back(entry, error, PRE_BIND_VOLUMES)

    async def _bind_devices(
        self, entry: QueuedPod, node: str, reservations: Sequence[ClaimReservation]
    ) -> None:
        """Reserve the devices of a pod, wait for them, and bind the pod."""
        pod = entry.demand.pod
        try:
            written = await self._claims.reserve(pod, reservations)
        except ClaimWriteFailed as error:
            self._queue.stir((DYNAMIC_RESOURCES,))
            self._take_back(entry, error, PRE_BIND)
            return
        # The cache may not have the written claims yet.
        claims = (*written, *self._current_claims(pod))
        if any(has_binding_conditions(claim) for claim in claims):
            message = f"waiting for binding conditions for device on node {node}"
            self._recorder.record(pod, NORMAL, "BindingConditionsPending", message)
            self._writes.wait(self._bind_when_ready(entry, node))
        else:
            await self._bind_now(entry, node)

    async def _bind_when_ready(self, entry: QueuedPod, node: str) -> None:
        deadline = self._clock.monotonic() + BINDING_TIMEOUT
        uid = entry.demand.uid
        while uid in self._queue:
            try:
                claims = self._claims_of(entry.demand.pod)
            except ClaimMissing as missing:
                # It was deleted meanwhile: the devices of the pod are gone.
                self._give_up(entry, str(missing), ())
                return
            if failed := _failed_binding(claims):
                self._give_up(entry, failed, claims)
                return
            waiting = [each for each in claims if not _is_ready(each)]
            if not waiting:
                self._writes.begin(uid, partial(self._bind_now, entry, node))
                return
            if self._clock.monotonic() >= deadline:
                self._snapshot.devices.overdue.update(each.metadata.uid for each in waiting)
                why = f"device binding timeout: claim={waiting[0].metadata.name}"
                self._give_up(entry, why, claims)
                return
            await self._clock.sleep(BINDING_POLL_SECONDS)

    def _give_up(self, entry: QueuedPod, why: str, claims: Sequence[ResourceClaim]) -> None:
        """Take a pod back whose devices are not usable, so that any of its users can free them."""
        pod = entry.demand.pod
        self._take_back(entry, ClaimWriteFailed(why), PRE_BIND)
        self._writes.begin(entry.demand.uid, partial(self._claims.unreserve, pod, claims))

    def _claims_of(self, pod: Pod) -> list[ResourceClaim]:
        """Return the claims of a pod, with that for its extended resources."""
        devices = self._snapshot.devices
        made = devices.resource_claim_of(pod)
        return [*devices.claims_of(pod), *([made] if made is not None else [])]

    def _current_claims(self, pod: Pod) -> list[ResourceClaim]:
        try:
            return self._claims_of(pod)
        except ClaimMissing:
            return []

    async def _bind_now(self, entry: QueuedPod, node: str) -> None:
        pod = entry.demand.pod
        try:
            await self._writes.bind(pod, node)
        except (StatusError, OSError) as error:
            self._take_back(entry, error, BIND)
            await self._claims.unreserve(pod, self._current_claims(pod))
        else:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            message = f"Successfully assigned {where} to {node}"
            self._recorder.record(pod, NORMAL, "Scheduled", message)

    def _take_back(self, entry: QueuedPod, error: Exception, plugin: str) -> None:
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
        self._tell(entry.demand, SCHEDULER_ERROR, f"running {plugin}: {error}", "")

    # None was found.

    async def _make_room(self, entry: QueuedPod, unfit: FitError) -> None:
        demand, message = entry.demand, unfit.message
        if entry.attempts == 1 and unfit.everywhere.endswith(NOT_CREATED):
            # The claim is made from its template within moments; upstream tells nothing either.
            self._queue.rest(entry, unfit.blamed)
            return
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
        if DYNAMIC_RESOURCES in unfit.blamed:
            self._free_claim(demand, unfit)
        self._tell(demand, UNSCHEDULABLE, message, nominated)

    def _free_claim(self, demand: PodDemand, unfit: FitError) -> None:
        """Deallocate a claim that is allocated for nodes on which the pod cannot be."""
        devices, claims = self._snapshot.devices, self._current_claims(demand.pod)
        for claim in claims:
            if is_made_for_resources(claim, demand.pod):
                unreserve = partial(self._claims.unreserve, demand.pod, [claim])
                self._writes.begin(demand.uid, unreserve)
                return
        find = unavailable_on(claims, devices)
        refused_nodes = [name for name, by in unfit.refused_by.items() if by == DYNAMIC_RESOURCES]
        for name in refused_nodes:
            node = self._snapshot.nodes.get(name)
            for claim in find(node) if node is not None else ():
                if all(each.uid == demand.uid for each in claim.status.reservedFor):
                    self._writes.begin(demand.uid, partial(self._claims.deallocate, claim))
                    return

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


def _failed_binding(claims: Sequence[ResourceClaim]) -> str:
    for claim in claims:
        if (found := binding_failure(claim)) is not None:
            return (
                f"device binding failed: claim={claim.metadata.name}, reason={found.reason}, "
                f"message={json.dumps(found.message)}"
            )
    return ""


def _is_ready(claim: ResourceClaim) -> bool:
    return claim.status.allocation is not None and binding_state(claim) is BindingState.READY


def shortened(message: str) -> str:
    """A message as an event can hold it."""
    if len(message) <= MESSAGE_LIMIT:
        return message
    return f"{message[: MESSAGE_LIMIT - 4]} ..."
