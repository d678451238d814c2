"""emptyDir: an empty directory of a pod, on disk or in memory."""

import contextlib
import os
from pathlib import Path
from typing import Final, Protocol

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.volume import EmptyDirVolumeSource, Volume
from kedge.machinery.quantity import Quantity
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.volumes import mounts

MEMORY: Final = "Memory"
_HUGE_PAGES: Final = "HugePages"
_OPEN: Final = 0o777
"""Mode of the directory: containers may run as any user."""
_SET_GROUP: Final = 0o2000
_STICKY: Final = 0o1000
"""The mount options of tmpfs in a world-writable directory."""


def make_on_disk(place: Path, group: int) -> None:
    """Create the directory, unless it exists: containers may have changed its mode since. `group`
    is the pod's fsGroup, which may write to it; -1 for none."""
    if place.is_dir():
        return
    unfinished = place.with_name(f"..{place.name}")
    unfinished.mkdir(parents=True, exist_ok=True)
    if group >= 0:
        _give(unfinished, group)
    else:
        unfinished.chmod(_OPEN)
    unfinished.rename(place)


def _give(directory: Path, group: int) -> None:
    """Let a group write to a directory; root, or a user with that subordinate id, can."""
    mode = _OPEN | _SET_GROUP
    with contextlib.suppress(PermissionError):
        os.chown(directory, -1, group)
    directory.chmod(mode)
    if directory.stat().st_gid != group:
        from kedge.supervisor.files import mapped

        with contextlib.suppress(PermissionError):
            mapped.own([mapped.FileOwner(str(directory), -1, group, mode)])


def mount_in_memory(place: Path, medium: str, group: int, size: int) -> None:
    """Mount tmpfs or hugetlbfs, unless it is mounted; `size` is the limit in bytes, 0 for the
    kernel's default. Huge pages are limited by the requests of the pod."""
    place.mkdir(parents=True, exist_ok=True)
    if mounts.mounted(place):
        return
    options = [f"mode={mode_in_memory(group):o}"]
    if group >= 0:
        options.append(f"gid={group}")
    if medium == MEMORY:
        mounts.memory(place, *options, *([f"size={size}"] if size else []))
    else:
        page = Quantity.parse(medium.partition("-")[2]).value()
        mounts.huge_pages(place, page, *options)


def mode_in_memory(group: int) -> int:
    """Return the mode of a volume in memory. `group` is the pod's fsGroup; -1 for none."""
    return _OPEN | _STICKY | (_SET_GROUP if group >= 0 else 0)


def whole_medium(source: EmptyDirVolumeSource, pod: Pod) -> str:
    """Return the medium with its page size, which may follow from the requests of the
    containers."""
    if source.medium in ("", MEMORY):
        return source.medium
    if source.medium.partition("-")[0] != _HUGE_PAGES:
        raise VolumeFailure("FailedMount", f'unknown storage medium "{source.medium}"')
    asked = _page_sizes(pod)
    if source.medium == _HUGE_PAGES and len(asked) > 1:
        raise VolumeFailure(
            "FailedMount",
            f"medium: {_HUGE_PAGES} can't be used if container requests multiple huge page sizes",
        )
    media = {f"{_HUGE_PAGES}-{size}" for size in asked}
    if not media or source.medium not in (_HUGE_PAGES, *media):
        raise VolumeFailure(
            "FailedMount",
            f"medium {source.medium}: hugePages storage requested, but there is no resource"
            " request for huge pages",
        )
    return media.pop() if source.medium == _HUGE_PAGES else source.medium


def _page_sizes(pod: Pod) -> set[str]:
    spec = pod.spec
    requests = [each.resources.requests for each in (*spec.containers, *spec.initContainers)]
    if spec.resources is not None:
        requests.append(spec.resources.requests)
    prefix = "hugepages-"
    return {
        name.removeprefix(prefix)
        for amounts in requests
        for name in amounts
        if name.startswith(prefix)
    }


def size_in_memory(source: EmptyDirVolumeSource, limit: int, allocatable: int) -> int:
    """Return the limit of a volume in memory: its own, but not more than that of the pod, nor of
    all pods together; 0 if there is none. `limit` is the pod's."""
    own = source.sizeLimit.value() if source.sizeLimit else 0
    return min((each for each in (own, limit, allocatable) if each > 0), default=0)


class MemoryMounter(Protocol):
    """Mounts a tmpfs that containers see, but the agent does not."""

    @property
    def is_counted(self) -> bool:
        """Whether the usage counts for the memory limits of containers."""
        ...

    async def mount_memory(self, place: Path, *, size: int, mode: int, group: int) -> None:
        """Mount a tmpfs, unless it is mounted; raises RuntimeFailure. It ends with the
        directory."""
        ...


def is_mountable(pod: Pod, volume: Volume) -> bool:
    """Return whether a volume is one in memory, and no container mounts a part of it: the agent
    creates missing subPaths, and cannot in a file system that it does not see."""
    if volume.emptyDir is None or volume.emptyDir.medium != MEMORY:
        return False
    spec = pod.spec
    return not any(
        mount.subPath or mount.subPathExpr
        for container in (*spec.initContainers, *spec.containers)
        for mount in container.volumeMounts
        if mount.name == volume.name
    )


def memory_shortfall(pod: Pod, volume: Volume, mounter: MemoryMounter | None) -> str:
    """Return what a volume in memory lacks if the agent may not mount; empty if nothing."""
    if volume.emptyDir is None or volume.emptyDir.medium != MEMORY:
        return ""
    if mounter is None:
        return (
            f'volume "{volume.name}" is on disk: a volume in memory needs the right to mount,'
            " which the agent does not have"
        )
    if not is_mountable(pod, volume):
        return f'volume "{volume.name}" is on disk: without root, one in memory has no subPath'
    if not mounter.is_counted:
        return (
            f'volume "{volume.name}" does not count for the memory limits of containers: nothing'
            " enforces them"
        )
    return ""
