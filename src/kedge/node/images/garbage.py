"""Which images to delete when the disk runs full: a decision, by the rules that kubelets follow."""

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class GarbageThresholds:
    """When to begin, and when to stop; kubelet's defaults."""

    high_percent: int = 85
    """Of the disk in use, from which on images are deleted."""
    low_percent: int = 80
    """To which the use of the disk is then brought down."""
    min_age: float = 120.0
    """Seconds for which an image is left alone after its last use."""

    def __post_init__(self) -> None:
        if not 0 <= self.low_percent < self.high_percent <= 100:
            raise ValueError("thresholds must be percentages, and the low one below the high one")


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The file system that holds the images."""

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


@dataclass(frozen=True, slots=True)
class ImageCandidate:
    """What the decision needs to know of an image."""

    id: str
    last_used: float
    layers: tuple[str, ...]
    is_named: bool = True
    """One that has lost its last name is deleted in any case."""
    is_pinned: bool = False
    """One that was loaded by hand could not be had again: it is left alone."""


@dataclass(frozen=True, slots=True)
class GarbagePlan:
    """What is to be deleted."""

    images: tuple[str, ...]
    freed: int
    """Bytes that this frees."""
    wanted: int
    """Bytes that should be freed; 0 where the disk is not too full."""


def wanted(disk: DiskSpace, thresholds: GarbageThresholds) -> int:
    """Bytes to be freed: none below the high threshold, from there down to the low one."""
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
    """Nameless images first, then those longest not used, until enough is freed.

    `sizes` are those of the layers: a layer is freed with the last image that has it.
    """
    goal = wanted(disk, thresholds)
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
