"""Orphaned resources: what removed pods have left on the machine."""

import logging
from collections.abc import Iterable

from kedge.node.pod.dependencies import ClaimFailure, PodDependencies, VolumeFailure
from kedge.node.pod.runtime_cache import RuntimeCache
from kedge.node.runtime.runtime import RuntimeFailure

log = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
"""The grace period of containers whose pod spec is lost."""


class OrphanedResources:
    """Finds and removes the resources of pods that do not exist any more."""

    def __init__(self, dependencies: PodDependencies, cache: RuntimeCache) -> None:
        self._dependencies = dependencies
        self._cache = cache

    def uids(self) -> set[str]:
        """Return the uids of all pods that have any resource on the machine."""
        found = self._cache.uids() | self._dependencies.files.uids()
        dependencies = self._dependencies
        holders = (dependencies.cgroups, dependencies.devices, dependencies.claims)
        return found.union(*(each.pod_uids() for each in holders))

    async def remove_all(self, existing: Iterable[str]) -> None:
        """Remove the resources of all pods but the existing ones. A failure is logged, and does
        not prevent removing the others."""
        for uid in self.uids() - set(existing):
            try:
                await self.remove(uid)
            except (RuntimeFailure, VolumeFailure, ClaimFailure, OSError) as error:
                log.warning("cannot remove orphaned pod uid=%s error=%r", uid, str(error))

    async def remove(self, uid: str) -> None:
        """Remove all resources of one pod.

        In the order of use: containers, sandboxes, devices, volumes, cgroup, user ids. Then the
        files, because the directory of a pod is how a restarted agent finds the rest. Resource
        claims have a checkpoint of their own and are last: their driver may be away for long.
        """
        dependencies = self._dependencies
        observed = self._cache.of(uid)
        for record in observed.running:
            await dependencies.runtime.stop_container(record.id, GRACE_SECONDS)
        for sandbox in observed.sandboxes:
            if sandbox.ready:
                await dependencies.runtime.stop_sandbox(sandbox.id)
            await dependencies.runtime.remove_sandbox(sandbox.id)
            self._cache.remove_sandbox(sandbox.id)
        dependencies.devices.release(uid)
        await dependencies.volumes.unmount(uid)
        dependencies.cgroups.remove(uid)
        await dependencies.user_ids.release(uid)
        dependencies.files.remove(uid)
        await dependencies.claims.unprepare(uid)
