"""Mounts the subPaths of volumes for a runtime that takes whole paths only.

Other containers of a pod may replace any directory of a subPath by a link at any time. So the
kernel resolves the path beneath the volume, the result is mounted at a place of kedge's own, and
the runtime gets that place, as the kubelet does it (CVE-2017-1002101, CVE-2021-25741).
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.runtime.runtime import ContainerMount, RuntimeFailure
from kedge.node.volumes import mounts
from kedge.supervisor.files import beneath
from kedge.supervisor.kernel import libc


def mounted(requested: Sequence[ContainerMount], place: Path) -> list[ContainerMount]:
    """Mount all subPaths below a directory of the container; return mounts without subPaths."""
    # An agent may have been killed before the runtime had the container.
    unmount_all(place)
    found = []
    for number, mount in enumerate(requested):
        if mount.part:
            try:
                path = _bind(mount, place / str(number))
            except OSError as error:
                unmount_all(place)
                raise RuntimeFailure(
                    f"failed to prepare subPath for volumeMount {mount.container_path}: {error}"
                ) from error
            mount = replace(mount, host_path=str(path), part="")
        found.append(mount)
    return found


def _bind(mount: ContainerMount, target: Path) -> Path:
    with beneath.directory(mount.host_path) as top:
        source = beneath.locate(top, mount.part, across_mounts=True)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_ISDIR(os.fstat(source).st_mode):
            target.mkdir(exist_ok=True)
        else:
            target.touch()
        tree = libc.open_tree("", at=source)
        place = os.open(target, os.O_PATH | os.O_CLOEXEC)
        try:
            libc.move_mount(tree, place)
        finally:
            os.close(place)
            os.close(tree)
    finally:
        os.close(source)
    return target


def unmount_all(place: Path) -> None:
    """Unmount the subPaths of a container, or of all containers of a sandbox. Idempotent."""
    try:
        mounts.take_down_binds(place)
    except VolumeFailure as error:
        raise RuntimeFailure(f"cannot unmount the subPaths: {error}") from error
