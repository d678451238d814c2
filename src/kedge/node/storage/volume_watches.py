"""Watches of PersistentVolumes: those of the node, and those of other drivers that are mounted.

A node may not see other volumes. It lists its own by their label, and watches each of the others by
name while a pod has it mounted.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kedge.api.storage_v1.local_volumes import VOLUME_NODE, node_label
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer, Key
from kedge.machinery.clock import Clock
from kedge.node.storage.volume_objects import VOLUME_VIEW, MountableVolume

VolumeHandler = Callable[[str], None]
"""Called with the name of a volume that has changed."""
_MOST_WATCHES: Final = 4096
"""Volumes watched by name. A node has fewer pods than that, each with few volumes."""


def own_volumes(node: str) -> str:
    """Return the selector of a node's own volumes."""
    return f"{VOLUME_NODE}={node_label(node)}"


class VolumeWatches:
    """The owner must `run` it."""

    def __init__(self, client: Client, node: str, clock: Clock, changed: VolumeHandler) -> None:
        self._client = client
        self._clock = clock
        self._changed = changed
        self._own: Cache[MountableVolume] = self._cache()
        self._informer = Informer(client, VOLUME_VIEW, self._own, clock, labels=own_volumes(node))
        self._others: dict[str, Cache[MountableVolume]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for name in self._others:
                self._start(name)
            await self._informer.run()

    def get(self, name: str) -> MountableVolume | None:
        """Return a volume as it was last seen."""
        found = self._own.get(name)
        if found is None and name in self._others:
            found = self._others[name].get(name)
        return found

    def hold(self, names: Iterable[str]) -> None:
        """Watch these volumes by name, and no others."""
        wanted = set(sorted(names)[:_MOST_WATCHES])
        for name in self._others.keys() - wanted:
            del self._others[name]
            if (task := self._running.pop(name, None)) is not None:
                task.cancel()
        for name in wanted - self._others.keys():
            self._others[name] = self._cache()
            self._start(name)

    def _cache(self) -> Cache[MountableVolume]:
        made: Cache[MountableVolume] = Cache()
        made.listen(self._tell)
        return made

    def _tell(self, key: Key) -> None:
        self._changed(key.name)

    def _start(self, name: str) -> None:
        if self._tasks is None or name in self._running:
            return
        informer = Informer(
            self._client,
            VOLUME_VIEW,
            self._others[name],
            self._clock,
            fields=f"metadata.name={name}",
        )
        self._running[name] = self._tasks.create_task(informer.run())
