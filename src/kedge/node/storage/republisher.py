"""Publishes mounted volumes again, for drivers with requiresRepublish."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER
from kedge.machinery.clock import Clock
from kedge.node.pod.dependencies import EventSink, VolumeFailure
from kedge.node.storage.mount_records import MountRecord
from kedge.node.storage.pod_storage import PodStorage

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 60.0
"""About as often as the kubelet, which does it when it synchronizes the pod."""
_AT_ONCE: Final = 16
"""Volumes that are published again in parallel: a driver may hang."""


class Republisher:
    """The owner must `run` it."""

    def __init__(
        self,
        storage: PodStorage,
        pod: Callable[[str], Pod | None],
        events: EventSink,
        clock: Clock,
    ) -> None:
        """`pod` returns the pod of a uid while its volumes are mounted."""
        self._storage = storage
        self._pod = pod
        self._events = events
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(PERIOD_SECONDS)
            try:
                due = await self._due()
            except VolumeFailure as error:
                log.warning("volumes not published again error=%r", str(error))
                continue
            turns = asyncio.Semaphore(_AT_ONCE)
            async with asyncio.TaskGroup() as tasks:
                for each in due:
                    tasks.create_task(self._republish(each, turns))

    async def _due(self) -> list[MountRecord]:
        mounted = [each for each in self._storage.records if each.driver and each.path]
        names = {each.driver for each in mounted} - {LOCAL_DRIVER}
        drivers = {each for each in names if await self._storage.requires_republish(each)}
        return [each for each in mounted if each.driver in drivers]

    async def _republish(self, record: MountRecord, turns: asyncio.Semaphore) -> None:
        async with turns:
            pod = self._pod(record.uid)
            volumes = pod.spec.volumes if pod is not None else ()
            volume = next((each for each in volumes if each.name == record.volume), None)
            if pod is None or volume is None:
                return
            try:
                await self._storage.republish(pod, volume)
            except VolumeFailure as error:
                # The volume stays mounted, with what it shows.
                self._events.record(pod, "Warning", error.reason, error.message)
