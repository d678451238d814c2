"""The driver of kedge's own volumes, on the disk of the node. It runs in the agent's process."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from kedge.api.storage_v1.local_volumes import COPY_OF, LOCAL_DATA, LOCAL_DRIVER
from kedge.machinery.quantity import Format, Quantity
from kedge.node.storage import loop_device, tree_copy, volume_image
from kedge.node.storage.local_store import LocalVolume, LocalVolumeRecord, LocalVolumeStore
from kedge.node.storage.volume_driver import (
    DriverError,
    DriverFeature,
    DriverVolume,
    MountContext,
    VolumeUsage,
)
from kedge.node.volumes import mounts
from kedge.node.volumes.usage import disk_usage
from kedge.supervisor.kernel import libc

T = TypeVar("T")

ENFORCE: Final = "enforce"
"""The parameter of a storage class: "true" requires sizes that are enforced, "false" takes
directories."""
_WORK: Final = ThreadPoolExecutor(4, "local-volumes")
_REMOVALS: Final = ThreadPoolExecutor(1, "local-volume-removal")
_COPIES: Final = ThreadPoolExecutor(1, "local-volume-copy")
_FEATURES: Final = frozenset(
    (DriverFeature.STAGES, DriverFeature.EXPANDS, DriverFeature.REPORTS_USAGE)
)

Shortfall = Callable[[DriverVolume, str], None]
"""(volume, reason): the size of a volume is not enforced."""

Mark = Callable[[DriverVolume], Awaitable[None]]
"""Records in the API that the data of a volume exist. Raises DriverError."""


class LocalDriver:
    """Fulfils volume_driver.VolumeDriver.

    A volume is a sparse image where its size can be enforced, else a directory. A directory needs
    no mount: pods get the directory itself.

    A volume is made, then marked in the API, then given to a pod. So a volume without the mark has
    never held data and may be made; the data of one with the mark are never replaced.
    """

    name = LOCAL_DRIVER

    def __init__(
        self, store: LocalVolumeStore, *, may_mount: bool, shortfall: Shortfall, mark: Mark
    ) -> None:
        self._store = store
        self._may_mount = may_mount
        self._shortfall = shortfall
        self._mark = mark
        self._lack: str | None = None

    async def features(self) -> frozenset[DriverFeature]:
        return _FEATURES

    async def stage(self, volume: DriverVolume, staging: Path, context: MountContext) -> None:
        await _off_loop(self._stage, volume, staging)
        if not volume.made_on:
            await self._mark(volume)

    async def publish(
        self, volume: DriverVolume, staging: Path, target: Path, context: MountContext
    ) -> Path:
        return await _off_loop(self._publish, volume, staging, target)

    async def unpublish(self, handle: str, target: Path) -> None:
        await _off_loop(_take_off, target)

    async def unstage(self, handle: str, staging: Path) -> None:
        await _off_loop(self._unstage, handle, staging)

    async def expand(
        self, volume: DriverVolume, path: Path, staging: Path, context: MountContext
    ) -> int:
        return await _off_loop(self._expand, volume, staging)

    async def usage(self, handle: str, path: Path, staging: Path) -> VolumeUsage:
        return await _off_loop(self._usage, handle, path)

    async def capacity(self, attributes: Mapping[str, str]) -> int:
        return await _off_loop(self._store.free_bytes)

    async def delete(self, handle: str) -> None:
        await _off_loop(self._store.remove, handle, pool=_REMOVALS)

    async def copy(self, volume: DriverVolume, source: str) -> None:
        """Make a volume with the content of another one, which no pod uses."""
        await _off_loop(self._copy, volume, source, pool=_COPIES)
        await self._mark(volume)

    # In threads.

    def _stage(self, volume: DriverVolume, staging: Path) -> None:
        found = self._found_or_made(volume)
        if not found.record.is_image:
            if not volume.is_block and volume.attributes.get(ENFORCE) != "false":
                self._shortfall(volume, self._why_not(volume))
            return
        added = volume.size - found.record.size
        if 0 < added <= self._store.free_bytes() and not loop_device.attached(found.image):
            found = self._grown_offline(found, volume.size)
        if found.record.is_block:
            _, opened = loop_device.attach(found.image, is_kept=True)
            os.close(opened)
        else:
            volume_image.mount(found.image, staging, volume.mount_options)
            volume_image.open_new(staging)

    def _found_or_made(self, volume: DriverVolume) -> LocalVolume:
        found = self._store.find(volume.handle)
        if found is not None and not found.content.exists():
            raise _missing(volume, found.content)
        if found is None and volume.made_on:
            raise _missing(volume, self._store.directory / volume.handle)
        if found is None and COPY_OF in volume.attributes:
            raise DriverError("the content of the volume is being copied: see the claim's events")
        return found or self._make(volume)

    def _copy(self, volume: DriverVolume, source: str) -> None:
        if self._store.find(volume.handle) is not None:
            return
        origin = self._store.find(source)
        if origin is None or not origin.content.exists():
            place = self._store.directory / source if origin is None else origin.content
            raise DriverError(f"the data to copy are missing: {place} does not exist")
        record = origin.record
        if volume.attributes.get(ENFORCE) == "true" and not record.is_image:
            raise DriverError(
                "the size of a copy of a directory cannot be enforced: use the class of its source"
            )
        needed, free = disk_usage([origin.directory]), self._store.free_bytes()
        if needed > free:
            raise DriverError(
                f"the node has {_amount(free)} left for local volumes, and the copy needs"
                f" {_amount(needed)}"
            )
        if not record.is_image:
            record = replace(record, size=volume.size)
        name = origin.content.name
        self._store.make(
            volume.handle, record, lambda place: tree_copy.copy(origin.content, place / name)
        )

    def _make(self, volume: DriverVolume) -> LocalVolume:
        why = self._why_not(volume)
        if why and volume.is_block:
            raise DriverError(f"volumes of mode Block need loop devices: {why}", is_final=True)
        if why and volume.attributes.get(ENFORCE) == "true":
            raise DriverError(f"the size of the volume cannot be enforced: {why}", is_final=True)
        free = self._store.free_bytes()
        if volume.size > free:
            wanted, left = (_amount(each) for each in (volume.size, free))
            raise DriverError(
                f"the node has {left} left for local volumes, and the volume needs {wanted}"
            )
        record = LocalVolumeRecord(volume.size, is_image=not why, is_block=volume.is_block)
        return self._store.make(volume.handle, record)

    def _why_not(self, volume: DriverVolume) -> str:
        """Return why a new volume is a directory; empty if it is an image."""
        if volume.attributes.get(ENFORCE) == "false" and not volume.is_block:
            return 'the class has the parameter enforce: "false"'
        if self._lack is None:
            # Not at the start: most nodes never have a volume.
            self._lack = "" if self._may_mount else "the agent has no right to mount"
            self._lack = self._lack or volume_image.lack()
        if self._lack or volume.is_block or volume.attributes.get(ENFORCE) == "true":
            return self._lack
        if not volume_image.grows_online():
            return (
                "the kernel does not let the agent grow a mounted file system (CAP_SYS_RESOURCE);"
                ' a class with the parameter enforce: "true" has sizes that grow at the next start'
                " of a pod"
            )
        return ""

    def _grown_offline(self, found: LocalVolume, size: int) -> LocalVolume:
        if found.record.is_block:
            os.truncate(found.image, size)
        else:
            volume_image.grow(found.image, size, None)
        return self._store.resize(found, size)

    def _publish(self, volume: DriverVolume, staging: Path, target: Path) -> Path:
        found = self._store.find(volume.handle)
        if found is None:
            raise DriverError(f"the local volume {volume.handle} is not staged")
        if found.record.is_block:
            device = loop_device.attached(found.image)
            if not device:
                raise DriverError(f"the local volume {volume.handle} is not staged")
            return Path(device)
        if found.record.is_image:
            if not mounts.mounted(staging):
                raise DriverError(f"the local volume {volume.handle} is not staged")
            return staging
        if volume.mount_options:
            return self._bound(found, volume, target)
        return found.data

    def _bound(self, found: LocalVolume, volume: DriverVolume, target: Path) -> Path:
        """Mount the directory once more, with options."""
        if not self._may_mount:
            raise DriverError("mount options need the right to mount, which the agent has not")
        flags, data = volume_image.mount_flags(volume.mount_options)
        if data:
            raise DriverError(f"a directory cannot be mounted with {','.join(data)}")
        target.mkdir(mode=0o700, exist_ok=True)
        if not mounts.mounted(target):
            libc.mount(str(found.data), str(target), flags=libc.MS_BIND)
            libc.mount("", str(target), flags=libc.MS_BIND | libc.MS_REMOUNT | flags)
        return target

    def _unstage(self, handle: str, staging: Path) -> None:
        volume_image.unmount(staging)
        found = self._store.find(handle)
        if found is not None and found.record.is_block:
            loop_device.detach(found.image)
        with contextlib.suppress(FileNotFoundError):
            staging.rmdir()

    def _expand(self, volume: DriverVolume, staging: Path) -> int:
        found = self._store.find(volume.handle)
        if found is None:
            raise DriverError(f"the local volume {volume.handle} does not exist")
        if volume.size <= found.record.size:
            return found.record.size
        added = volume.size - found.record.size
        if added > (free := self._store.free_bytes()):
            raise DriverError(
                f"the node has {_amount(free)} left for local volumes, and the volume needs"
                f" {_amount(added)} more",
                is_infeasible=True,
            )
        if found.record.is_block:
            os.truncate(found.image, volume.size)
            loop_device.grow(loop_device.attached(found.image))
        elif found.record.is_image and not volume_image.grow(found.image, volume.size, staging):
            raise DriverError(
                "the kernel grows this volume only while no pod uses it: delete the pods that use"
                " the claim"
            )
        self._store.resize(found, volume.size)
        return volume.size

    def _usage(self, handle: str, path: Path) -> VolumeUsage:
        found = self._store.find(handle)
        if found is None:
            raise DriverError(f"the local volume {handle} does not exist")
        if found.record.is_block:
            return VolumeUsage(capacity_bytes=os.stat(found.image).st_size)
        if not found.record.is_image:
            # The disk is not the volume's; its content is counted elsewhere, slowly.
            whole = of_file_system(found.data)
            return VolumeUsage(
                capacity_bytes=found.record.size,
                available_bytes=min(whole.available_bytes, found.record.size),
                inodes_free=whole.inodes_free,
            )
        return of_file_system(path)


def of_file_system(path: Path) -> VolumeUsage:
    """Return the usage of the whole file system of a path."""
    found = os.statvfs(path)
    return VolumeUsage(
        capacity_bytes=found.f_blocks * found.f_frsize,
        used_bytes=(found.f_blocks - found.f_bfree) * found.f_frsize,
        available_bytes=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        inodes_used=found.f_files - found.f_ffree,
        inodes_free=found.f_ffree,
    )


def _missing(volume: DriverVolume, place: Path) -> DriverError:
    made = f", made on node {volume.made_on}," if volume.made_on else ""
    return DriverError(
        f"the data of the volume{made} are missing: {place} does not exist. Restore it from a"
        " backup. If the data are lost, delete the claim and create it again, or begin with an"
        f" empty volume: kubectl annotate pv {volume.name} {LOCAL_DATA}-"
    )


def _take_off(target: Path) -> None:
    while mounts.mounted(target):
        libc.unmount(str(target), 0)
    with contextlib.suppress(FileNotFoundError):
        target.rmdir()


def _amount(size: int) -> str:
    return str(Quantity.from_value(size, Format.BINARY_SI))


async def _off_loop(
    work: Callable[..., T], *arguments: object, pool: ThreadPoolExecutor = _WORK
) -> T:
    """Run work in a thread, to its end even if the caller is cancelled."""
    future = asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
    try:
        return await asyncio.shield(future)
    except OSError as error:
        raise DriverError(f"{error.strerror or error}") from error
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await future
        raise
