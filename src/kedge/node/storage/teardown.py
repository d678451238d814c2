"""Unmounts the volumes of a node whose agent has ended. Deletes no data."""

import contextlib
import os
from pathlib import Path

from kedge.node.storage import loop_device
from kedge.node.storage.local_store import LocalVolumeStore
from kedge.node.storage.mount_records import MountRecords
from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc


def unmount_all(pods: Path) -> str:
    """Unmount everything that the records of a node name; return the problems, or an empty text."""
    problems = []
    for record in MountRecords(pods):
        for place in filter(None, (record.target, record.staging)):
            try:
                for where in mounts.below(Path(place)):
                    libc.unmount(where)
            except OSError as error:
                problems.append(f"{place} is still mounted: {error}")
    _detach_blocks(pods.parent / "volumes")
    return "; ".join(problems)


def _detach_blocks(volumes: Path) -> None:
    if os.geteuid() != 0:
        return
    for volume in LocalVolumeStore(volumes):
        if volume.record.is_block:
            with contextlib.suppress(OSError):
                loop_device.detach(volume.image)
