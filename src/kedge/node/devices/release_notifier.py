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
        self._retries: dict[str, asyncio.Event] = {}
        """By resource whose notices are being sent: ends the wait for the next attempt."""

    def wake(self) -> None:
        """Send pending notices: there is a new one, or a plugin has registered."""
        self._wake.set()
        for retry in self._retries.values():
            retry.set()

    async def run(self) -> None:
        """Run until cancelled. A plugin that does not answer delays the notices of no other."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                for resource in {each.resource for each in self._ledger.releases}:
                    if resource not in self._retries:
                        self._retries[resource] = asyncio.Event()
                        tasks.create_task(self._notify(resource))
                await self._wake.wait()

    async def _notify(self, resource: str) -> None:
        """Send the notices of a resource until none is left or there is no plugin, whose
        registration wakes the notifier."""
        retry, delay = self._retries[resource], FIRST_SECONDS
        try:
            while (pending := self._pending(resource)) and self._registry.plugin(resource):
                retry.clear()
                failed = [each for each in pending if not await self._say(each)]
                if failed:
                    await wait_until_set(retry, self._clock, delay)
                    delay = min(delay * 2, LONGEST_SECONDS)
        finally:
            del self._retries[resource]

    def _pending(self, resource: str) -> list[DeviceReleaseNotice]:
        return [each for each in self._ledger.releases if each.resource == resource]

    async def _say(self, farewell: DeviceReleaseNotice) -> bool:
        plugin = self._registry.plugin(farewell.resource)
        if plugin is None:
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
