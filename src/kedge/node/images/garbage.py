"""Decides which images to delete when the disk is full, by the kubelet's rules. Pure."""

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec


class GarbageThresholds(msgspec.Struct, frozen=True):
    """When garbage collection starts and stops; the kubelet's defaults."""

    high_percent: int = 85
    """Usage of the disk at which images are deleted."""
    low_percent: int = 80
    """Usage of the disk at which deletion stops."""
    min_age: float = 120.0
    """Seconds after its last use before an image may be deleted."""

    def __post_init__(self) -> None:
        if not 0 <= self.low_percent < self.high_percent <= 100:
            raise ValueError("thresholds must be percentages, and the low one below the high one")


class DiskSpace(msgspec.Struct, frozen=True):
    """The file system with the images."""

    capacity: int
    available: int

    @property
    def used_percent(self) -> int:
        available = min(self.available, self.capacity)
        return 100 - available * 100 // self.capacity if self.capacity else 0

    @classmethod
    def of(cls, path: Path) -> "DiskSpace":
        usage = shutil.disk_usage(path)
        return cls(usage.total, usage.free)


class ImageCandidate(msgspec.Struct, frozen=True):
    """The properties of an image that the decision depends on."""

    id: str
    last_used: float
    layers: tuple[str, ...]
    is_named: bool = True
    """Whether it has a name; an image without one is deleted in any case."""
    is_pinned: bool = False
    """Whether it was loaded by hand; such an image cannot be pulled again and is kept."""


class GarbagePlan(msgspec.Struct, frozen=True):
    """The images to delete."""

    images: tuple[str, ...]
    freed: int
    """Bytes that the deletion frees."""
    wanted: int
    """Bytes that should be freed; 0 if the disk is not full."""


def bytes_to_free(disk: DiskSpace, thresholds: GarbageThresholds) -> int:
    """Return the bytes to free: none below the high threshold, otherwise down to the low one."""
    if disk.used_percent < thresholds.high_percent:
        return 0
    return max(0, disk.capacity * (100 - thresholds.low_percent) // 100 - disk.available)


def plan(
    images: Sequence[ImageCandidate],
    sizes: Mapping[str, int],
    *,
    keep: Collection[str],
    now: float,
    thresholds: GarbageThresholds,
    disk: DiskSpace,
) -> GarbagePlan:
    """Return the images to delete: nameless ones first, then the least recently used, until enough
    is freed.

    `sizes` are those of the layers: a layer is freed with the last image that has it.
    """
    goal = bytes_to_free(disk, thresholds)
    uses = _uses(images)
    chosen: list[str] = []
    freed = 0
    for image in _in_order(images, keep, now - thresholds.min_age):
        if image.is_named and freed >= goal:
            break
        chosen.append(image.id)
        for layer in set(image.layers):
            uses[layer] -= 1
            if not uses[layer]:
                freed += sizes.get(layer, 0)
    return GarbagePlan(tuple(chosen), freed, goal)


def _in_order(
    images: Sequence[ImageCandidate], keep: Collection[str], before: float
) -> Iterator[ImageCandidate]:
    for image in sorted(images, key=lambda each: (each.is_named, each.last_used, each.id)):
        if image.id not in keep and not image.is_pinned and image.last_used <= before:
            yield image


def _uses(images: Sequence[ImageCandidate]) -> dict[str, int]:
    uses: dict[str, int] = {}
    for image in images:
        for layer in set(image.layers):
            uses[layer] = uses.get(layer, 0) + 1
    return uses
