"""Mounts exports of NFS servers, by the client in the kernel.

A server that does not answer blocks a call for minutes. So calls have threads of their own and a
deadline; a call that is still running is waited for again, and never made twice.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kedge.node.storage import nfs_mount
from kedge.node.storage.nfs_mount import NFS_DRIVER, NfsMount
from kedge.node.storage.volume_driver import (
    DriverError,
    DriverFeature,
    DriverVolume,
    MountContext,
    VolumeUsage,
)
from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc

SERVER: Final = "server"
PATH: Final = "path"
_DEADLINE_SECONDS: Final = 30.0
_WORK: Final = ThreadPoolExecutor(16, "nfs")
_FORCE: Final = 1
"""umount2: end requests that the server does not answer."""
_NO_GROWTH: Final = "nfs volumes have the size that their server gives them"

SystemMount = Callable[[NfsMount, Path], None]
"""Makes one call of mount(2). Raises OSError."""


def mount_by_kernel(call: NfsMount, target: Path) -> None:
    """Mount an export."""
    libc.mount(call.source, str(target), "nfs", call.flags, call.options)


class NfsDriver:
    """Fulfils volume_driver.VolumeDriver."""

    name = NFS_DRIVER

    def __init__(self, *, may_mount: bool, mount: SystemMount = mount_by_kernel) -> None:
        self._may_mount = may_mount
        self._mount = mount
        self._running: dict[Path, Future[None]] = {}
        """Calls that have not ended, by target."""

    async def features(self) -> frozenset[DriverFeature]:
        return frozenset()

    async def stage(self, volume: DriverVolume, staging: Path, context: MountContext) -> None:
        """Do nothing: each pod has a mount of its own."""

    async def publish(
        self, volume: DriverVolume, staging: Path, target: Path, context: MountContext
    ) -> Path:
        what = nfs_mount.export(volume.attributes[SERVER], volume.attributes[PATH])
        if volume.is_block:
            raise DriverError(f"cannot mount {what}: nfs volumes have no mode Block")
        if not self._may_mount:
            raise DriverError(f"cannot mount {what}: the agent has no right to mount")
        if not is_mounted(target):
            await self._ended(target, what, lambda: self._publish(volume, what, target))
        return target

    async def unpublish(self, handle: str, target: Path) -> None:
        if (begun := self._running.get(target)) is not None:
            await _end_of(begun, f"the mount at {target}")
            self._running.pop(target, None)
        removal = _WORK.submit(_take_off, target)
        await _end_of(removal, f"the unmount of {target}")
        if (error := removal.exception()) is not None:
            raise DriverError(str(error)) from error

    async def unstage(self, handle: str, staging: Path) -> None:
        """Do nothing."""

    async def expand(
        self, volume: DriverVolume, path: Path, staging: Path, context: MountContext
    ) -> int:
        raise DriverError(_NO_GROWTH, is_final=True)

    async def usage(self, handle: str, path: Path, staging: Path) -> VolumeUsage:
        return VolumeUsage()

    async def capacity(self, attributes: Mapping[str, str]) -> int:
        return -1

    async def delete(self, handle: str) -> None:
        raise DriverError("kedge does not delete the data of nfs volumes", is_final=True)

    async def _ended(self, target: Path, what: str, work: Callable[[], None]) -> None:
        begun = self._running.get(target)
        if begun is None:
            begun = self._running[target] = _WORK.submit(work)
        await _end_of(begun, f"the mount of {what}")
        self._running.pop(target, None)
        error = begun.exception()
        if isinstance(error, OSError):
            raise DriverError(f"cannot mount {what}: {error}") from error
        if error is not None:
            raise error

    # In threads.

    def _publish(self, volume: DriverVolume, what: str, target: Path) -> None:
        address = _address(volume.attributes[SERVER], what)
        target.mkdir(mode=0o750, exist_ok=True)
        calls = nfs_mount.attempts(
            what, address, volume.mount_options, is_read_only=volume.is_read_only
        )
        for call in calls:
            try:
                self._mount(call, target)
                return
            except OSError as error:
                if call is calls[-1] or not nfs_mount.is_version_refused(error):
                    raise DriverError(f"cannot mount {what}: {nfs_mount.words(error)}") from error


async def _end_of(begun: "Future[None]", what: str) -> None:
    """Wait until a call has ended, well or not. After the deadline it continues alone."""
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            await asyncio.shield(asyncio.wait((asyncio.wrap_future(begun),)))
    except TimeoutError as error:
        raise DriverError(f"{what} has not ended after {_DEADLINE_SECONDS:g} s") from error


def is_mounted(target: Path) -> bool:
    """Return whether something is mounted at a path, without a request to the server."""
    return str(target.parent.resolve() / target.name) in mounts.places()


def _address(server: str, what: str) -> str:
    try:
        found = socket.getaddrinfo(server, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DriverError(f"cannot mount {what}: cannot find the server: {error}") from error
    return str(found[0][4][0])


def _take_off(target: Path) -> None:
    while is_mounted(target):
        libc.unmount(str(target), libc.DETACH | _FORCE)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(target)
