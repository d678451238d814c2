"""Scheduler: binds every pending pod that names it to a node."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Final

from msgspec.structs import replace

from kedge.api.core_v1 import namespace, node, persistent_volume_claim
from kedge.api.core_v1.pod import pod
from kedge.api.metrics_v1alpha1 import node as node_metrics
from kedge.api.policy_v1 import pod_disruption_budget
from kedge.api.resource_v1 import device_class, resource_claim, resource_slice
from kedge.api.scheduling_kedge_v1alpha1.scheduling_decision import SchedulingDecision
from kedge.api.storage_v1 import csi, persistent_volume, storage_class
from kedge.client.client import Client
from kedge.client.events import Recorder
from kedge.client.informer import Cache, Informer, Key
from kedge.client.object_views import ObjectViews
from kedge.client.view import View, objects, sketches
from kedge.machinery.clock import Clock
from kedge.metrics.selection import HURRY_NODES
from kedge.scheduler.claim_writes import ClaimWrites
from kedge.scheduler.cycle import CycleState, decide
from kedge.scheduler.decisions import (
    DecidedPod,
    DecisionLog,
    DecisionRecord,
    record,
    summary,
    with_nodes,
)
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filters import (
    DYNAMIC_RESOURCES,
    INTER_POD_AFFINITY,
    NODE_RESOURCES_FIT,
    NODE_VOLUME_LIMITS,
    VOLUME_BINDING,
    VOLUME_RESTRICTIONS,
    VOLUME_ZONE,
)
from kedge.scheduler.loop import SchedulingLoop
from kedge.scheduler.pod_writes import PodWrites
from kedge.scheduler.queue import SchedulingQueue
from kedge.scheduler.receivers import NodeReceiver, NodeReportReceiver, PodReceiver
from kedge.scheduler.scores.score import Score
from kedge.scheduler.scores.scores import SCORES
from kedge.scheduler.snapshot import PartialNamespace, Snapshot
from kedge.scheduler.usage import NodeReport
from kedge.scheduler.usage_reader import PodUsageReader
from kedge.scheduler.volume_writes import ClaimBinding

NAME: Final = "default-scheduler"
"""Pods name the scheduler that they wait for; this is also who reports events."""

NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class Scheduler:
    """Watches pods and nodes through the API, and binds pods. Nothing polls."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        seed: int = 0,
        scores: Sequence[Score] = SCORES,
        usage: bool = True,
        views: ObjectViews | None = None,
    ) -> None:
        """`usage` says whether what is measured counts; without it all is as in upstream. `views`
        share decoded objects with other informers of the process."""
        self._views = views or ObjectViews()
        self._client = client
        self._clock = clock
        self._recorder = Recorder(client, clock, NAME)
        self._turn = CycleState(seed)
        self._scores = scores
        self._usage = usage
        self._snapshot = Snapshot()
        self._queue = SchedulingQueue(clock)
        self._pods = PodReceiver(self._snapshot, self._queue, NAME)
        self._budgets: Cache[pod_disruption_budget.PodDisruptionBudget] = Cache()
        self._decisions = DecisionLog()
        self._has_synced = False

    def failure(self) -> str:
        """Return why the scheduler does not work; empty once it does."""
        return "" if self._has_synced else "informers have not synced"

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        async with asyncio.TaskGroup() as tasks:
            loop = SchedulingLoop(
                self._snapshot,
                self._queue,
                self._pods,
                self._budgets,
                PodWrites(self._client, self._clock, tasks),
                ClaimWrites(self._client, self._snapshot.devices, self._clock),
                ClaimBinding(self._client, self._snapshot.storage, self._clock),
                self._recorder,
                self._decisions,
                self._clock,
                turn=self._turn,
                scores=self._scores,
            )
            tasks.create_task(self._recorder.run())
            for informer in self._informers():
                tasks.create_task(informer.run())
                await informer.synced.wait()
            self._has_synced = True
            # The scheduler does not wait for these: they are optional.
            if self._usage:
                rounds = PodUsageReader(self._client, self._snapshot, self._clock)
                tasks.create_task(self._measured(rounds).run())
                tasks.create_task(rounds.run())
            await loop.run()

    def _informers(self) -> Iterable[Informer[Any]]:
        """Pods come last: when they are known, so is everything they ask for."""
        storage, namespaces = self._snapshot.storage, self._snapshot.namespaces
        namespaces.listen(lambda _: self._queue.stir((INTER_POD_AFFINITY,)))
        for cache in (storage.claims, storage.volumes, storage.classes):
            cache.listen(self._stir_volumes)
        for other in (storage.drivers, storage.nodes, storage.capacities):
            other.listen(self._stir_volumes)
        devices = self._snapshot.devices
        devices.claims.listen(self._stir_devices)
        devices.classes.listen(self._stir_resources)
        devices.slices.listen(self._stir_devices)
        claims, volumes = persistent_volume_claim.RESOURCE, persistent_volume.VOLUMES
        nodes = NodeReceiver(self._snapshot, self._queue)
        client, clock = self._client, self._clock
        return (
            Informer(client, sketches(namespace.RESOURCE, PartialNamespace), namespaces, clock),
            Informer(client, objects(claims), storage.claims, clock),
            Informer(client, View(volumes, persistent_volume.decode), storage.volumes, clock),
            Informer(
                client, View(storage_class.CLASSES, storage_class.decode), storage.classes, clock
            ),
            Informer(client, View(csi.DRIVERS, csi.decode_driver), storage.drivers, clock),
            Informer(client, View(csi.NODES, csi.decode_node), storage.nodes, clock),
            Informer(client, View(csi.CAPACITIES, csi.decode_capacity), storage.capacities, clock),
            Informer(client, objects(device_class.RESOURCE), devices.classes, clock),
            Informer(client, objects(resource_slice.RESOURCE), devices.slices, clock),
            Informer(client, objects(resource_claim.RESOURCE), devices.claims, clock),
            Informer(client, objects(pod_disruption_budget.RESOURCE), self._budgets, clock),
            Informer(client, self._views.of(node.RESOURCE), nodes, clock),
            Informer(client, self._views.of(pod.RESOURCE), self._pods, clock, fields=NOT_ENDED),
        )

    def _stir_volumes(self, _: Key) -> None:
        self._queue.stir((VOLUME_BINDING, VOLUME_RESTRICTIONS, NODE_VOLUME_LIMITS, VOLUME_ZONE))

    def _stir_devices(self, _: Key) -> None:
        self._queue.stir((DYNAMIC_RESOURCES,))

    def _stir_resources(self, _: Key) -> None:
        """A class may provide an extended resource."""
        self._queue.stir((DYNAMIC_RESOURCES, NODE_RESOURCES_FIT))

    def _measured(self, rounds: PodUsageReader) -> Informer[NodeReport]:
        receiver = NodeReportReceiver(self._snapshot, rounds)
        # The scheduler watches all the time, so nodes keep their own resolution.
        view = sketches(node_metrics.RESOURCE, NodeReport, **{HURRY_NODES: "false"})
        return Informer(self._client, view, receiver, self._clock)

    # Fulfils the API's DecisionSource.

    def why(self, namespace: str, name: str) -> SchedulingDecision | None:
        """The latest decision about a pod, or what would be decided now; None for no such pod."""
        key = Key(namespace, name)
        known, kept = self._pods.get(key), self._decisions.get(key)
        if kept is not None and _is_about(kept, known):
            return DecidedPod(kept, known, self._scores).whole()
        if known is None:
            return None
        found = self._decided_now(known)
        return with_nodes(
            replace(summary(found, known), note=_undecided(known)), found, self._scores
        )

    def kept(self) -> list[DecidedPod]:
        """All decisions in memory, except about pods that another of the same name replaced."""
        pairs = ((kept, self._pods.get(kept.subject.key)) for kept in self._decisions)
        return [
            DecidedPod(kept, known, self._scores) for kept, known in pairs if _is_about(kept, known)
        ]

    def _decided_now(self, known: pod.Pod) -> DecisionRecord:
        """Return the decision that the scheduler would make now."""
        snapshot, here = self._snapshot, self._snapshot.placed(known.metadata.uid)
        demand = PodDemand(replace(known, spec=replace(known.spec, nodeName="")))
        state = snapshot.nodes.get(snapshot.home(demand.uid))
        away = (here,) if here is not None and state is not None else ()
        with snapshot.without_pods(state, away) if state is not None else nullcontext():
            decision = decide(demand, snapshot, CycleState(), scores=self._scores)
            return record(demand, decision, snapshot, self._clock.now())


def _is_about(kept: DecisionRecord, known: pod.Pod | None) -> bool:
    """Whether a decision is not about an earlier pod of the same name."""
    return known is None or known.metadata.uid == kept.subject.uid


def _undecided(known: pod.Pod) -> str:
    """Why there is no decision to tell about a pod."""
    if known.spec.nodeName:
        return (
            "not decided by this scheduler since it started, or long ago:"
            " this is what it would decide now"
        )
    if known.spec.schedulerName != NAME:
        return (
            f"the pod waits for scheduler {known.spec.schedulerName}: this is what {NAME} would"
            " decide"
        )
    if known.spec.schedulingGates:
        gates = ", ".join(each.name for each in known.spec.schedulingGates)
        return f"the pod waits for its gates ({gates}): this is what would be decided without"
    return "nothing has been decided yet: this is what would be decided now"
