"""Scheduler: gives a node to every pod that asks it for one."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kedge.api.builtin.resources import RESOURCES
from kedge.api.core_v1 import namespace, node, persistent_volume_claim, pod
from kedge.api.policy_v1 import pod_disruption_budget
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.events import Recorder
from kedge.client.informer import Cache, Informer
from kedge.client.view import objects, sketches
from kedge.machinery.clock import Clock
from kedge.scheduler.cycle import Turn
from kedge.scheduler.deeds import Deeds
from kedge.scheduler.filters.filters import INTER_POD_AFFINITY, VOLUME_BINDING
from kedge.scheduler.loop import Loop
from kedge.scheduler.queue import Queue
from kedge.scheduler.receivers import Nodes, Pods
from kedge.scheduler.scores.score import Score
from kedge.scheduler.scores.scores import SCORES
from kedge.scheduler.snapshot import Namespace, Snapshot
from kedge.scheduler.storage import Claim, PersistentVolume, StorageClass

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
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = Recorder(client, clock, NAME)
        self._turn = Turn(seed)
        self._scores = scores
        self._snapshot = Snapshot()
        self._queue = Queue(clock)
        self._pods = Pods(self._snapshot, self._queue, NAME)
        self._budgets: Cache[pod_disruption_budget.PodDisruptionBudget] = Cache()

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        async with asyncio.TaskGroup() as tasks:
            loop = Loop(
                self._snapshot,
                self._queue,
                self._pods,
                self._budgets,
                Deeds(self._client, self._clock, tasks),
                self._recorder,
                turn=self._turn,
                scores=self._scores,
            )
            tasks.create_task(self._recorder.run())
            for informer in self._informers():
                tasks.create_task(informer.run())
                await informer.synced.wait()
            await loop.run()

    def _informers(self) -> Iterable[Informer[Any]]:
        """Pods come last: when they are known, so is everything they ask for."""
        storage, namespaces = self._snapshot.storage, self._snapshot.namespaces
        namespaces.listen(lambda _: self._queue.stir((INTER_POD_AFFINITY,)))
        for cache in (storage.claims, storage.volumes, storage.classes):
            cache.listen(lambda _: self._queue.stir((VOLUME_BINDING,)))
        claims, volumes = persistent_volume_claim.RESOURCE, _built_in("persistentvolumes")
        nodes = Nodes(self._snapshot, self._queue)
        client, clock = self._client, self._clock
        return (
            Informer(client, sketches(namespace.RESOURCE, Namespace), namespaces, clock),
            Informer(client, sketches(claims, Claim), storage.claims, clock),
            Informer(client, sketches(volumes, PersistentVolume), storage.volumes, clock),
            Informer(
                client, sketches(_built_in("storageclasses"), StorageClass), storage.classes, clock
            ),
            Informer(client, objects(pod_disruption_budget.RESOURCE), self._budgets, clock),
            Informer(client, objects(node.RESOURCE), nodes, clock),
            Informer(client, objects(pod.RESOURCE), self._pods, clock, fields=NOT_ENDED),
        )


def _built_in(plural: str) -> Resource[Any]:
    return next(each for each in RESOURCES if each.plural == plural)
