"""Disk usage of pods, and whether it exceeds their limits."""

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import total
from kedge.api.core_v1.volume.volume import Volume
from kedge.machinery.quantity import Quantity

RESOURCE: Final = "ephemeral-storage"
_BLOCK: Final = 512
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
    seen: set[tuple[int, int]] = set()
    return sum(_directory_usage(os.fspath(each), seen) for each in directories)


def top_level_usage(directories: Iterable[Path]) -> int:
    """Return the disk usage of the files in these directories, without subdirectories."""
    used = 0
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    used += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    return used


def _directory_usage(top: str, seen: set[tuple[int, int]]) -> int:
    """Measure one directory. To hide its usage, a container could nest directories deeper than any
    path, or replace them by links during the count. So this descends by descriptors, and returns by
    `..` only if that is still the same directory."""
    used = 0
    try:
        at = os.open(top, _OPENED)
    except OSError:
        return 0
    above: list[tuple[tuple[int, int], list[str]]] = []
    try:
        size, waiting = _look(at, seen)
        used += size
        while True:
            if waiting:
                below = _opened(waiting.pop(), at)
                if below >= 0:
                    above.append((_identity(os.fstat(at)), waiting))
                    os.close(at)
                    at = below
                    size, waiting = _look(at, seen)
                    used += size
                continue
            if not above:
                return used
            parent = _opened("..", at)
            if parent < 0:
                return used
            os.close(at)
            at = parent
            identity, waiting = above.pop()
            if _identity(os.fstat(at)) != identity:
                # The directory was moved: its new parent may be outside of the volume.
                return used
    finally:
        os.close(at)


def _look(directory: int, seen: set[tuple[int, int]]) -> tuple[int, list[str]]:
    """Return the size of a directory's entries, and its subdirectories. Entries that disappear
    or cannot be read count as 0."""
    used, inner = 0, []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                inner.append(entry.name)
            elif status.st_nlink > 1:
                if _identity(status) in seen:
                    continue
                seen.add(_identity(status))
            used += status.st_blocks * _BLOCK
    return used, inner


def _opened(name: str, at: int) -> int:
    try:
        return os.open(name, _OPENED, dir_fd=at)
    except OSError:
        return -1


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
