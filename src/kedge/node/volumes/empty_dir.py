"""emptyDir: a directory that a pod has to itself, on disk or in memory."""

import os
from pathlib import Path
from typing import Final

from kedge.api.core_v1.volume import EmptyDirVolumeSource
from kedge.node.parts import VolumeFailure
from kedge.supervisor import libc

_OPEN: Final = 0o777
"""Containers run as all sorts of users."""


def make(place: Path, source: EmptyDirVolumeSource, group: int, *, may_mount: bool) -> None:
    """Make the directory; for the pod's group to write to, if it has one."""
    place.mkdir(parents=True, exist_ok=True)
    if source.medium and not os.path.ismount(place):
        _mount(place, source, may_mount=may_mount)
    mode = _OPEN
    if group >= 0:
        os.chown(place, -1, group)
        mode |= 0o2000
    place.chmod(mode)


def _mount(place: Path, source: EmptyDirVolumeSource, *, may_mount: bool) -> None:
    if source.medium != "Memory":
        raise VolumeFailure(
            "FailedMount", f'emptyDir of the medium "{source.medium}" is not supported on this node'
        )
    if not may_mount:
        raise VolumeFailure(
            "FailedMount",
            "emptyDir in memory takes the right to mount, which this node was not started with",
        )
    limit = source.sizeLimit.value() if source.sizeLimit else 0
    data = f"size={limit}" if limit else ""
    libc.mount("tmpfs", str(place), "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, data)
