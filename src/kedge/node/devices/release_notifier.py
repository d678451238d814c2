"""Notifies device plugins that the devices of a container are released.

At least once: a notice that was not acknowledged is in the checkpoint and is sent again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kedge.machinery.clock import Clock
from kedge.node.devices.ledger import DeviceLedger, DeviceReleaseNotice
from kedge.node.devices.plugin_channel import PluginError
from kedge.node.devices.registry import PluginRegistry
from kedge.node.pod.timeouts import wait_until_set

log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0


class DeviceReleaseNotifier:
    """Sends the notices. The owner must `run` it."""

    def __init__(
        self, ledger: DeviceLedger, registry: PluginRegistry, clock: Clock, said: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._clock = clock
        self._told = said
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Send pending notices: there is a new one, or a plugin has registered."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        delay = FIRST_SECONDS
        while True:
            self._wake.clear()
            failed = [each for each in list(self._ledger.releases) if not await self._say(each)]
            if failed:
                await wait_until_set(self._wake, self._clock, delay)
                delay = min(delay * 2, LONGEST_SECONDS)
            else:
                await self._wake.wait()
                delay = FIRST_SECONDS

    async def _say(self, farewell: DeviceReleaseNotice) -> bool:
        plugin = self._registry.plugin(farewell.resource)
        if plugin is None:
            # The registration of the plugin wakes this task.
            return True
        try:
            await plugin.release(farewell.ids, farewell.owner)
        except PluginError as error:
            text = "release not acknowledged resource=%s devices=%s error=%r; retrying"
            log.warning(text, farewell.resource, ",".join(farewell.ids), str(error))
            return False
        self._ledger.notified(farewell)
        self._told()
        return True
