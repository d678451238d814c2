"""How much of the disk a pod uses, and whether that is more than it may."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kedge.api.core_v1.pod import Pod
from kedge.api.core_v1.pod_resources import total
from kedge.api.core_v1.volume import Volume
from kedge.machinery.quantity import Quantity

RESOURCE: Final = "ephemeral-storage"
_BLOCK: Final = 512


def limited(pod: Pod) -> bool:
    """Whether the pod can use too much, so that somebody has to look now and then."""
    return RESOURCE in total(pod.spec, "limits") or any(map(_limit, pod.spec.volumes))


def excess(pod: Pod, volumes: Mapping[str, int], containers: Mapping[str, int]) -> str:
    """Why the pod has to go, in upstream's words; empty if it may stay.

    `volumes` is what its emptyDirs hold, `containers` what each container wrote to its own root
    and to its log; both in bytes.
    """
    for volume in pod.spec.volumes:
        limit = _limit(volume)
        if limit and volumes.get(volume.name, 0) > limit.value():
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
    whole = total(pod.spec, "limits").get(RESOURCE)
    if whole is not None:
        kept = [volumes.get(each.name, 0) for each in pod.spec.volumes if not _in_memory(each)]
        if sum(kept) + sum(containers.values()) > whole.value():
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


def held(directories: Iterable[Path]) -> int:
    """How many bytes of the disk these directories take, a file with several names once."""
    used = 0
    seen: set[tuple[int, int]] = set()
    waiting = [os.fspath(each) for each in directories]
    while waiting:
        for status in _entries(waiting.pop(), waiting):
            if status.st_nlink > 1:
                identity = (status.st_dev, status.st_ino)
                if identity in seen:
                    continue
                seen.add(identity)
            used += status.st_blocks * _BLOCK
    return used


def _entries(directory: str, waiting: list[str]) -> Iterable[os.stat_result]:
    """What is in a directory; those in it that are directories are put on the list. What goes away
    meanwhile, or cannot be seen, takes nothing."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                yield status
    except OSError:
        return
