"""ApiEndpoints: the endpoints of the Service `kubernetes` if the server listens on loopback.

A loopback address cannot stand in an EndpointSlice, for it leads every pod to itself. The nodes
beside the server have an address each in the network of their pods. The server listens there too,
at its own port, so that what is published answers, whether or not the agents run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from kedge.api.core_v1 import node
from kedge.apiserver import bootstrap
from kedge.apiserver.api import Api
from kedge.apiserver.watchcache import Change
from kedge.machinery.errors import StatusError
from kedge.machinery.interfaces import is_reachable
from kedge.storage.store import StoreError

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 2.0
"""Seconds between two tries to listen on an address that the machine does not have yet."""

Listen = Callable[[str], Awaitable[object]]


class ApiEndpoints:
    """Follows the addresses of the nodes of this machine. The owner must `run` it."""

    def __init__(self, api: Api, nodes: Iterable[str], port: int, listen: Listen) -> None:
        """`nodes` are the names of the nodes of this machine; `listen` opens a listener at an
        address and raises OSError."""
        self._api = api
        self._keys = [node.RESOURCE.key("", name) for name in nodes]
        self._port = port
        self._listen = listen
        self._open: set[str] = set()
        self._published: list[str] = []
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        nodes = self._api.cache.of(node.RESOURCE)
        nodes.listeners.add(self._node_changed)
        self._changed.set()
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                if not await self._follow():
                    await self._api.clock.sleep(RETRY_SECONDS)
                    self._changed.set()
        finally:
            nodes.listeners.discard(self._node_changed)

    def _node_changed(self, change: Change | None) -> None:
        if change is not None and change.item.key in self._keys:
            self._changed.set()

    async def _follow(self) -> bool:
        """Listen and publish; return whether everything succeeded."""
        cache = self._api.cache.of(node.RESOURCE)
        found = [item.document() for key in self._keys if (item := cache.get(key))]
        wanted = addresses_of(found)
        for address in wanted:
            await self._try(address)
        answering = [address for address in wanted if address in self._open]
        try:
            if answering and answering != self._published:
                await bootstrap.publish(self._api, answering, self._port)
                self._published = answering
        except (StoreError, StatusError) as error:
            log.warning("endpoints of the API server not published, retrying error=%s", error)
            return False
        return answering == wanted

    async def _try(self, address: str) -> None:
        if address in self._open:
            return
        try:
            await self._listen(address)
        except OSError as error:
            # The agent has not created its bridge yet, or is in another network namespace.
            log.debug("not listening address=%s error=%s", address, error)
        else:
            self._open.add(address)


def addresses_of(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the addresses of nodes that others can reach, in order."""
    found = {
        each["address"]
        for document in nodes
        for each in (document.get("status") or {}).get("addresses") or ()
        if each.get("type") == "InternalIP" and is_reachable(each.get("address", ""))
    }
    return sorted(found)
