"""Registry: plugins that register, and what becomes of them until they are gone."""

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
from kedge.node.devices.plugin import DIAL_SECONDS, PluginClient, PluginError

log = logging.getLogger(__name__)

GIVEN_UP_SECONDS: Final = 300.0
"""How long the devices of a plugin that is gone are counted."""
LATE_SECONDS: Final = 1.0
"""How long a plugin that registers may take to listen before it is answered all the same."""
_STEP: Final = 0.05

Changed = Callable[[set[str]], None]
"""Told whenever the ledger has changed, with the pods that are to look at their devices."""


class PluginRefused(Exception):
    """A plugin is not taken; the text is upstream's."""


class PluginRegistry:
    """The plugins of one node. Somebody must `run` it."""

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
        """Told when the devices of a plugin that has registered are known."""

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                # Also without plugins there is somebody to own those to come.
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    def plugin(self, resource: str) -> PluginClient | None:
        """The one that offers a resource, if it can be spoken to."""
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
        """A plugin introduces itself. Raises Refusal."""
        check(request)
        plugin = PluginClient(
            request.resource_name, self._directory / request.endpoint, self._clock
        )
        if await self._appears(plugin.path, LATE_SECONDS):
            await self._connect(plugin)
            self._own(self._serve(plugin))
        else:
            # Plugins of old listen when they have been answered.
            self._own(self._serve_late(plugin))

    async def adopt(self, resource: str, path: Path) -> None:
        """Take a plugin that was found otherwise. Raises Refusal."""
        if not is_extended(resource):
            raise PluginRefused(f'the ResourceName "{resource}" is invalid')
        plugin = PluginClient(resource, path, self._clock)
        await self._connect(plugin)
        self._own(self._serve(plugin))

    def _own(self, work: Any) -> None:
        if self._tasks is None:
            work.close()
            raise PluginRefused("the node agent is ending")
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

    # The life of a plugin.

    async def _serve_late(self, plugin: PluginClient) -> None:
        if not await self._appears(plugin.path, DIAL_SECONDS):
            text = "registered but never listened resource=%s endpoint=%s"
            log.warning(text, plugin.resource, plugin.path.name)
            return
        try:
            await self._connect(plugin)
        except PluginRefused as error:
            log.warning("plugin lost resource=%s error=%r", plugin.resource, str(error))
        else:
            await self._serve(plugin)

    async def _serve(self, plugin: PluginClient) -> None:
        """Hear of its devices until the connection ends or another plugin takes over."""
        resource = plugin.resource
        await self._replace(plugin)
        self._ledger.offered(resource, plugin.options)
        log.info("plugin registered resource=%s endpoint=%s", resource, plugin.path.name)
        told = False
        try:
            async for devices in plugin.watch():
                if plugin.stopped:
                    break
                self._changed(self._ledger.listed(resource, devices))
                if not told:
                    told = True
                    self.returned(resource)
        except PluginError as error:
            log.warning("plugin lost resource=%s error=%r", resource, str(error))
        finally:
            await plugin.close()
        if self._plugins.get(resource) is plugin:
            self._changed(self._ledger.lost(resource))
            await self._give_up(plugin)

    async def _replace(self, plugin: PluginClient) -> None:
        before = self._plugins.get(plugin.resource)
        self._plugins[plugin.resource] = plugin
        if before is not None:
            await before.close()

    async def _give_up(self, plugin: PluginClient) -> None:
        await self._clock.sleep(GIVEN_UP_SECONDS)
        if self._plugins.get(plugin.resource) is plugin:
            log.warning("plugin did not come back resource=%s", plugin.resource)
            self._changed(self._ledger.given_up(plugin.resource))


def _there(path: Path) -> bool:
    return path.exists()


def check(request: m.RegisterRequest) -> None:
    """Raises Refusal."""
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
