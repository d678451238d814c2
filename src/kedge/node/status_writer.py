"""Status writer: brings the statuses of pods to the API, the latest of each as soon as possible."""

import asyncio
import logging
from dataclasses import dataclass, field

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.client.client import STRATEGIC_PATCH, Client, DeleteOptions, Preconditions
from kedge.client.workqueue import Backoff
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.status_patch import status_patch
from kedge.node.waits import woken

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Requests that are under way together."""
PATIENCE = 0.5
"""Seconds that a status may wait for one that makes it unnecessary."""
RETRIES = Backoff(first=0.05, most=10.0)
MANAGER = "kubelet"


@dataclass
class _Entry:
    """What is to be told of one pod."""

    pod: Pod
    """As the API has it, to our knowledge."""
    wanted: PodStatus | None = None
    urgent: asyncio.Event = field(default_factory=asyncio.Event)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there is nothing to tell."""
    task: asyncio.Task[None] | None = None
    gone: bool = False
    """There is no such pod any more: whatever is said of it is dropped."""


class StatusWriter:
    """Every pod has at most one request under way, and the next one tells its latest status."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for entry in self._entries.values():
                self._begin(entry)
            await asyncio.Event().wait()

    def know(self, pod: Pod) -> None:
        """This is the pod as the API has it now."""
        entry = self._entries.get(pod.metadata.uid)
        if entry is not None and _version(pod) >= _version(entry.pod):
            entry.pod = pod

    def write(self, pod: Pod, status: PodStatus, *, urgent: bool = True) -> None:
        """Tell a pod's status; one that is not urgent waits a little for the next."""
        entry = self._entries.get(pod.metadata.uid)
        if entry is None:
            entry = self._entries[pod.metadata.uid] = _Entry(pod)
        if entry.gone:
            return
        entry.wanted = status
        entry.told.clear()
        if urgent:
            entry.urgent.set()
        self._begin(entry)

    async def flush(self, uid: str) -> None:
        """Return when everything told of a pod has arrived, or the pod is gone."""
        entry = self._entries.get(uid)
        if entry is not None and entry.wanted is not None:
            entry.urgent.set()
            await entry.told.wait()

    async def delete(self, pod: Pod) -> None:
        """Let a pod's object go, all of the pod having ended."""
        meta = pod.metadata
        options = DeleteOptions(grace_period_seconds=0, preconditions=Preconditions(uid=meta.uid))
        failures = 0
        while True:
            try:
                await self._client.delete(RESOURCE, meta.name, meta.namespace, options=options)
                return
            except StatusError as error:
                # Gone, or another pod has taken the name.
                if error.code == 404 or (error.code == 409 and "uid" in str(error).lower()):
                    return
                failures = await self._pause(failures, pod, error)
            except OSError as error:
                failures = await self._pause(failures, pod, error)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            entry.gone = True
            entry.urgent.set()
            entry.told.set()

    def _begin(self, entry: _Entry) -> None:
        if self._tasks is not None and entry.task is None and entry.wanted is not None:
            entry.task = self._tasks.create_task(self._tell(entry))

    async def _tell(self, entry: _Entry) -> None:
        """Send a pod's statuses until there are no more."""
        failures = 0
        while entry.wanted is not None and not entry.gone:
            if not entry.urgent.is_set():
                await woken(entry.urgent, self._clock, PATIENCE)
            entry.urgent.clear()
            wanted = entry.wanted
            try:
                async with self._slots:
                    await self._send(entry, wanted)
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
            if entry.wanted is wanted:
                entry.wanted = None
        entry.task = None
        entry.told.set()

    async def _send(self, entry: _Entry, status: PodStatus) -> None:
        patch = status_patch(entry.pod, status)
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
            log.warning("cannot write pod=%s error=%r; trying again", pod.metadata.name, str(error))
        await self._clock.sleep(RETRIES.delay(failures + 1))
        return failures + 1


def _refused(entry: _Entry, error: StatusError) -> bool:
    """Whether the server will not have this status, however often it is sent."""
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
