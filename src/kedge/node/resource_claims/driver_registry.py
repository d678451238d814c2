"""The registry of drivers for Dynamic Resource Allocation."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

from kedge.deviceplugin.messages import PluginInfo
from kedge.dra.methods import SERVICES
from kedge.machinery.clock import Clock
from kedge.machinery.names import dns_subdomain
from kedge.node.devices.plugin_channel import PluginError
from kedge.node.devices.watcher import PluginRefused, Withdraw
from kedge.node.resource_claims.claim_ledger import ClaimError
from kedge.node.resource_claims.device_health import DeviceHealthBook, DeviceName
from kedge.node.resource_claims.driver_client import (
    DriverClient,
    HealthUnsupported,
    chosen_service,
)
from kedge.node.resource_claims.slice_removal import SliceRemoval

log = logging.getLogger(__name__)

WIPING_SECONDS: Final = 30.0
"""Seconds for which a driver may be away before its ResourceSlices are removed."""
HEALTH_RETRY_SECONDS: Final = 5.0
LONGEST_DRIVER_NAME: Final = 63
MOST_INSTANCES: Final = 16
"""Instances of one driver; a rolling update needs two."""

HealthChanged = Callable[[str, set[DeviceName]], None]


class DriverRegistry:
    """The drivers of one node. Fulfils watcher.PluginHandler. The owner must `run` it."""

    def __init__(
        self,
        health: DeviceHealthBook,
        clock: Clock,
        slices: SliceRemoval,
        *,
        health_changed: HealthChanged,
    ) -> None:
        self._health = health
        self._clock = clock
        self._slices = slices
        self._health_changed = health_changed
        self._instances: dict[str, list[DriverClient]] = {}
        """By driver, in the order of registration."""
        self._wiping: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                # No driver has registered yet, and pods that are bound because of the slices of a
                # driver that never comes back would wait here for good.
                self._tasks.create_task(self._slices.remove())
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    def driver(self, name: str) -> DriverClient:
        """Return the newest connected instance of a driver, or the newest of all. Raises
        ClaimError if there is none."""
        instances = self._instances.get(name)
        if not instances:
            raise ClaimError(f"DRA driver {name} is not registered")
        connected = [each for each in instances if each.is_connected]
        return (connected or instances)[-1]

    # Registration.

    async def adopt(self, info: PluginInfo, endpoint: Path) -> Withdraw:
        self._check(info, endpoint)
        instance = DriverClient(info.name, endpoint, info.supported_versions, self._clock)
        instance.open()
        work = [self._own(self._follow(instance)), self._own(self._follow_health(instance))]
        self._instances.setdefault(info.name, []).append(instance)
        log.info("driver registered driver=%s endpoint=%s", info.name, endpoint)
        self._schedule_wipe(info.name)
        return partial(self._withdraw, instance, work)

    def _check(self, info: PluginInfo, endpoint: Path) -> None:
        """Raises PluginRefused."""
        invalid = (
            f"plugin validation failed with err: invalid supported gRPC versions of DRA driver "
            f"plugin {info.name} at endpoint {endpoint}"
        )
        if not info.supported_versions:
            raise PluginRefused(
                f"{invalid}: empty list of supported gRPC services (aka supported versions)"
            )
        if not chosen_service(info.supported_versions):
            raise PluginRefused(
                f"{invalid}: none of services supported by the plugin "
                f"({_quoted(info.supported_versions)}) are supported by the kubelet "
                f"({_quoted(SERVICES)})"
            )
        if dns_subdomain(info.name) or len(info.name) > LONGEST_DRIVER_NAME:
            raise PluginRefused(
                f'plugin validation failed with err: "{info.name[:253]}" is no name of a DRA driver'
            )
        if not endpoint.is_absolute():
            raise PluginRefused(
                f"plugin validation failed with err: the endpoint {endpoint} of DRA driver "
                f"plugin {info.name} is no absolute path"
            )
        others = self._instances.get(info.name, [])
        if any(each.path == endpoint for each in others):
            raise PluginRefused(
                f"plugin registration failed with err: endpoint {endpoint} already registered "
                f"for DRA driver plugin {info.name}"
            )
        if len(others) >= MOST_INSTANCES:
            raise PluginRefused(
                f"plugin registration failed with err: DRA driver plugin {info.name} has "
                f"{MOST_INSTANCES} instances already"
            )

    def _own(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        if self._tasks is None:
            work.close()
            raise PluginRefused("the node agent is shutting down")
        return self._tasks.create_task(work)

    async def _withdraw(self, instance: DriverClient, work: "list[asyncio.Task[None]]") -> None:
        others = self._instances.get(instance.driver, [])
        if instance in others:
            others.remove(instance)
        if not others:
            self._instances.pop(instance.driver, None)
        for task in work:
            task.cancel()
        await asyncio.wait(work)
        instance.is_connected = False
        await instance.close()
        log.info("driver gone driver=%s endpoint=%s", instance.driver, instance.path)
        self._schedule_wipe(instance.driver)

    # Connections.

    async def _follow(self, instance: DriverClient) -> None:
        async for is_connected in instance.watch_connection():
            text = "driver connected" if is_connected else "driver disconnected"
            log.info("%s driver=%s endpoint=%s", text, instance.driver, instance.path)
            self._schedule_wipe(instance.driver)

    async def _follow_health(self, instance: DriverClient) -> None:
        while True:
            try:
                async for report in instance.watch_health():
                    changed = self._health.update(instance.driver, report)
                    if changed:
                        self._health_changed(instance.driver, changed)
            except HealthUnsupported:
                return
            except PluginError as error:
                log.debug("no health driver=%s error=%r", instance.driver, str(error))
            finally:
                if forgotten := self._health.forget(instance.driver):
                    self._health_changed(instance.driver, forgotten)
            await self._clock.sleep(HEALTH_RETRY_SECONDS)

    # ResourceSlices.

    def _schedule_wipe(self, driver: str) -> None:
        """Remove the slices of a driver that stays away; keep those of a usable one."""
        pending = self._wiping.get(driver)
        if any(each.is_connected for each in self._instances.get(driver, ())):
            if pending is not None:
                del self._wiping[driver]
                pending.cancel()
        elif pending is None and self._tasks is not None:
            self._wiping[driver] = self._tasks.create_task(self._wipe(driver))

    async def _wipe(self, driver: str) -> None:
        await self._clock.sleep(WIPING_SECONDS)
        log.warning("driver stays away, removing its ResourceSlices driver=%s", driver)
        await self._slices.remove(driver)
        self._wiping.pop(driver, None)


def _quoted(services: Any) -> str:
    return "[" + " ".join(f'"{each[:253]}"' for each in list(services)[:16]) + "]"
