"""The plugin watcher: registers plugins by their sockets in a directory."""

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from kedge.deviceplugin import library
from kedge.deviceplugin import messages as m
from kedge.machinery.clock import Clock
from kedge.node.devices.plugin_channel import PluginChannel, PluginError

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
FIRST_RETRY_SECONDS: Final = 0.5
LONGEST_RETRY_SECONDS: Final = 122.0
MOST_SOCKETS: Final = 256
"""Sockets that are watched at the same time; further ones wait until others vanish."""
_DEEPEST: Final = 8
"""Levels of directories below the watched one."""

Mark = tuple[str, int, int]
"""A socket: its path, and its inode to distinguish it from another at the same path."""

Withdraw = Callable[[], Awaitable[None]]
"""Ends a registration: the socket has vanished."""


class PluginRefused(Exception):
    """A registration is refused; the text is the kubelet's."""


class PluginHandler(Protocol):
    """Registers the plugins of one type."""

    async def adopt(self, info: m.PluginInfo, endpoint: Path) -> Withdraw:
        """Register a plugin. Raises PluginRefused."""
        ...


class PluginWatcher:
    """Watches a directory for sockets of plugins. The owner must `run` it."""

    def __init__(
        self,
        directory: Path,
        handlers: Mapping[str, PluginHandler],
        clock: Clock,
        on_machine: Callable[[str], Path],
    ) -> None:
        """`handlers` are by type, as plugins state it. `on_machine` returns where a path that a
        plugin names is on this machine."""
        self._directory = directory
        self._handlers = handlers
        self._clock = clock
        self._on_machine = on_machine
        self._attended: dict[Mark, asyncio.Task[None]] = {}
        self.registered: set[Path] = set()
        """Sockets whose plugins are registered and have confirmed it."""

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                found = set(sockets(self._directory))
                # A socket that replaces another: the old registration ends before the new begins.
                gone = [self._attended.pop(each) for each in self._attended.keys() - found]
                for task in gone:
                    task.cancel()
                if gone:
                    await asyncio.wait(gone)
                for each in sorted(found - self._attended.keys()):
                    if len(self._attended) >= MOST_SOCKETS:
                        log.warning("too many plugin sockets directory=%s", self._directory)
                        break
                    self._attended[each] = tasks.create_task(self._attend(Path(each[0])))
                await self._clock.sleep(LOOK_SECONDS)

    async def _attend(self, path: Path) -> None:
        """Register the plugin behind a socket, and end the registration when cancelled."""
        await asyncio.to_thread(library.load)
        delay = FIRST_RETRY_SECONDS
        while True:
            withdraw = await self._register(path)
            if withdraw is not None:
                self.registered.add(path)
                try:
                    await asyncio.Event().wait()
                finally:
                    self.registered.discard(path)
                    await withdraw()
            await self._clock.sleep(delay)
            delay = min(delay * 2, LONGEST_RETRY_SECONDS)

    async def _register(self, path: Path) -> Withdraw | None:
        caller = PluginChannel(path.name, path, self._clock)
        withdraw: Withdraw | None = None
        try:
            await caller.dial()
            info = await caller.info()
            try:
                withdraw = await self._adopted(info, path)
            except PluginRefused as error:
                log.warning("plugin refused socket=%s error=%r", path, str(error))
                await caller.notify(f"RegisterPlugin error -- {error}")
                return None
            await caller.notify("")
            found, withdraw = withdraw, None
            return found
        except PluginError as failure:
            log.warning("plugin does not answer socket=%s error=%r", path, str(failure))
            return None
        finally:
            await caller.close()
            if withdraw is not None:
                await withdraw()

    async def _adopted(self, info: m.PluginInfo, path: Path) -> Withdraw:
        handler = self._handlers.get(info.type)
        if handler is None:
            raise PluginRefused(
                f"no handler registered for plugin type: {info.type} at socket {path}"
            )
        try:
            return await handler.adopt(info, self._on_machine(info.endpoint or str(path)))
        except (PluginRefused, PluginError):
            raise
        except Exception as error:
            # A plugin must not end the agent, whatever it states about itself.
            log.exception("plugin not adopted socket=%s", path)
            raise PluginRefused(f"plugin registration failed with err: {error}") from error


def sockets(directory: Path, depth: int = _DEEPEST) -> Iterator[Mark]:
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
            if depth:
                yield from sockets(Path(entry.path), depth - 1)
        elif stat.S_ISSOCK(status.st_mode):
            yield entry.path, status.st_ino, status.st_ctime_ns
