"""image volumes: the files of an image, read-only."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kedge.api.core_v1.volume.volume import ImageVolumeSource
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc

_READ_ONLY: Final = libc.MS_RDONLY | libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
_LONGEST_OPTIONS: Final = 4095
"""Bytes that mount(2) takes."""


def pull_policy(source: ImageVolumeSource) -> str:
    """Return the pull policy, with the default of containers."""
    if source.pullPolicy:
        return source.pullPolicy
    name = source.reference.rpartition("/")[2]
    if "@" in name:
        return "IfNotPresent"
    return "Always" if name.partition(":")[2] in ("", "latest") else "IfNotPresent"


def mount(place: Path, layers: Sequence[Path], *, may_mount: bool) -> Path:
    """Mount the layers of an image, uppermost first, unless they are mounted. Return where the
    files are. Raises VolumeFailure or OSError."""
    if not layers:
        raise VolumeFailure("FailedMount", "the image has no files of its own")
    if len(layers) == 1 and not may_mount:
        return layers[0]
    if not may_mount:
        raise VolumeFailure(
            "FailedMount",
            "an image with several layers needs the right to mount, which the agent does not have",
        )
    place.mkdir(parents=True, exist_ok=True)
    if mounts.mounted(place):
        return place
    if len(layers) == 1:
        # An overlay without an upper directory needs two lower ones.
        libc.mount(str(layers[0]), str(place), flags=libc.MS_BIND)
        libc.mount("", str(place), flags=libc.MS_BIND | libc.MS_REMOUNT | _READ_ONLY)
        return place
    options = f"lowerdir={':'.join(map(_escaped, layers))}"
    if len(options.encode()) > _LONGEST_OPTIONS:
        raise VolumeFailure("FailedMount", f"the image has too many layers: {len(layers)}")
    libc.mount("overlay", str(place), "overlay", _READ_ONLY, options)
    return place


def _escaped(layer: Path) -> str:
    text = str(layer).replace("\\", "\\\\")
    return text.replace(":", "\\:").replace(",", "\\,")
