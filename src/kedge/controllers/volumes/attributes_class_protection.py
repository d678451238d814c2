"""AttributesClassProtectionController: a VolumeAttributesClass stays while claims or volumes use
it."""

from collections.abc import Hashable
from typing import Final

from kedge.api.builtin.resources import built_in
from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.model import Document
from kedge.api.storage_v1 import persistent_volume
from kedge.api.storage_v1.persistent_volume import VOLUMES, PersistentVolume
from kedge.client.client import Client
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.controllers.volumes.finalizer import with_finalizer, without_finalizer
from kedge.machinery.clock import Clock

ATTRIBUTES_CLASSES: Final = built_in("storage.k8s.io", "volumeattributesclasses")
VAC_PROTECTION: Final = "kubernetes.io/vac-protection"


class AttributesClassProtectionController:
    """Adds the finalizer to VolumeAttributesClasses, and removes it from unused deleted ones."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._classes = shared.of(ATTRIBUTES_CLASSES)
        claims, volumes = shared.of(CLAIMS), shared.viewed(VOLUMES, persistent_volume.decode)
        self._wanted = claims.by(_wanted)
        self._current = claims.by(_current)
        self._volumes = volumes.by(_of_volume)
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "volumeattributesclass-protection", self._reconcile, clock
        )
        self._classes.follow(self._changed)
        claims.follow(self._claim_changed)
        volumes.follow(self._volume_changed)

    async def run(self) -> None:
        await self._loop.run()

    def _changed(self, before: Document | None, now: Document | None) -> None:
        if now is not None:
            self._loop.add(key_of(now))

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None
    ) -> None:
        if before is not None:
            self._look_at(_wanted(before))
            self._look_at(_current(before))

    def _volume_changed(
        self, before: PersistentVolume | None, now: PersistentVolume | None
    ) -> None:
        if before is not None:
            self._look_at(_of_volume(before))

    def _look_at(self, name: Hashable | None) -> None:
        if isinstance(name, str):
            self._loop.add(Key("", name))

    async def _reconcile(self, key: Key) -> None:
        found = self._classes.get(key.name)
        if found is None:
            return
        finalizers = with_finalizer(found, VAC_PROTECTION)
        if finalizers is None and not self._is_used(key.name):
            finalizers = without_finalizer(found, VAC_PROTECTION)
        if finalizers is None:
            return
        meta = found.metadata
        known = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
        patch = {"metadata": {**known, "finalizers": [*finalizers] or None}}
        await self._client.patch(ATTRIBUTES_CLASSES, meta.name, patch)

    def _is_used(self, name: str) -> bool:
        return any(each.count(name) for each in (self._wanted, self._current, self._volumes))


def _wanted(claim: PersistentVolumeClaim) -> Hashable | None:
    return claim.spec.volumeAttributesClassName or None


def _current(claim: PersistentVolumeClaim) -> Hashable | None:
    return claim.status.currentVolumeAttributesClassName or None


def _of_volume(volume: PersistentVolume) -> Hashable | None:
    return volume.spec.volumeAttributesClassName or None
