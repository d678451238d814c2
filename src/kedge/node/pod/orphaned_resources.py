"""Remains: what pods leave behind on the machine, and how it is cleared away."""

import logging
from collections.abc import Iterable

from kedge.node.pod.dependencies import PodDependencies, VolumeFailure
from kedge.node.pod.runtime_cache import RuntimeCache
from kedge.node.runtime.runtime import RuntimeFailure

log = logging.getLogger(__name__)

GRACE = 1.0
"""Seconds that the containers of a pod get of which nothing else is known."""


class OrphanedResources:
    """Clears away everything of pods that are no more."""

    def __init__(self, parts: PodDependencies, observations: RuntimeCache) -> None:
        self._parts = parts
        self._observations = observations

    def uids(self) -> set[str]:
        """Every pod of which there is something."""
        known = self._observations.uids() | self._parts.files.uids()
        parts = self._parts
        return known | set(parts.cgroups.known()) | set(parts.devices.known())

    async def clear(self, living: Iterable[str]) -> None:
        """Clear away all pods but these."""
        for uid in self.uids() - set(living):
            try:
                await self.remove(uid)
            except (RuntimeFailure, VolumeFailure, OSError) as error:
                log.warning("cannot clear away pod uid=%s error=%r", uid, str(error))

    async def remove(self, uid: str) -> None:
        """Clear away one pod: containers and sandboxes, volumes, limits, files."""
        parts, observations = self._parts, self._observations
        seen = observations.of(uid)
        for record in seen.running:
            await parts.runtime.stop_container(record.id, GRACE)
        for sandbox in seen.sandboxes:
            if sandbox.ready:
                await parts.runtime.stop_sandbox(sandbox.id)
            await parts.runtime.remove_sandbox(sandbox.id)
            observations.drop_sandbox(sandbox.id)
        parts.devices.release(uid)
        await parts.volumes.unmount(uid)
        parts.cgroups.remove(uid)
        await parts.user_ids.release(uid)
        parts.files.remove(uid)
