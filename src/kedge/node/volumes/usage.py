"""Disk usage of pods, and whether it exceeds their limits."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import total
from kedge.api.core_v1.volume.volume import Volume
from kedge.machinery.quantity import Quantity

RESOURCE: Final = "ephemeral-storage"
_BLOCK: Final = 512


def has_storage_limit(pod: Pod) -> bool:
    """Return whether the pod has a limit of local storage."""
    return RESOURCE in total(pod.spec, "limits") or any(map(_limit, pod.spec.volumes))


def excess(
    pod: Pod, volumes: Mapping[str, int], containers: Mapping[str, int], shared: int = 0
) -> str:
    """Return why the pod must be evicted, with the kubelet's message; empty if it stays.

    `volumes` is the usage of its emptyDirs, `containers` that of each container's layer and logs,
    `shared` that of the pod's small files, in bytes.
    """
    for volume in pod.spec.volumes:
        limit = _limit(volume)
        if limit and volumes.get(volume.name, 0) > limit.value():
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
    whole = total(pod.spec, "limits").get(RESOURCE)
    if whole is not None:
        kept = [volumes.get(each.name, 0) for each in pod.spec.volumes if not _in_memory(each)]
        if sum(kept) + sum(containers.values()) + shared > whole.value():
            return (
                f"Pod ephemeral local storage usage exceeds the total limit of containers {whole}. "
            )
    for container in pod.spec.containers:
        own = container.resources.limits.get(RESOURCE)
        if own and containers.get(container.name, 0) > own.value():
            return (
                f'Container {container.name} exceeded its local ephemeral storage limit "{own}". '
            )
    return ""


def _limit(volume: Volume) -> Quantity | None:
    return volume.emptyDir.sizeLimit if volume.emptyDir is not None else None


def _in_memory(volume: Volume) -> bool:
    return volume.emptyDir is not None and volume.emptyDir.medium != ""


def disk_usage(directories: Iterable[Path]) -> int:
    """Return the disk usage of directories in bytes; a file with several names counts once."""
    from kedge.supervisor.files import mapped, tree_usage

    paths = [os.fspath(each) for each in directories]
    found = tree_usage.disk_usage(paths)
    if found.is_complete:
        return found.used
    # Containers have other users, whose directories this one may not read.
    whole = mapped.usage(paths)
    return found.used if whole is None else whole


def top_level_usage(directories: Iterable[Path]) -> int:
    """Return the disk usage of the files in these directories, without subdirectories."""
    used = 0
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    used += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    return used
