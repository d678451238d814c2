"""Writes the statuses of pods to the API, only the latest of each pod."""

import asyncio
import logging

import msgspec

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.client.client import STRATEGIC_PATCH, Client, DeletionOptions, DeletionPreconditions
from kedge.client.workqueue import Backoff
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.pod.status.patch import beside_loop, status_patch
from kedge.node.pod.timeouts import wait_until_set

log = logging.getLogger(__name__)

CONCURRENT_REQUESTS = 16
DELAY_SECONDS = 0.5
"""Seconds that a status which is not urgent waits for a newer one."""
RETRIES = Backoff(first=0.05, most=10.0)
MANAGER = "kubelet"


class _PendingStatus(msgspec.Struct):
    """The status of one pod that has yet to be written."""

    pod: Pod
    """The pod as the API has it, as far as known."""
    status: PodStatus | None = None
    urgent: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    written: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set while there is nothing to write."""
    task: asyncio.Task[None] | None = None
    gone: bool = False
    """Whether the pod does not exist any more; its status is dropped."""


class StatusWriter:
    """Writes statuses; every pod has at most one request in flight."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._entries: dict[str, _PendingStatus] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_REQUESTS)
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for entry in self._entries.values():
                self._begin(entry)
            await asyncio.Event().wait()

    def update(self, pod: Pod) -> None:
        """Take over the pod as the API has it."""
        entry = self._entries.get(pod.metadata.uid)
        if entry is not None and _version(pod) >= _version(entry.pod):
            entry.pod = pod

    def write(self, pod: Pod, status: PodStatus, *, urgent: bool = True) -> None:
        """Write a pod's status; one that is not urgent waits a little for a newer one."""
        entry = self._entries.get(pod.metadata.uid)
        if entry is None:
            entry = self._entries[pod.metadata.uid] = _PendingStatus(pod)
        if entry.gone:
            return
        entry.status = status
        entry.written.clear()
        if urgent:
            entry.urgent.set()
        self._begin(entry)

    async def flush(self, uid: str) -> None:
        """Return when the latest status of a pod is written, or the pod is gone."""
        entry = self._entries.get(uid)
        if entry is not None and entry.status is not None:
            entry.urgent.set()
            await entry.written.wait()

    async def delete(self, pod: Pod) -> None:
        """Delete the object of a pod that has ended; retry until that succeeds."""
        meta = pod.metadata
        options = DeletionOptions(
            grace_period_seconds=0, preconditions=DeletionPreconditions(uid=meta.uid)
        )
        failures = 0
        while True:
            try:
                await self._client.delete(RESOURCE, meta.name, meta.namespace, options=options)
                return
            except StatusError as error:
                # The pod is gone, or another pod has its name.
                if error.code == 404 or (error.code == 409 and "uid" in str(error).lower()):
                    return
                failures = await self._pause(failures, pod, error)
            except OSError as error:
                failures = await self._pause(failures, pod, error)

    def forget(self, uid: str) -> None:
        """Drop the status of a pod that is gone."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            entry.gone = True
            entry.urgent.set()
            entry.written.set()

    def _begin(self, entry: _PendingStatus) -> None:
        if self._tasks is not None and entry.task is None and entry.status is not None:
            entry.task = self._tasks.create_task(self._write_latest(entry))

    async def _write_latest(self, entry: _PendingStatus) -> None:
        """Send a pod's latest status until there is no newer one."""
        failures = 0
        while entry.status is not None and not entry.gone:
            if not entry.urgent.is_set():
                await wait_until_set(entry.urgent, self._clock, DELAY_SECONDS)
            entry.urgent.clear()
            status = entry.status
            try:
                async with self._slots:
                    await self._send(entry, status)
                failures = 0
            except StatusError as error:
                if not _refused(entry, error):
                    failures = await self._pause(failures, entry.pod, error)
                    entry.urgent.set()
                    continue
            except OSError as error:
                failures = await self._pause(failures, entry.pod, error)
                entry.urgent.set()
                continue
            if entry.status is status:
                entry.status = None
        entry.task = None
        entry.written.set()

    async def _send(self, entry: _PendingStatus, status: PodStatus) -> None:
        patch = await beside_loop(entry.pod, status_patch, entry.pod, status)
        if patch is None or entry.gone:
            return
        meta = entry.pod.metadata
        fresh = await self._client.patch(
            RESOURCE,
            meta.name,
            patch,
            meta.namespace,
            form=STRATEGIC_PATCH,
            subresource="status",
            field_manager=MANAGER,
        )
        if _version(fresh) >= _version(entry.pod):
            entry.pod = fresh

    async def _pause(self, failures: int, pod: Pod, error: Exception) -> int:
        if failures == 2:
            log.warning(
                "cannot write pod status pod=%s error=%r; retrying", pod.metadata.name, str(error)
            )
        await self._clock.sleep(RETRIES.delay(failures + 1))
        return failures + 1


def _refused(entry: _PendingStatus, error: StatusError) -> bool:
    """Return whether the server refuses this status for good."""
    if error.code == 404:
        entry.gone = True
        return True
    if error.code in (409, 429, 401) or error.code >= 500:
        return False
    log.error("status refused pod=%s error=%r", entry.pod.metadata.name, str(error))
    return True


def _version(pod: Pod) -> int:
    version = pod.metadata.resourceVersion
    return int(version) if version.isdigit() else 0
