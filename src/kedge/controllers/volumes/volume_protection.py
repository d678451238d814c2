"""VolumeProtectionController: a volume that is bound to a claim stays until the claim is gone."""

from typing import Any

from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.storage_v1 import persistent_volume
from kedge.api.storage_v1.persistent_volume import PV_PROTECTION, VOLUMES, PersistentVolume
from kedge.client.client import Client
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.controllers.volumes.finalizer import with_finalizer, without_finalizer
from kedge.controllers.volumes.volume_steps import BOUND
from kedge.controllers.volumes.volume_writes import VolumeWrites
from kedge.machinery.clock import Clock


class VolumeProtectionController:
    """Adds the finalizer to volumes, and removes it from deleted ones that are not bound."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._volumes = shared.viewed(VOLUMES, persistent_volume.decode)
        self._writes = VolumeWrites(client, clock, self._volumes, shared.of(CLAIMS))
        self._loop: ControllerLoop[Key] = ControllerLoop("pv-protection", self._reconcile, clock)
        self._volumes.follow(self._changed)

    async def run(self) -> None:
        await self._loop.run()

    def _changed(self, before: PersistentVolume | None, now: PersistentVolume | None) -> None:
        if now is not None:
            self._loop.add(key_of(now))

    async def _reconcile(self, key: Key) -> None:
        volume = self._volumes.get(key.name)
        if volume is None:
            return
        if (finalizers := with_finalizer(volume, PV_PROTECTION)) is not None:
            patch: dict[str, Any] = {"metadata": {"finalizers": [*finalizers]}}
            await self._writes.known(await self._writes.patch_volume(volume, patch))
        elif volume.status.phase != BOUND:
            left = without_finalizer(volume, PV_PROTECTION)
            if left is not None:
                patch = {"metadata": {"finalizers": [*left] or None}}
                await self._writes.known(await self._writes.patch_volume(volume, patch))
