"""PodWrites: the scheduler's writes to pods through the API, in order for each pod."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import PodCondition
from kedge.client.client import STRATEGIC_PATCH, Client, DeletionOptions, DeletionPreconditions
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError
from kedge.scheduler.preemption import DISRUPTION_TARGET, REASON

log = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""The maximum of concurrent requests."""
SCHEDULED: Final = "PodScheduled"

PodWrite = Callable[[], Awaitable[None]]


class PodWrites:
    """Writes to different pods concurrently, and to one pod in the order of the calls."""

    def __init__(self, client: Client, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._places = asyncio.Semaphore(AT_ONCE)
        self._last: dict[str, asyncio.Task[None]] = {}
        """The last write of each pod, by uid."""

    def begin(self, uid: str, write: PodWrite) -> None:
        """Start a write to a pod after all earlier writes to it have ended."""
        self._last[uid] = self._tasks.create_task(self._do(uid, write, self._last.get(uid)))

    def wait(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Run something that may take long and writes nothing: it needs no place."""
        self._tasks.create_task(waiting)

    async def _do(self, uid: str, write: PodWrite, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        async with self._places:
            try:
                await write()
            except (StatusError, OSError) as error:
                log.warning("cannot write pod=%s error=%r", uid, str(error))
            except Exception:
                log.exception("cannot write pod=%s", uid)
        if self._last.get(uid) is asyncio.current_task():
            del self._last[uid]

    # The writes.

    async def bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"kind": "Node", "name": node},
        }
        await self._client.exchange(
            "POST", RESOURCE, meta.name, "binding", binding, namespace=meta.namespace
        )

    async def explain(self, pod: Pod, reason: str, message: str, nominated: str | None) -> None:
        """Write into a pod's status why it has no node, and which one is being cleared for it."""
        condition = self._condition(pod, SCHEDULED, "False", reason, message)
        changes: dict[str, Any] = {}
        if condition is not None:
            changes["conditions"] = [condition]
        if nominated is not None and nominated != pod.status.nominatedNodeName:
            changes["nominatedNodeName"] = nominated or None
        await self._patch(pod, changes)

    async def renounce(self, pod: Pod) -> None:
        """No node is being cleared for the pod any more."""
        await self._patch(pod, {"nominatedNodeName": None})

    async def evict(self, pod: Pod) -> None:
        """Make a pod go for the sake of another one."""
        message = f"{pod.spec.schedulerName}: preempting to accommodate a higher priority pod"
        condition = self._condition(pod, DISRUPTION_TARGET, "True", REASON, message)
        await self._patch(pod, {"conditions": [condition]} if condition is not None else {})
        meta = pod.metadata
        options = DeletionOptions(preconditions=DeletionPreconditions(uid=meta.uid))
        try:
            await self._client.delete(RESOURCE, meta.name, meta.namespace, options=options)
        except StatusError as error:
            if error.code != 404:
                raise

    async def _patch(self, pod: Pod, changes: dict[str, Any]) -> None:
        if not changes:
            return
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": changes}
        try:
            await self._client.patch(
                RESOURCE,
                meta.name,
                patch,
                meta.namespace,
                form=STRATEGIC_PATCH,
                subresource="status",
            )
        except StatusError as error:
            if error.code != 404:
                raise

    def _condition(
        self, pod: Pod, type_: str, status: str, reason: str, message: str
    ) -> dict[str, Any] | None:
        """A condition as it is to be written; None if the pod has it already."""
        generation = pod.metadata.generation
        old = next((each for each in pod.status.conditions if each.type == type_), PodCondition())
        known = (old.status, old.reason, old.message, old.observedGeneration)
        if known == (status, reason, message, generation):
            return None
        since = old.lastTransitionTime if old.status == status else ""
        return {
            "type": type_,
            "observedGeneration": generation,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": since or format_time(self._clock.now()),
            "reason": reason,
            "message": message,
        }
