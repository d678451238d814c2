"""Mounts the claims of pods, by drivers or as paths of the machine."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NoReturn, Protocol
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.volume import HostPathVolumeSource, Volume
from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER
from kedge.node.pod.dependencies import EventSink, ThisNode, VolumeFailure
from kedge.node.storage import group_ownership
from kedge.node.storage.driver_catalog import DriverCatalog
from kedge.node.storage.mount_records import MountRecord, MountRecords, new_record
from kedge.node.storage.nfs_mount import NFS_DRIVER
from kedge.node.storage.volume_driver import (
    DriverError,
    DriverFeature,
    DriverVolume,
    MountContext,
    VolumeDriver,
    VolumeUsage,
)
from kedge.node.storage.volume_lookup import (
    FoundVolume,
    VolumeLookup,
    check_mode,
    driver_volume,
)
from kedge.node.storage.volume_objects import CsiPart, HostPathPart, LocalPart
from kedge.node.volumes import host_path

log = logging.getLogger(__name__)

_OWNERSHIP: Final = ThreadPoolExecutor(2, "volume-ownership")
STAGED: Final = "plugins/kubernetes.io/csi"
BLOCK_DEVICES: Final = f"{STAGED}/volumeDevices"
OWN_STAGED: Final = "staged"
"""Mounts of kedge's own volumes, in the directory of the node."""


class MountContexts(Protocol):
    """Collects the further arguments of drivers: secrets, attachments, tokens."""

    async def is_group_applied(self, volume: DriverVolume) -> bool:
        """Return whether the agent gives the volume to the pod's fsGroup."""
        ...

    async def needs_attachment(self, volume: DriverVolume) -> bool: ...

    async def requires_republish(self, driver: str) -> bool: ...

    async def expand_secrets(self, source: CsiPart) -> Mapping[str, str]:
        """Raises DriverError."""
        ...

    async def of_stage(self, found: FoundVolume, volume: DriverVolume) -> MountContext:
        """Raises VolumeFailure, e.g. while the volume is not attached."""
        ...

    async def of_publish(
        self, pod: Pod, found: FoundVolume, volume: DriverVolume
    ) -> MountContext: ...


class PodStorage:
    """The claims of one node's pods, and its inline CSI volumes."""

    def __init__(
        self,
        records: MountRecords,
        root: Path,
        own: Path,
        lookup: VolumeLookup,
        drivers: DriverCatalog,
        contexts: MountContexts,
        this: ThisNode,
        events: EventSink,
    ) -> None:
        """`root` is the directory that CSI drivers know as the kubelet's, `own` that of the
        agent."""
        self.records = records
        self._root = root
        self._own = own
        self._lookup = lookup
        self._drivers = drivers
        self._contexts = contexts
        self._this = this
        self._events = events
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._gone: set[str] = set()
        """Pods whose volumes are being unmounted."""
        self.in_use_changed: Callable[[], Awaitable[None]] | None = None
        """Called before the first mount of an attached volume and after its last unmount."""
        self.changed: Callable[[str], None] = lambda volume: None
        """Called with the name of a PersistentVolume that a pod has mounted or unmounted."""

    # Mount.

    async def mount(self, pod: Pod, volume: Volume) -> None:
        """Mount a volume of a pod. Idempotent. Raises VolumeFailure with the whole text of the
        event."""
        found = await self._lookup.find(pod, volume, self._this.node)
        check_mode(pod, volume, found)
        self._gone.discard(pod.metadata.uid)
        match found.source:
            case HostPathPart():
                self._mount_path(pod, volume, found)
            case LocalPart(path):
                self._mount_path(pod, volume, found)
                await self._give_local(pod, found, path)
            case _:
                await self._mount_by_driver(pod, volume, found)

    def _mount_path(self, pod: Pod, volume: Volume, found: FoundVolume) -> None:
        source = found.source
        assert isinstance(source, HostPathPart | LocalPart)
        if isinstance(source, HostPathPart):
            try:
                host_path.check(HostPathVolumeSource(path=source.path, type=source.type))
            except VolumeFailure as error:
                _failed(found, error.message)
        elif not Path(source.path).exists():
            raise VolumeFailure(
                "FailedMount",
                f'MountVolume.NewMounter initialization failed for volume "{found.name}" :'
                f' path "{source.path}" does not exist',
            )
        record = replace(new_record(pod, volume, found), path=source.path)
        self._check_single_pod(record, found)
        self._write(record, found)

    async def _mount_by_driver(self, pod: Pod, volume: Volume, found: FoundVolume) -> None:
        wanted = driver_volume(found, pod.metadata.uid)
        record = self._placed(new_record(pod, volume, found), wanted)
        async with self._lock(record.key):
            self._check_single_pod(record, found)
            if self.records.find(record.uid, record.volume) is None:
                # Without a driver nothing can be mounted, and no later driver has to unmount it.
                self._driver(found, wanted)
            needs_attachment = await self._contexts.needs_attachment(wanted)
            record = replace(record, is_attached=needs_attachment)
            # The record before the deed: from here on the volume may be mounted.
            self._write(record, found)
            if needs_attachment and self.in_use_changed is not None:
                await self.in_use_changed()
            driver = await self._stage(pod, found, wanted, record)
            path = await self._publish(pod, found, wanted, record, driver)
            self._write(replace(record, path=str(path)), found)
        self.changed(found.name)

    async def _stage(
        self, pod: Pod, found: FoundVolume, wanted: DriverVolume, record: MountRecord
    ) -> VolumeDriver:
        driver = self._driver(found, wanted)
        try:
            if not wanted.is_inline and DriverFeature.STAGES in await driver.features():
                context = await self._contexts.of_stage(found, wanted)
                context = await group_ownership.delegated(context, pod, wanted, driver)
                staging = Path(record.staging)
                _make(staging)
                await driver.stage(wanted, staging, context)
            return driver
        except (DriverError, OSError) as error:
            raise _not_staged(found, wanted, error) from error

    def _driver(self, found: FoundVolume, wanted: DriverVolume) -> VolumeDriver:
        try:
            return self._drivers.find(wanted.driver)
        except DriverError as error:
            raise _not_staged(found, wanted, error) from error

    async def _publish(
        self,
        pod: Pod,
        found: FoundVolume,
        wanted: DriverVolume,
        record: MountRecord,
        driver: VolumeDriver,
    ) -> Path:
        step = "MapVolume.MapPodDevice" if wanted.is_block else "MountVolume.SetUp"
        reason = "FailedMapVolume" if wanted.is_block else "FailedMount"
        try:
            context = await self._contexts.of_publish(pod, found, wanted)
            context = await group_ownership.delegated(context, pod, wanted, driver)
            target = Path(record.target)
            _make(target.parent)
            path = await driver.publish(wanted, Path(record.staging), target, context)
            if (
                not wanted.is_block
                and context.group < 0
                and await self._contexts.is_group_applied(wanted)
            ):
                await self._give(pod, path, read_only=wanted.is_read_only)
            return path
        except (DriverError, OSError) as error:
            text = f'{step} failed for volume "{found.name}" : {error}'
            raise VolumeFailure(reason, text) from error

    async def _give_local(self, pod: Pod, found: FoundVolume, path: str) -> None:
        if found.is_block:
            return
        try:
            await self._give(pod, _resolved(path), read_only=found.is_read_only)
        except OSError as error:
            _failed(found, str(error))

    async def _give(self, pod: Pod, path: Path, *, read_only: bool) -> None:
        """Apply the pod's fsGroup; not to read-only volumes, which a driver may have mounted so.
        Raises OSError."""
        security, group = pod.spec.securityContext, group_ownership.fs_group(pod)
        if group < 0 or read_only:
            return
        policy = security.fsGroupChangePolicy if security is not None else None
        uid = pod.metadata.uid

        def work() -> None:
            if policy == "OnRootMismatch" and group_ownership.is_owned(path, group):
                return
            group_ownership.give(path, group, is_stopped=lambda: uid in self._gone)

        try:
            await asyncio.get_running_loop().run_in_executor(_OWNERSHIP, work)
        except PermissionError:
            text = f"cannot change the group of volumes to {group}: the agent is not root"
            self._events.record(pod, "Warning", "NotEnforced", text)

    def _placed(self, record: MountRecord, wanted: DriverVolume) -> MountRecord:
        """Return the record with the paths that drivers expect from a kubelet."""
        root, name, uid = self._root, wanted.name, record.uid
        digest = hashlib.sha256(wanted.handle.encode()).hexdigest()
        if wanted.driver in (LOCAL_DRIVER, NFS_DRIVER):
            staging = self._own / OWN_STAGED / digest
            target = self._own / "pods" / uid / "volumes" / record.volume
        elif wanted.is_block:
            staging = root / BLOCK_DEVICES / "staging" / name
            target = root / BLOCK_DEVICES / "publish" / name / uid
        else:
            staging = root / STAGED / wanted.driver / digest / "globalmount"
            target = root / "pods" / uid / "volumes/kubernetes.io~csi" / name / "mount"
        return replace(
            record,
            driver=wanted.driver,
            handle=wanted.handle,
            staging="" if wanted.is_inline else str(staging),
            target=str(target),
        )

    def _check_single_pod(self, record: MountRecord, found: FoundVolume) -> None:
        if "ReadWriteOncePod" not in record.access_modes:
            return
        if any(each.uid != record.uid for each in self.records.others(record)):
            _failed(
                found,
                "volume uses the ReadWriteOncePod access mode and is already in use by another pod",
            )

    def _write(self, record: MountRecord, found: FoundVolume) -> None:
        try:
            self.records.write(record)
        except OSError as error:
            _failed(found, f"cannot record the mount: {error.strerror}")

    # Repeat.

    async def requires_republish(self, driver: str) -> bool:
        """Return whether a driver wants NodePublishVolume again and again, for volumes that show
        tokens or other facts that change. Raises VolumeFailure."""
        return await self._contexts.requires_republish(driver)

    async def republish(self, pod: Pod, volume: Volume) -> None:
        """Publish a mounted volume again, at the same path. Raises VolumeFailure; the volume stays
        mounted then."""
        record = self.find(pod.metadata.uid, volume.name)
        if record is None or not record.driver:
            return
        found = await self._lookup.find(pod, volume, self._this.node)
        wanted = driver_volume(found, pod.metadata.uid)
        async with self._lock(record.key):
            if self.find(record.uid, record.volume) is None or record.uid in self._gone:
                return
            driver = self._driver(found, wanted)
            await self._publish(pod, found, wanted, record, driver)

    # Unmount.

    async def unmount(self, uid: str) -> None:
        """Unmount all volumes of a pod. Idempotent. Raises VolumeFailure."""
        found = self.records.of_pod(uid)
        if not found:
            return
        self._gone.add(uid)
        for record in found:
            async with self._lock(record.key):
                await self._unmount(record)
        self._gone.discard(uid)

    async def _unmount(self, record: MountRecord) -> None:
        if record.driver:
            try:
                driver = self._drivers.find(record.driver)
                await driver.unpublish(record.handle, Path(record.target))
                if not self.records.others(record) and record.staging:
                    if DriverFeature.STAGES in await driver.features():
                        await driver.unstage(record.handle, Path(record.staging))
                    self._drop_empty(Path(record.staging))
                self._drop_empty(Path(record.target))
            except (DriverError, OSError) as error:
                text = f'UnmountVolume.TearDown failed for volume "{record.name}" : {error}'
                raise VolumeFailure("FailedUnmount", text) from error
        self.records.remove(record)
        self.changed(record.name)
        if record.is_attached and self.in_use_changed is not None:
            await self.in_use_changed()

    # Facts.

    def find(self, uid: str, volume: str) -> MountRecord | None:
        """Return a mounted volume of a pod."""
        found = self.records.find(uid, volume)
        return found if found is not None and found.path else None

    def in_use(self) -> list[str]:
        """Return the attached volumes that pods of this node use, as the Node lists them."""
        return sorted(
            {
                f"kubernetes.io/csi/{each.driver}^{each.handle}"
                for each in self.records
                if each.is_attached
            }
        )

    async def usage(self, record: MountRecord) -> VolumeUsage | None:
        """Return the usage that the driver of a volume reports; None if it reports none."""
        if not record.driver:
            return None
        try:
            driver = self._drivers.find(record.driver)
            if DriverFeature.REPORTS_USAGE not in await driver.features():
                return None
            return await driver.usage(record.handle, Path(record.path), Path(record.staging))
        except DriverError as error:
            log.debug("no usage volume=%s error=%r", record.name, str(error))
            return None

    def _drop_empty(self, place: Path) -> None:
        """Remove a directory and the empty ones above it, up to the node's own."""
        tops = (self._root / "pods", self._root / STAGED, self._own / OWN_STAGED)
        for each in (place, *place.parents):
            if not any(top in each.parents for top in tops):
                return
            try:
                each.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return

    def lock(self, driver: str, handle: str) -> asyncio.Lock:
        """Return the lock under which calls for a volume are made."""
        return self._lock((driver, handle))

    def _lock(self, key: tuple[str, str]) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


def _not_staged(found: FoundVolume, wanted: DriverVolume, error: Exception) -> VolumeFailure:
    step = "MapVolume.SetUpDevice" if wanted.is_block else "MountVolume.MountDevice"
    reason = "FailedMapVolume" if wanted.is_block else "FailedMount"
    return VolumeFailure(reason, f'{step} failed for volume "{found.name}" : {error}')


def _failed(found: FoundVolume, reason: str) -> NoReturn:
    text = f'MountVolume.SetUp failed for volume "{found.name}" : {reason}'
    raise VolumeFailure("FailedMount", text)


def _resolved(path: str) -> Path:
    """Return a path without links: people may link to a disk, and the walk follows no link."""
    return Path(path).resolve()


def _make(directory: Path) -> None:
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
