"""Gives the files of a volume to the fsGroup of a pod."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.storage.volume_driver import (
    DriverFeature,
    DriverVolume,
    MountContext,
    VolumeDriver,
)


def fs_group(pod: Pod) -> int:
    """Return the pod's fsGroup; -1 for none."""
    security = pod.spec.securityContext
    return -1 if security is None or security.fsGroup is None else security.fsGroup


async def delegated(
    context: MountContext, pod: Pod, wanted: DriverVolume, driver: VolumeDriver
) -> MountContext:
    """Add the pod's fsGroup for a driver that applies it itself."""
    if wanted.is_block or fs_group(pod) < 0:
        return context
    if DriverFeature.MOUNTS_FOR_GROUP not in await driver.features():
        return context
    return dataclasses.replace(context, group=fs_group(pod))


def is_owned(place: Path, group: int) -> bool:
    """Return whether the top of a volume belongs to the group, for OnRootMismatch."""
    from kedge.supervisor.files import group_walk

    status = os.stat(place)
    wanted = group_walk.FILE | group_walk.DIRECTORY
    return status.st_gid == group and status.st_mode & wanted == wanted


def give(place: Path, group: int, *, is_stopped: Callable[[], bool]) -> None:
    """Change the group and the mode of everything in a volume. Raises PermissionError if this user
    may not."""
    from kedge.supervisor.files import group_walk, mapped

    try:
        group_walk.give(place, group, is_stopped=is_stopped)
    except PermissionError:
        if not mapped.give(str(place), group):
            raise
