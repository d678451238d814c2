"""Garbage collection of images that no container uses, when the disk is full."""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from kedge.machinery.clock import Clock, every
from kedge.node.images.garbage import GarbagePlan, GarbageThresholds

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 300.0
"""Seconds between two checks of the disk, as in the kubelet."""


class CollectableImages(Protocol):
    """The images of this machine (kedge.node.images.images)."""

    async def collect(self, thresholds: GarbageThresholds) -> GarbagePlan: ...


class ImageGarbageCollector:
    """Collects unused images periodically. The owner must `run` it."""

    def __init__(
        self, images: CollectableImages, warn: Callable[[str, str], None], clock: Clock
    ) -> None:
        """`warn` records an event about the node with a reason and a message."""
        self._images = images
        self._warn = warn
        self._clock = clock

    async def run(self) -> None:
        await every(PERIOD_SECONDS, self.collect, self._clock)

    async def collect(self) -> None:
        """Delete images if the disk is full."""
        try:
            done = await self._images.collect(GarbageThresholds())
        except OSError as error:
            self._warn("ImageGCFailed", str(error))
            return
        if done.images:
            log.info("images deleted count=%d bytes=%d", len(done.images), done.freed)
        if done.freed < done.wanted:
            self._warn(
                "FreeDiskSpaceFailed",
                "Failed to garbage collect required amount of images. Attempted to free"
                f" {done.wanted} bytes, but only found {done.freed} bytes eligible to free.",
            )
