"""Removes the links of pods, all that wait together in one request.

The kernel removes a link in some tens of milliseconds, in which it only waits for other processors,
and forty links of one group in the same time. The requests are made in a thread, so that other
pods of the node do not wait.
"""

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kedge.node.network.netlink import Netlink
from kedge.node.network.network_place import MACHINE, NetworkPlace

_THREAD: Final = ThreadPoolExecutor(1, "link-removal")


class LinkRemover:
    """Removes links of one network namespace."""

    def __init__(self, namespace: NetworkPlace = MACHINE) -> None:
        self._netlink = Netlink.within(namespace)
        self._waiting: set[str] = set()
        self._turn = asyncio.Lock()

    async def remove(self, name: str) -> None:
        """Return when the link is gone. Idempotent."""
        self._waiting.add(name)
        async with self._turn:
            if name not in self._waiting:
                return
            names, self._waiting = self._waiting, set()
            work = asyncio.get_running_loop().run_in_executor(_THREAD, self._remove_all, names)
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                # The socket is for one thread.
                await work
                raise

    def _remove_all(self, names: set[str]) -> None:
        if len(names) > 1:
            # No other link of the machine has this number, and each removal has its own.
            group = 1 << 30 | int.from_bytes(os.urandom(4)) >> 2
            for name in names:
                # The kernel may be removing it with the network namespace of its pod.
                with contextlib.suppress(OSError):
                    self._netlink.set_group(name, group)
            with contextlib.suppress(OSError):
                self._netlink.remove_group(group)
        for name in names:
            self._netlink.remove_link(name)

    def close(self) -> None:
        self._netlink.close()
