"""Removes the ResourceSlices of drivers that do not serve the node."""

import logging
from typing import Final, Protocol

from kedge.api.resource_v1 import resource_slice
from kedge.client.client import Client
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0


class SliceRemoval(Protocol):
    """Removes ResourceSlices."""

    async def remove(self, driver: str = "") -> None:
        """Remove the node's ResourceSlices of a driver, or of all drivers."""
        ...


class NodeSlices:
    """The ResourceSlices of one node. Fulfils SliceRemoval."""

    def __init__(self, client: Client, node: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._clock = clock

    async def remove(self, driver: str = "") -> None:
        """Return when the slices are removed; a failure is retried."""
        fields = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        delay = FIRST_SECONDS
        while True:
            try:
                await self._client.delete_collection(resource_slice.RESOURCE, fields=fields)
                return
            except (StatusError, OSError) as error:
                if isinstance(error, StatusError) and error.code == 404:
                    return
                log.info("cannot remove ResourceSlices fields=%s error=%r", fields, str(error))
            await self._clock.sleep(delay)
            delay = min(delay * 2, LONGEST_SECONDS)
