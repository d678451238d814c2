"""The registry of device plugins."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kedge.api.core_v1.resource_names import is_extended
from kedge.deviceplugin import library, methods
from kedge.deviceplugin import messages as m
from kedge.machinery.clock import Clock
from kedge.node.devices.grpc_socket import Handlers
from kedge.node.devices.ledger import DeviceLedger
from kedge.node.devices.plugin import PluginClient
from kedge.node.devices.plugin_channel import DIAL_SECONDS, PluginError
from kedge.node.devices.watcher import PluginRefused, Withdraw

log = logging.getLogger(__name__)

GIVEN_UP_SECONDS: Final = 300.0
"""Seconds for which the devices of a lost plugin stay in the node's capacity."""
LATE_SECONDS: Final = 1.0
"""Seconds for which a registering plugin may take to listen before its request is answered."""
_STEP: Final = 0.05

Changed = Callable[[set[str]], None]
"""Called after each change of the ledger, with the pods whose devices have changed."""


class PluginRegistry:
    """The plugins of one node. The owner must `run` it."""

    def __init__(
        self, directory: Path, ledger: DeviceLedger, clock: Clock, changed: Changed
    ) -> None:
        self._directory = directory
        self._ledger = ledger
        self._clock = clock
        self._changed = changed
        self._plugins: dict[str, PluginClient] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self.returned: Callable[[str], None] = lambda resource: None
        """Called when the devices of a registered plugin are known."""

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                # Keeps the task group open while there are no plugins.
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    def plugin(self, resource: str) -> PluginClient | None:
        """Return the connected plugin of a resource; None if there is none."""
        found = self._plugins.get(resource)
        return found if found is not None and not found.stopped else None

    # Registration.

    def handlers(self) -> Handlers:
        return {methods.REGISTER: self._register}

    async def _register(self, request: m.RegisterRequest, context: Any) -> m.Empty:
        try:
            await self.register(request)
        except PluginRefused as error:
            log.warning("plugin refused resource=%s error=%r", request.resource_name, str(error))
            await context.abort(library.load().StatusCode.UNKNOWN, str(error))
        return m.Empty()

    async def register(self, request: m.RegisterRequest) -> None:
        """Serve Register. Raises PluginRefused."""
        check(request)
        plugin = PluginClient(
            request.resource_name, self._directory / request.endpoint, self._clock
        )
        if await self._appears(plugin.path, LATE_SECONDS):
            await self._connect(plugin)
            self._own(self._serve(plugin))
        else:
            # Old plugins listen only after the answer.
            self._own(self._serve_late(plugin))

    async def adopt(self, info: m.PluginInfo, endpoint: Path) -> Withdraw:
        """Register a plugin that the plugin watcher has found. Raises PluginRefused."""
        if m.VERSION not in info.supported_versions:
            versions = " ".join(info.supported_versions)
            raise PluginRefused(
                f"manager unsupported version: [{versions}], supported version is {m.VERSION}"
            )
        if not is_extended(info.name):
            raise PluginRefused(f'the ResourceName "{info.name}" is invalid')
        plugin = PluginClient(info.name, endpoint, self._clock)
        await self._connect(plugin)
        self._own(self._serve(plugin))
        # The end of the plugin's own stream is what ends the registration.
        return _nothing

    def _own(self, work: Any) -> None:
        if self._tasks is None:
            work.close()
            raise PluginRefused("the node agent is shutting down")
        self._tasks.create_task(work)

    async def _appears(self, path: Path, seconds: float) -> bool:
        until = self._clock.monotonic() + seconds
        while not _there(path):
            if self._clock.monotonic() >= until:
                return False
            await self._clock.sleep(_STEP)
        return True

    async def _connect(self, plugin: PluginClient) -> None:
        try:
            await plugin.dial()
            await plugin.ask_options()
        except PluginError as error:
            await plugin.close()
            raise PluginRefused(str(error)) from error

    # Connections.

    async def _serve_late(self, plugin: PluginClient) -> None:
        if not await self._appears(plugin.path, DIAL_SECONDS):
            text = "plugin registered but does not listen resource=%s endpoint=%s"
            log.warning(text, plugin.resource, plugin.path.name)
            return
        try:
            await self._connect(plugin)
        except PluginRefused as error:
            log.warning("plugin lost resource=%s error=%r", plugin.resource, str(error))
        else:
            await self._serve(plugin)

    async def _serve(self, plugin: PluginClient) -> None:
        """Take over the plugin's devices until the connection ends or another plugin replaces
        it."""
        resource = plugin.resource
        await self._replace(plugin)
        self._ledger.register(resource, plugin.options)
        log.info("plugin registered resource=%s endpoint=%s", resource, plugin.path.name)
        told = False
        try:
            async for devices in plugin.watch():
                if plugin.stopped:
                    break
                self._changed(self._ledger.set_devices(resource, devices))
                if not told:
                    told = True
                    self.returned(resource)
        except PluginError as error:
            log.warning("plugin lost resource=%s error=%r", resource, str(error))
        finally:
            await plugin.close()
        if self._plugins.get(resource) is plugin:
            self._changed(self._ledger.mark_lost(resource))
            await self._give_up(plugin)

    async def _replace(self, plugin: PluginClient) -> None:
        before = self._plugins.get(plugin.resource)
        self._plugins[plugin.resource] = plugin
        if before is not None:
            await before.close()

    async def _give_up(self, plugin: PluginClient) -> None:
        await self._clock.sleep(GIVEN_UP_SECONDS)
        if self._plugins.get(plugin.resource) is plugin:
            log.warning("plugin did not register again resource=%s", plugin.resource)
            self._changed(self._ledger.remove_devices(plugin.resource))


async def _nothing() -> None:
    return


def _there(path: Path) -> bool:
    return path.exists()


def check(request: m.RegisterRequest) -> None:
    """Check a registration. Raises PluginRefused."""
    if request.version != m.VERSION:
        raise PluginRefused(
            f'requested API version "{request.version}" is not supported by kubelet. '
            f'Supported version is ["{m.VERSION}"]'
        )
    if not is_extended(request.resource_name):
        raise PluginRefused(f'the ResourceName "{request.resource_name}" is invalid')
    name = request.endpoint
    if not name or "/" in name or name in (".", "..") or name == m.SOCKET:
        raise PluginRefused(
            f'the endpoint "{name}" is not the name of a socket in the plugin directory'
        )
