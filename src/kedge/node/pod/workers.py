"""The workers of all pods that are bound to this node."""

import asyncio
import logging
from collections.abc import Iterable

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.client.client import Client
from kedge.client.informer import Informer
from kedge.client.view import objects
from kedge.machinery.clock import machine_clock
from kedge.machinery.durations import format_time
from kedge.node.pod import security_modules
from kedge.node.pod.admission import PodRejection, admit, has_room, shortages
from kedge.node.pod.backoff import RETRIES, BackoffDelay
from kedge.node.pod.dependencies import PodDependencies
from kedge.node.pod.event_recorder import NORMAL, WARNING
from kedge.node.pod.orphaned_resources import OrphanedResources
from kedge.node.pod.resources import resize_message
from kedge.node.pod.runtime_cache import PodRuntimeState, RuntimeCache
from kedge.node.pod.status.writer import StatusWriter
from kedge.node.pod.termination import TERMINAL_PHASES
from kedge.node.pod.worker import PodWorker
from kedge.node.runtime.runtime import RuntimeFailure

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
"""Seconds between two searches for orphaned resources."""


class PodWorkers:
    """Keeps one worker for each pod that is bound to this node. The owner must `run` it."""

    def __init__(self, client: Client, dependencies: PodDependencies, name: str) -> None:
        self._dependencies = dependencies
        self._workers: dict[str, PodWorker] = {}
        machine = machine_clock(dependencies.clock)
        self._cache = RuntimeCache(dependencies.runtime, machine, self.wake)
        self._writer = StatusWriter(client, machine)
        self._orphans = OrphanedResources(dependencies, self._cache)
        self._informer = Informer(
            client, objects(RESOURCE), self, dependencies.clock, fields=f"spec.nodeName={name}"
        )
        self._resources_freed = asyncio.Event()
        """Set, and replaced, whenever a pod has released its resources."""
        self._tasks: asyncio.TaskGroup

    # Interface to other rooms.

    @property
    def synced(self) -> asyncio.Event:
        """Set once all pods that are bound to this node are known."""
        return self._informer.synced

    def pods(self) -> list[Pod]:
        """Return all pods, each with its latest status."""
        return [worker.pod for worker in self._workers.values()]

    def version(self) -> tuple[int, int]:
        """Return a value that changes with every pod, sandbox and container that comes or goes."""
        return self._cache.changes, len(self._workers)

    def find(self, namespace: str, name: str) -> Pod | None:
        """Return a pod by its name; the newest, if an older pod of that name is still ending."""
        found = [
            pod
            for pod in self.pods()
            if pod.metadata.name == name and pod.metadata.namespace == namespace
        ]
        return max(found, key=lambda pod: pod.metadata.creationTimestamp, default=None)

    def observed(self, uid: str) -> PodRuntimeState:
        """Return the sandboxes and containers of a pod, newest first; their times are the
        machine's."""
        return self._cache.of(uid)

    def refresh(self, uid: str) -> None:
        """Update the volumes of a pod: an API object in them has changed."""
        if worker := self._workers.get(uid):
            worker.refresh()

    def evict(self, uid: str, message: str) -> None:
        """Evict a pod: it ends now, and its phase is Failed."""
        if worker := self._workers.get(uid):
            worker.evict(message)

    def active(self) -> list[Pod]:
        """Return the pods that use resources of the node."""
        return [worker.pod for worker in self._workers.values() if worker.is_active]

    def exists(self, uid: str) -> bool:
        """Return whether the API has a pod. One that was deleted by force may still run here."""
        worker = self._workers.get(uid)
        return worker is not None and not worker.is_removed

    def wake(self, uid: str) -> None:
        """Have a pod planned again: something in its status has changed."""
        if worker := self._workers.get(uid):
            worker.wake()

    # The loop.

    async def run(self) -> None:
        """Run until cancelled. Containers continue to run after that."""
        await self._list_containers()
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._writer.run())
            self._tasks.create_task(self._cache.run())
            self._tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            while True:
                await self._orphans.remove_all(self._workers)
                await self._dependencies.clock.sleep(SWEEP_SECONDS)

    async def _list_containers(self) -> None:
        """Fill the cache before the first plan: a plan from an empty cache would start the
        containers of a previous agent a second time."""
        delay: BackoffDelay | None = None
        while True:
            try:
                return await self._cache.relist()
            except (RuntimeFailure, OSError) as error:
                log.warning("the runtime does not answer error=%r; retrying", str(error))
                machine = machine_clock(self._dependencies.clock)
                now = machine.now().timestamp()
                delay = RETRIES.after(delay, now, now)
                await machine.sleep(delay.seconds)

    # Fulfils kedge.client.informer.Receiver.

    def replace(self, objects: Iterable[Pod]) -> None:
        known = {pod.metadata.uid: pod for pod in objects}
        for uid in self._workers.keys() - known.keys():
            self.remove(self._workers[uid].pod)
        # Oldest first: admission then prefers the pods that were here before a restart.
        for pod in sorted(known.values(), key=lambda pod: pod.metadata.creationTimestamp):
            self.put(pod)

    def put(self, obj: Pod) -> None:
        self._writer.update(obj)
        worker = self._workers.get(obj.metadata.uid)
        if worker is None:
            self._add(obj)
        else:
            worker.update(obj)
            self._consider_resize(worker, obj)

    def remove(self, obj: Pod) -> None:
        self._writer.forget(obj.metadata.uid)
        if worker := self._workers.get(obj.metadata.uid):
            worker.remove(obj)

    # The workers.

    def _add(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        rejection = self._rejection(pod)
        if rejection is not None:
            self._dependencies.events.record(pod, WARNING, rejection.reason, rejection.message)
        worker = self._workers[uid] = PodWorker(
            pod,
            self._dependencies,
            cache=self._cache,
            writer=self._writer,
            orphans=self._orphans,
            room=self._await_room,
            released=self._record_release,
            rejection=rejection,
        )
        self._tasks.create_task(self._work(uid, worker))
        self._consider_resize(worker, pod)

    async def _work(self, uid: str, worker: PodWorker) -> None:
        try:
            await worker.run()
        finally:
            del self._workers[uid]

    def _rejection(self, pod: Pod) -> PodRejection | None:
        """Return why the node does not admit a pod.

        A pod with a sandbox was admitted by a previous agent and is not checked again: the node
        may have less allocatable resources now, and the kubelet does not evict for that either.
        """
        is_started = self._cache.of(pod.metadata.uid).sandbox is not None
        has_ended = pod.status.phase in TERMINAL_PHASES or pod.metadata.deletionTimestamp
        if is_started or has_ended:
            return None
        dependencies = self._dependencies
        if rejection := security_modules.rejection(pod, dependencies.security_modules):
            return rejection
        node, devices = dependencies.this_node.node, dependencies.devices
        existing, _ = self._others(pod)
        return admit(pod, existing, node, devices.manages)

    def _others(self, pod: Pod) -> tuple[list[Pod], list[Pod]]:
        """Return the other pods that use resources: those that the API has, and those that still
        run after it has let go of them."""
        others = [
            worker
            for uid, worker in self._workers.items()
            if worker.is_active and uid != pod.metadata.uid
        ]
        existing = [worker.allocated_pod for worker in others if not worker.is_removed]
        return existing, [worker.allocated_pod for worker in others if worker.is_removed]

    # Room.

    async def _await_room(self, pod: Pod) -> None:
        """Return when an admitted pod has room beside the pods that were deleted by force, or with
        a grace period of zero.

        The scheduler counts such pods no more and may have bound the pod in their place, so the
        node admits it. It starts once their processes have ended: no two pods use the same
        processors, memory or host ports. (The kubelet starts it at once.)
        """
        node, devices = self._dependencies.this_node.node, self._dependencies.devices
        is_announced = False
        while True:
            existing, leaving = self._others(pod)
            if not leaving or has_room(pod, [*existing, *leaving], node, devices.manages):
                return
            if not is_announced:
                is_announced = True
                names = ", ".join(f"{p.metadata.namespace}/{p.metadata.name}" for p in leaving)
                text = f"Waiting for the resources of deleted pods that still run: {names}"
                self._dependencies.events.record(pod, NORMAL, "WaitingForResources", text)
            await self._resources_freed.wait()

    def _record_release(self) -> None:
        """Use the resources that a pod has released."""
        self._resources_freed.set()
        self._resources_freed = asyncio.Event()
        self._reconsider_resizes()

    # Resizes.

    def _reconsider_resizes(self) -> None:
        """Allocate deferred resizes that fit, after a pod has released its resources."""
        for worker in self._workers.values():
            self._consider_resize(worker, worker.pod)

    def _consider_resize(self, worker: PodWorker, pod: Pod) -> None:
        """Allocate the resources that a pod requests, or defer the resize."""
        resources = worker.resources
        if not worker.is_active or pod.metadata.deletionTimestamp:
            return
        if not resources.differs(pod):
            resources.clear_pending()
            return
        now = format_time(self._dependencies.clock.now())
        generation, events = pod.metadata.generation, self._dependencies.events
        node, devices = self._dependencies.this_node.node, self._dependencies.devices
        existing, leaving = self._others(pod)
        shortage = next(shortages(pod, [*existing, *leaving], node, devices.manages), None)
        if shortage is None:
            resources.allocate(pod, now)
            # Downward API files may show the resources.
            worker.refresh()
            text = resize_message("Pod resize started", pod, generation)
            events.record(pod, NORMAL, "ResizeStarted", text)
        elif resources.defer(pod, "Deferred", shortage.message, now):
            text = resize_message("Pod resize Deferred", pod, generation, shortage.message)
            events.record(pod, WARNING, "ResizeDeferred", text)
        worker.wake()
