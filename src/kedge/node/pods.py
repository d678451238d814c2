"""Pods: sees those that are bound to this node, and gives each its worker."""

import asyncio
import logging
from collections.abc import Iterable

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.client.client import Client
from kedge.client.informer import Informer
from kedge.client.view import objects
from kedge.machinery.durations import format_time
from kedge.node import security_modules
from kedge.node.admission import Rejection, admit, shortages
from kedge.node.allotment import summary
from kedge.node.backoff import TRIALS, Delay
from kedge.node.observed import Observations, Observed
from kedge.node.parts import Parts
from kedge.node.remains import Remains
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.node.status_writer import StatusWriter
from kedge.node.worker import Worker

log = logging.getLogger(__name__)

SWEEP = 60.0
"""Seconds between two looks for what pods have left behind."""


class Pods:
    """The pods of this node. Somebody must `run` it."""

    def __init__(self, client: Client, parts: Parts, name: str) -> None:
        self._parts = parts
        self._workers: dict[str, Worker] = {}
        self._observations = Observations(parts.runtime, parts.clock, self._wake)
        self._writer = StatusWriter(client, parts.clock)
        self._remains = Remains(parts, self._observations)
        self._informer = Informer(
            client, objects(RESOURCE), self, parts.clock, fields=f"spec.nodeName={name}"
        )
        self._tasks: asyncio.TaskGroup

    # What others ask.

    @property
    def synced(self) -> asyncio.Event:
        """Set once every pod that is bound here is known."""
        return self._informer.synced

    def pods(self) -> list[Pod]:
        """All pods, each with its latest status."""
        return [worker.pod for worker in self._workers.values()]

    def version(self) -> tuple[int, int]:
        """Something else whenever a pod has come or gone, or something of one began or ended."""
        return self._observations.changes, len(self._workers)

    def find(self, namespace: str, name: str) -> Pod | None:
        """A pod by its name; the newest, if an older one of that name still ends."""
        found = [
            pod
            for pod in self.pods()
            if pod.metadata.name == name and pod.metadata.namespace == namespace
        ]
        return max(found, key=lambda pod: pod.metadata.creationTimestamp, default=None)

    def observed(self, uid: str) -> Observed:
        """What the runtime has of a pod: its containers, the newest first."""
        return self._observations.of(uid)

    def refresh(self, uid: str) -> None:
        """Something that a pod's volumes show has changed."""
        if worker := self._workers.get(uid):
            worker.refresh()

    def evict(self, uid: str, message: str) -> None:
        """A pod uses more than it may: it ends now, and has failed."""
        if worker := self._workers.get(uid):
            worker.evict(message)

    def active(self) -> list[Pod]:
        """The pods that use something of the node."""
        return [worker.pod for worker in self._workers.values() if worker.active]

    def wake(self, uid: str) -> None:
        """Something that a pod's status shows has changed."""
        self._wake(uid)

    # The loop.

    async def run(self) -> None:
        """Until cancelled. Containers run on."""
        await self._first_look()
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._writer.run())
            self._tasks.create_task(self._observations.run())
            self._tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            while True:
                await self._remains.clear(self._workers)
                await self._parts.clock.sleep(SWEEP)

    async def _first_look(self) -> None:
        """Know what runs before anything is started: nothing is to run twice."""
        delay: Delay | None = None
        while True:
            try:
                return await self._observations.relist()
            except (RuntimeFailure, OSError) as error:
                log.warning("the runtime does not answer error=%r; trying again", str(error))
                now = self._parts.clock.now().timestamp()
                delay = TRIALS.after(delay, now, now)
                await self._parts.clock.sleep(delay.seconds)

    # What the informer tells.

    def replace(self, objects: Iterable[Pod]) -> None:
        known = {pod.metadata.uid: pod for pod in objects}
        for uid in self._workers.keys() - known.keys():
            self.remove(self._workers[uid].pod)
        # The eldest first: whoever was here keeps the place.
        for pod in sorted(known.values(), key=lambda pod: pod.metadata.creationTimestamp):
            self.put(pod)

    def put(self, obj: Pod) -> None:
        self._writer.know(obj)
        worker = self._workers.get(obj.metadata.uid)
        if worker is None:
            self._begin(obj)
        else:
            worker.update(obj)
            self._consider(worker, obj)

    def remove(self, obj: Pod) -> None:
        self._writer.forget(obj.metadata.uid)
        if worker := self._workers.get(obj.metadata.uid):
            worker.remove(obj)

    # The workers.

    def _begin(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        rejection = self._objection(pod)
        if rejection is not None:
            self._parts.events.record(pod, "Warning", rejection.reason, rejection.message)
        worker = self._workers[uid] = Worker(
            pod,
            self._parts,
            observations=self._observations,
            writer=self._writer,
            remains=self._remains,
            released=self._reconsider,
            rejection=rejection,
        )
        self._tasks.create_task(self._work(uid, worker))
        self._consider(worker, pod)

    async def _work(self, uid: str, worker: Worker) -> None:
        try:
            await worker.run()
        finally:
            del self._workers[uid]

    def _objection(self, pod: Pod) -> Rejection | None:
        """Why a pod cannot be taken; one that already runs here, or has ended, is not asked."""
        begun = self._observations.of(pod.metadata.uid).sandbox is not None
        over = pod.status.phase in ("Succeeded", "Failed") or pod.metadata.deletionTimestamp
        if begun or over:
            return None
        parts = self._parts
        if objection := security_modules.objection(pod, parts.security_modules):
            return objection
        return admit(pod, self._others(pod), parts.here.node, parts.devices.manages)

    def _others(self, pod: Pod) -> list[Pod]:
        return [
            worker.granted
            for uid, worker in self._workers.items()
            if worker.active and uid != pod.metadata.uid
        ]

    def _wake(self, uid: str) -> None:
        if worker := self._workers.get(uid):
            worker.wake()

    # Resizes.

    def _reconsider(self) -> None:
        """Something has become free: see whether it is enough for those who wait."""
        for worker in self._workers.values():
            self._consider(worker, worker.pod)

    def _consider(self, worker: Worker, pod: Pod) -> None:
        """Grant a pod what it now asks for, if the node has it."""
        allotment = worker.allotment
        if not worker.active or pod.metadata.deletionTimestamp:
            return
        if not allotment.wants(pod):
            allotment.withdraw()
            return
        now = format_time(self._parts.clock.now())
        generation = pod.metadata.generation
        here, apart = self._parts.here.node, self._parts.devices.manages
        lacking = next(shortages(pod, self._others(pod), here, apart), None)
        if lacking is None:
            allotment.grant(pod, now)
            # Files may tell of what has just been granted.
            worker.refresh()
            text = summary("Pod resize started", pod, generation)
            self._parts.events.record(pod, "Normal", "ResizeStarted", text)
        elif allotment.defer(pod, "Deferred", lacking.message, now):
            text = summary("Pod resize Deferred", pod, generation, lacking.message)
            self._parts.events.record(pod, "Warning", "ResizeDeferred", text)
        worker.wake()
