"""Follows PersistentVolumes: copies and deletes local volumes, and grows mounted volumes."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

from kedge.api.core_v1 import persistent_volume_claim
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.references import ObjectReference
from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER, LOCAL_FINALIZER
from kedge.client.client import Client
from kedge.client.workqueue import Backoff, WorkQueue
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError
from kedge.node.pod.dependencies import EventSink, ThisNode, VolumeFailure
from kedge.node.storage import resize_status, volume_copies
from kedge.node.storage.driver_catalog import DriverCatalog
from kedge.node.storage.mount_records import MountRecord
from kedge.node.storage.pod_storage import MountContexts, PodStorage
from kedge.node.storage.volume_copies import VolumeCopies
from kedge.node.storage.volume_driver import (
    DriverError,
    DriverFeature,
    DriverVolume,
    MountContext,
    VolumeDriver,
)
from kedge.node.storage.volume_objects import VOLUME_VIEW, VOLUMES, CsiPart, MountableVolume
from kedge.node.storage.volume_watches import VolumeWatches, own_volumes

log = logging.getLogger(__name__)

_RETRIES: Final = Backoff(first=0.5, most=60.0)
_WORKERS: Final = 4
"""Volumes that grow at the same time."""


class VolumeFollower:
    """The owner must `run` it."""

    def __init__(
        self,
        client: Client,
        storage: PodStorage,
        drivers: DriverCatalog,
        contexts: MountContexts,
        this: ThisNode,
        events: EventSink,
        clock: Clock,
        *,
        node: str,
    ) -> None:
        """`node` is the name of the node, which is not registered yet."""
        self._client = client
        self._storage = storage
        self._drivers = drivers
        self._contexts = contexts
        self._this = this
        self._events = events
        self._clock = clock
        self._node = node
        self._known = VolumeWatches(client, node, clock, self._add)
        self._hold_mounted()
        self._copies = VolumeCopies(storage, drivers, events)
        self._waiting: set[str] = set()
        """Copies that could not be made yet."""
        self._growth, self._removals, self._copying = (
            WorkQueue[str](clock, _RETRIES) for _ in range(3)
        )

    async def run(self) -> None:
        """Run until cancelled. A long deletion or copy does not delay growth."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._known.run())
            for queue in (self._copying, self._removals, *[self._growth] * _WORKERS):
                tasks.create_task(self._work(queue))

    def look_at(self, volume: str) -> None:
        """Look at a volume again: a pod has mounted or unmounted it."""
        self._hold_mounted()
        self._add(volume)
        for name in self._waiting:
            self._copying.add(name)

    def _hold_mounted(self) -> None:
        self._known.hold(
            each.name
            for each in self._storage.records
            if each.claim and each.path and each.driver not in ("", LOCAL_DRIVER)
        )

    def _add(self, name: str) -> None:
        volume = self._known.get(name)
        if volume is None:
            self._waiting.discard(name)
        elif volume.metadata.deletion_timestamp:
            self._removals.add(name)
        elif volume_copies.is_due(volume):
            self._copying.add(name)
        else:
            self._growth.add(name)

    async def _work(self, queue: WorkQueue[str]) -> None:
        while True:
            name = await queue.get()
            try:
                volume = self._known.get(name)
                is_done = volume is None or await self._follow(volume)
            except (DriverError, StatusError, VolumeFailure, OSError) as error:
                if queue.retry(name) == 1:
                    log.warning("volume not followed volume=%s error=%r", name, str(error))
            else:
                if is_done:
                    queue.forget(name)
                else:
                    queue.retry(name)
            finally:
                queue.done(name)

    async def _follow(self, volume: MountableVolume) -> bool:
        """Return False if it is not the node's turn yet."""
        if volume.metadata.deletion_timestamp:
            await self._reclaim(volume)
            return True
        if volume_copies.is_due(volume):
            await self._make_copy(volume)
            return True
        mounted = [
            each
            for each in self._storage.records
            if each.name == volume.metadata.name and each.path
        ]
        if volume.spec.csi is None or not mounted:
            return True
        return await self._expand(volume, mounted)

    async def _make_copy(self, volume: MountableVolume) -> None:
        name = volume.metadata.name
        if not self._is_here(volume):
            return
        self._waiting.add(name)
        await self._copies.make(volume, _wanted(volume))
        self._waiting.discard(name)

    # The end of a local volume.

    async def _reclaim(self, volume: MountableVolume) -> None:
        """Delete the data, then let the object go. The data of a volume with the policy Retain
        stay even if a person deletes the object."""
        if not self._is_ours(volume):
            return
        source = volume.spec.csi
        assert source is not None
        async with self._storage.lock(source.driver, source.volume_handle):
            if self._storage.records.users(source.driver, source.volume_handle):
                return
            current = await self._current(volume)
            if current is None:
                return
            volume = current
            if volume.spec.persistent_volume_reclaim_policy != "Retain":
                await self._delete(volume, source)
            rest = [each for each in volume.metadata.finalizers if each != LOCAL_FINALIZER]
            version = volume.metadata.resource_version
            patch = {"metadata": {"finalizers": rest, "resourceVersion": version}}
            try:
                await self._client.patch(VOLUMES, volume.metadata.name, patch)
            except StatusError as error:
                # A newer version of the object is on its way.
                if error.code not in (404, 409):
                    raise

    async def _current(self, volume: MountableVolume) -> MountableVolume | None:
        """Return the volume as the server has it now: its policy may have changed since it was
        deleted. None if it is another one, or gone."""
        where = f"metadata.name={volume.metadata.name}"
        labels = own_volumes(self._node)
        found = (await self._client.list_as(VOLUME_VIEW, labels=labels, fields=where)).items
        same = [each for each in found if each.metadata.uid == volume.metadata.uid]
        return same[0] if same and self._is_ours(same[0]) else None

    async def _delete(self, volume: MountableVolume, source: CsiPart) -> None:
        try:
            await self._drivers.find(source.driver).delete(source.volume_handle)
        except DriverError as error:
            meta = volume.metadata
            about = ObjectReference(
                apiVersion="v1", kind="PersistentVolume", name=meta.name, uid=meta.uid
            )
            self._events.record(about, "Warning", "VolumeFailedDelete", str(error))
            raise

    def _is_ours(self, volume: MountableVolume) -> bool:
        source = volume.spec.csi
        if source is None or source.driver != LOCAL_DRIVER:
            return False
        if LOCAL_FINALIZER not in volume.metadata.finalizers:
            return False
        # Other finalizers first: protection waits until no claim is bound to the volume.
        if any(each == "kubernetes.io/pv-protection" for each in volume.metadata.finalizers):
            return False
        return self._is_here(volume)

    def _is_here(self, volume: MountableVolume) -> bool:
        affinity = volume.spec.node_affinity
        terms = affinity.required.nodeSelectorTerms if affinity and affinity.required else ()
        own = self._this.node.metadata.labels.get("kubernetes.io/hostname", "")
        return any(
            each.key == "kubernetes.io/hostname" and own in each.values
            for term in terms
            for each in term.matchExpressions
        )

    # Growth.

    async def _expand(self, volume: MountableVolume, mounted: list[MountRecord]) -> bool:
        """Return False if the claim is in the hands of its resizer, whose writes the node does not
        follow."""
        claim = await self._shrunken_claim(volume)
        if claim is None:
            return True
        record = mounted[0]
        driver = self._drivers.find(record.driver)
        if not resize_status.may_grow(claim, record.driver):
            return False
        if DriverFeature.EXPANDS in await driver.features():
            volume = await self._grow(volume, claim, record, driver)
        size = str(volume.spec.capacity.get("storage"))
        await self._patch(claim, resize_status.finished(claim, size))
        self._tell_growth(volume, claim, mounted)
        return True

    async def _shrunken_claim(self, volume: MountableVolume) -> PersistentVolumeClaim | None:
        """Return the claim of a volume if its capacity is smaller than that of the volume."""
        owner = volume.spec.claim_ref
        if owner is None:
            return None
        claim = await self._client.get(
            persistent_volume_claim.RESOURCE, owner.name, owner.namespace
        )
        known = claim.status.capacity.get("storage")
        if claim.metadata.uid != owner.uid or known is None or known.value() >= volume.spec.size:
            return None
        return claim

    def _tell_growth(
        self, volume: MountableVolume, claim: PersistentVolumeClaim, mounted: list[MountRecord]
    ) -> None:
        text = (
            f'MountVolume.NodeExpandVolume succeeded for volume "{volume.metadata.name}"'
            f" {self._this.node.metadata.name}"
        )
        self._events.record(claim, "Normal", "FileSystemResizeSuccessful", text)
        for about in map(_pod_reference, mounted):
            self._events.record(about, "Normal", "FileSystemResizeSuccessful", text)

    async def _grow(
        self,
        volume: MountableVolume,
        claim: PersistentVolumeClaim,
        record: MountRecord,
        driver: VolumeDriver,
    ) -> MountableVolume:
        """Grow to the size that the volume has once the growth is on record; return that volume."""
        await self._patch(claim, resize_status.begun(claim))
        volume = await self._client.get_as(VOLUME_VIEW, volume.metadata.name)
        try:
            async with self._storage.lock(record.driver, record.handle):
                wanted = _wanted(volume)
                path, staging = Path(record.path), Path(record.staging)
                await driver.expand(wanted, path, staging, await self._expansion(volume))
        except DriverError as error:
            now = format_time(self._clock.now())
            await self._patch(claim, resize_status.failed(claim, error, volume.spec.size, now))
            name = volume.metadata.name
            text = f'NodeExpandVolume.NodeExpandVolume failed for volume "{name}" : {error}'
            self._events.record(claim, "Warning", "VolumeResizeFailed", text)
            raise
        return volume

    async def _expansion(self, volume: MountableVolume) -> MountContext:
        source = volume.spec.csi
        assert source is not None
        return MountContext(secrets=await self._contexts.expand_secrets(source))

    async def _patch(self, claim: PersistentVolumeClaim, patch: dict[str, Any]) -> None:
        await self._client.patch(
            persistent_volume_claim.RESOURCE,
            claim.metadata.name,
            patch,
            claim.metadata.namespace,
            subresource="status",
        )


def _wanted(volume: MountableVolume) -> DriverVolume:
    source = volume.spec.csi
    assert isinstance(source, CsiPart)
    return DriverVolume(
        source.driver,
        source.volume_handle,
        volume.metadata.name,
        attributes=source.volume_attributes,
        fs_type=source.fs_type,
        mount_options=volume.spec.mount_options,
        access_modes=volume.spec.access_modes,
        size=volume.spec.size,
        is_block=volume.spec.volume_mode == "Block",
    )


def _pod_reference(record: MountRecord) -> ObjectReference:
    return ObjectReference(
        apiVersion="v1", kind="Pod", namespace=record.namespace, name=record.pod, uid=record.uid
    )
