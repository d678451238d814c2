"""VolumeWrites: patches of volumes and claims that leave the fields of others alone."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1 import persistent_volume
from kedge.api.storage_v1.persistent_volume import VOLUMES, PersistentVolume
from kedge.client.client import MERGE_PATCH, Client, path_of
from kedge.controllers.shared_informers import ObjectCache
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time


class VolumeWrites:
    """Writes to volumes and claims. Wait with `known` before deciding again."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        volumes: ObjectCache[PersistentVolume],
        claims: ObjectCache[PersistentVolumeClaim],
    ) -> None:
        self._client = client
        self._clock = clock
        self._volumes = volumes
        self._claims = claims

    async def create(self, document: Mapping[str, Any]) -> PersistentVolume:
        reply = await self._client.send(
            "POST", path_of(VOLUMES), body=msgspec.json.encode(document)
        )
        return persistent_volume.decode(reply.body)

    async def patch_volume(
        self, volume: PersistentVolume, patch: dict[str, Any], subresource: str = ""
    ) -> PersistentVolume:
        """Change a volume, unless another writer has changed it since it was read."""
        meta = volume.metadata
        known = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
        patch = {**patch, "metadata": {**patch.get("metadata", {}), **known}}
        reply = await self._client.send(
            "PATCH",
            path_of(VOLUMES, "", meta.name, subresource),
            body=msgspec.json.encode(patch),
            content=MERGE_PATCH,
        )
        return persistent_volume.decode(reply.body)

    async def known(
        self, volume: PersistentVolume | None = None, claim: PersistentVolumeClaim | None = None
    ) -> None:
        """Return when the caches have these writes."""
        if volume is not None:
            await self._volumes.written(volume)
        if claim is not None:
            await self._claims.written(claim)

    async def set_phase(
        self, volume: PersistentVolume, phase: str, message: str = ""
    ) -> PersistentVolume:
        """Set the phase of a volume, unless it has it."""
        if (volume.status.phase, volume.status.message) == (phase, message):
            return volume
        status: dict[str, Any] = {"phase": phase, "message": message or None}
        if volume.status.phase != phase:
            status["lastPhaseTransitionTime"] = format_time(self._clock.now())
        return await self.patch_volume(volume, {"status": status}, "status")

    async def patch_claim(
        self, claim: PersistentVolumeClaim, patch: dict[str, Any], subresource: str = ""
    ) -> PersistentVolumeClaim:
        """Change a claim, unless another writer has changed it since it was read."""
        meta = claim.metadata
        known = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
        patch = {**patch, "metadata": {**patch.get("metadata", {}), **known}}
        return await self._client.patch(
            CLAIMS, meta.name, patch, meta.namespace, subresource=subresource
        )

    async def annotate_claim(
        self, claim: PersistentVolumeClaim, annotations: Mapping[str, str | None]
    ) -> PersistentVolumeClaim:
        """Set annotations of a claim, or remove those that are None."""
        return await self.patch_claim(claim, {"metadata": {"annotations": dict(annotations)}})

    async def remove_finalizer(self, volume: PersistentVolume, finalizer: str) -> None:
        left = [each for each in volume.metadata.finalizers if each != finalizer]
        await self.known(
            await self.patch_volume(volume, {"metadata": {"finalizers": left or None}})
        )
