"""The plugin watcher: registers plugins by their sockets in a directory."""

import asyncio
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kedge.deviceplugin import library
from kedge.deviceplugin import messages as m
from kedge.machinery.clock import Clock
from kedge.node.devices.plugin import PluginClient, PluginError
from kedge.node.devices.registry import PluginRefused, PluginRegistry

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
_KIND: Final = "DevicePlugin"

Mark = tuple[str, int, int]
"""A socket: its path, and its inode to distinguish it from another at the same path."""


class PluginWatcher:
    """Watches a directory for sockets of plugins. The owner must `run` it."""

    def __init__(self, directory: Path, registry: PluginRegistry, clock: Clock) -> None:
        self._directory = directory
        self._registry = registry
        self._clock = clock
        self._known: set[Mark] = set()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                found = set(sockets(self._directory))
                for each in sorted(found - self._known):
                    tasks.create_task(self._welcome(Path(each[0])))
                self._known = found
                await self._clock.sleep(LOOK_SECONDS)

    async def _welcome(self, path: Path) -> None:
        await asyncio.to_thread(library.load)
        caller = PluginClient(path.name, path, self._clock)
        try:
            await caller.dial()
            info = await caller.info()
            error = await self._taken(info, path)
            if error:
                log.warning("plugin refused socket=%s error=%r", path, error)
            await caller.notify(error)
        except PluginError as failure:
            log.warning("plugin does not answer socket=%s error=%r", path, str(failure))
        finally:
            await caller.close()

    async def _taken(self, info: m.PluginInfo, path: Path) -> str:
        """Return why a plugin is refused; empty if it is registered."""
        if info.type != _KIND:
            return f"no handler registered for plugin type: {info.type} at socket {path}"
        if m.VERSION not in info.supported_versions:
            versions = " ".join(info.supported_versions)
            return f"manager unsupported version: [{versions}], supported version is {m.VERSION}"
        try:
            await self._registry.adopt(info.name, Path(info.endpoint or path))
        except PluginRefused as error:
            return str(error)
        return ""


def sockets(directory: Path) -> Iterator[Mark]:
    """Return all sockets in a directory and below."""
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode):
            yield from sockets(Path(entry.path))
        elif stat.S_ISSOCK(status.st_mode):
            yield entry.path, status.st_ino, status.st_ctime_ns
