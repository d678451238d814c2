"""A CSI driver, called over gRPC at its Unix socket."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kedge.deviceplugin.messages import Empty
from kedge.deviceplugin.methods import Method
from kedge.machinery.clock import Clock
from kedge.node.devices.plugin_channel import A, PluginChannel, PluginError, Q
from kedge.node.storage import csi_messages as m
from kedge.node.storage.volume_driver import (
    DriverError,
    DriverFeature,
    DriverVolume,
    MountContext,
    VolumeUsage,
)

CALL_SECONDS: Final = 120.0
_SINGLE_WRITER: Final = 1
_READER: Final = 3
_MULTI_WRITER: Final = 5
_SINGLE_POD: Final = 6
_SINGLE_NODE: Final = 7
_UNCERTAIN: Final = (
    "Canceled",
    "DeadlineExceeded",
    "Unavailable",
    "ResourceExhausted",
    "Aborted",
    "Unknown",
)
"""Codes after which the driver may still be at work."""
_INFEASIBLE: Final = ("InvalidArgument", "OutOfRange", "NotFound")
"""Codes after which the same call fails again."""
_FEATURES: Final = {
    m.STAGE_UNSTAGE: DriverFeature.STAGES,
    m.EXPAND: DriverFeature.EXPANDS,
    m.GET_VOLUME_STATS: DriverFeature.REPORTS_USAGE,
    m.VOLUME_MOUNT_GROUP: DriverFeature.MOUNTS_FOR_GROUP,
    m.SINGLE_NODE_MULTI_WRITER: DriverFeature.SINGLE_NODE_MULTI_WRITER,
}

PathName = Callable[[Path], Path]


class CsiChannel(PluginChannel):
    """A connection to one driver."""

    largest = 4 * 2**20
    """As in Go's gRPC library, which drivers are tested with."""


class CsiDriverClient:
    """Fulfils volume_driver.VolumeDriver. Reconnects when the driver restarts at its socket."""

    def __init__(
        self, name: str, path: Path, clock: Clock, named: PathName = lambda path: path
    ) -> None:
        """`named` returns the driver's name for a path of the machine."""
        self.name = name
        self.path = path
        self._named = named
        self._channel = CsiChannel(f"CSI driver {name}", path, clock)
        self._features: frozenset[DriverFeature] | None = None

    def open(self) -> None:
        """Begin to connect."""
        self._channel.open()

    async def close(self) -> None:
        await self._channel.close()

    async def node_info(self) -> m.NodeInfoResponse:
        return await self._call(m.GET_INFO, Empty())

    async def features(self) -> frozenset[DriverFeature]:
        if self._features is None:
            answer = await self._call(m.GET_CAPABILITIES, Empty())
            numbers = [each.rpc.type for each in answer.capabilities if each.rpc is not None]
            self._features = frozenset(_FEATURES[each] for each in numbers if each in _FEATURES)
        return self._features

    async def stage(self, volume: DriverVolume, staging: Path, context: MountContext) -> None:
        request = m.StageVolumeRequest(
            volume_id=volume.handle,
            publish_context=context.publish_context,
            staging_target_path=self._text(staging),
            volume_capability=await self._capability(volume, context),
            secrets=context.secrets,
            volume_context=volume.attributes,
        )
        await self._call(m.STAGE, request)

    async def publish(
        self, volume: DriverVolume, staging: Path, target: Path, context: MountContext
    ) -> Path:
        is_staged = not volume.is_inline and DriverFeature.STAGES in await self.features()
        request = m.PublishVolumeRequest(
            volume_id=volume.handle,
            publish_context=context.publish_context,
            staging_target_path=self._text(staging) if is_staged else "",
            target_path=self._text(target),
            volume_capability=await self._capability(volume, context),
            readonly=volume.is_read_only,
            secrets=context.secrets,
            volume_context={**volume.attributes, **context.pod_attributes},
        )
        await self._call(m.PUBLISH, request)
        if not _exists(target):
            raise DriverError(
                f"applyFSGroup failed for vol {volume.handle}: lstat {target}: no such file or"
                " directory"
            )
        return target

    async def unpublish(self, handle: str, target: Path) -> None:
        await self._call(
            m.UNPUBLISH, m.VolumePathRequest(volume_id=handle, path=self._text(target))
        )
        with contextlib.suppress(FileNotFoundError):
            # A driver may leave the empty directory. A mounted one is not removed.
            os.rmdir(target)

    async def unstage(self, handle: str, staging: Path) -> None:
        await self._call(m.UNSTAGE, m.VolumePathRequest(volume_id=handle, path=self._text(staging)))

    async def expand(
        self, volume: DriverVolume, path: Path, staging: Path, context: MountContext
    ) -> int:
        request = m.ExpandVolumeRequest(
            volume_id=volume.handle,
            volume_path=self._text(path),
            capacity_range=m.CapacityRange(required_bytes=volume.size),
            staging_target_path=self._text(staging),
            volume_capability=await self._capability(volume, context),
            secrets=context.secrets,
        )
        answer = await self._call(m.EXPAND_VOLUME, request)
        return max(answer.capacity_bytes, volume.size)

    async def usage(self, handle: str, path: Path, staging: Path) -> VolumeUsage:
        request = m.VolumeStatsRequest(
            volume_id=handle, volume_path=self._text(path), staging_target_path=self._text(staging)
        )
        answer = await self._call(m.GET_STATS, request)
        size = next((each for each in answer.usage if each.unit == m.BYTES), None)
        files = next((each for each in answer.usage if each.unit == m.INODES), None)
        found = VolumeUsage()
        if size is not None:
            found = found._replace(
                capacity_bytes=max(size.total, -1),
                used_bytes=max(size.used, -1),
                available_bytes=max(size.available, -1),
            )
        if files is not None:
            found = found._replace(
                inodes=max(files.total, -1),
                inodes_used=max(files.used, -1),
                inodes_free=max(files.available, -1),
            )
        return found

    async def capacity(self, attributes: Mapping[str, str]) -> int:
        """The controller half of a driver reports its capacity."""
        return -1

    async def delete(self, handle: str) -> None:
        raise DriverError(f"the provisioner of {self.name} deletes its volumes", is_final=True)

    def _text(self, path: Path) -> str:
        return str(self._named(path))

    async def _capability(self, volume: DriverVolume, context: MountContext) -> m.VolumeCapability:
        distinguishes = DriverFeature.SINGLE_NODE_MULTI_WRITER in await self.features()
        mode = m.CsiAccessMode(mode=access_mode(volume.access_modes, distinguishes=distinguishes))
        if volume.is_block:
            return m.VolumeCapability(block=Empty(), access_mode=mode)
        mount = m.MountCapability(
            fs_type=volume.fs_type,
            mount_flags=volume.mount_options,
            volume_mount_group=str(context.group) if context.group >= 0 else "",
        )
        return m.VolumeCapability(mount=mount, access_mode=mode)

    async def _call(self, method: Method[Q, A], request: Q) -> A:
        try:
            return await self._channel.call(method, request, CALL_SECONDS)
        except PluginError as error:
            text = str(error)
            code = text.removeprefix("rpc error: code = ").partition(" ")[0]
            has_code = text.startswith("rpc error: code = ")
            raise DriverError(
                text[:4096],
                is_final=has_code and code not in _UNCERTAIN,
                is_infeasible=has_code and code in _INFEASIBLE,
            ) from error


def access_mode(modes: tuple[str, ...], *, distinguishes: bool) -> int:
    """Return the number of an access mode; `distinguishes` if the driver knows single pods."""
    if "ReadWriteMany" in modes:
        return _MULTI_WRITER
    if "ReadWriteOncePod" in modes:
        return _SINGLE_POD if distinguishes else _SINGLE_WRITER
    if "ReadWriteOnce" in modes:
        return _SINGLE_NODE if distinguishes else _SINGLE_WRITER
    return _READER


def _exists(target: Path) -> bool:
    return os.path.lexists(target)
