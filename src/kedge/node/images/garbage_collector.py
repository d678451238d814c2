"""Image collection: images that no container uses go when the disk runs full."""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from kedge.machinery.clock import Clock, every
from kedge.node.images.garbage import GarbagePlan, GarbageThresholds

log = logging.getLogger(__name__)

PERIOD: Final = 300.0
"""Seconds between two looks at the disk, as upstream takes them."""


class CollectableImages(Protocol):
    """The images of this machine (kedge.node.images.images)."""

    async def collect(self, thresholds: GarbageThresholds) -> GarbagePlan: ...


class ImageGarbageCollector:
    """Somebody must `run` it."""

    def __init__(
        self, images: CollectableImages, warn: Callable[[str, str], None], clock: Clock
    ) -> None:
        """`warn` is told the reason and the message of an event about the node."""
        self._images = images
        self._warn = warn
        self._clock = clock

    async def run(self) -> None:
        await every(PERIOD, self.look, self._clock)

    async def look(self) -> None:
        """Delete what the disk needs the room of."""
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
