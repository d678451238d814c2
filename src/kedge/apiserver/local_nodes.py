"""LocalNodes: the nodes beside the server, which choose their addresses themselves.

Such a node has an address in the network of its pods. The server issues it a certificate with that
address. If the server listens on loopback, it listens on the addresses of these nodes too, at its
own port, and publishes them as the endpoints of the Service `kubernetes`: a loopback address cannot
stand in an EndpointSlice, for it leads every pod to itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from kedge.api.builtin.service_networks import LOOPBACK_PODS, POD_NETWORK, is_allocatable
from kedge.api.core_v1 import node
from kedge.apiserver import bootstrap
from kedge.apiserver.api import Api
from kedge.apiserver.watchcache import Change, Item
from kedge.machinery.errors import StatusError
from kedge.storage.store import StoreError

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 2.0
"""Seconds between two tries to listen on an address that the machine does not have yet."""

Listen = Callable[[str], Awaitable[object]]
Certify = Callable[[str, str], Awaitable[None]]


class LocalNodes:
    """Follows the addresses of the nodes of this machine. The owner must `run` it."""

    def __init__(
        self,
        api: Api,
        nodes: Iterable[str],
        port: int,
        *,
        certify: Certify,
        listen: Listen | None = None,
        is_local: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`nodes` are the names of the nodes that start with the server. `certify` sees that a node
        has a certificate for an address. `listen` opens a listener at an address and raises
        OSError; None if the server has endpoints without it. `is_local` returns whether a node that
        is registered later is of this machine."""
        self._api = api
        self._nodes = {name: node.RESOURCE.key("", name) for name in nodes}
        self._first = set(self._nodes.values())
        """The keys of the nodes that start with the server: others are not waited for."""
        self._port = port
        self._certify = certify
        self._listen = listen
        self._is_local = is_local
        self._certified: set[tuple[str, str]] = set()
        self._open: set[str] = set()
        self._published: list[str] = []
        self._changed = asyncio.Event()
        self._ready: set[str] = set()
        self._wait_over = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        nodes = self._api.cache.of(node.RESOURCE)
        nodes.listeners.add(self._node_changed)
        # Nodes that were added while an earlier server ran.
        for item in nodes.values():
            self._admit(item)
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

    async def wait_until_ready(self, seconds: float) -> None:
        """Return when every node that starts with this server has reported to it that it is ready,
        or after so many seconds. Reports to a server that ran before do not count."""
        async with asyncio.TaskGroup() as tasks:
            patience = tasks.create_task(self._end_wait(seconds))
            await self._wait_over.wait()
            patience.cancel()

    async def _end_wait(self, seconds: float) -> None:
        await self._api.clock.sleep(seconds)
        self._wait_over.set()

    def _node_changed(self, change: Change | None) -> None:
        if change is None:
            return
        if change.type == "ADDED":
            self._admit(change.item)
        if change.item.key not in self._nodes.values():
            return
        self._changed.set()
        if not self._wait_over.is_set() and is_ready(change.item.document()):
            self._ready.add(change.item.key)
            if self._ready >= self._first:
                self._wait_over.set()

    def _admit(self, item: Item) -> None:
        """Follow a node that `kedge up --nodes` has added to the running cluster, too."""
        name = item.key.rpartition("/")[2]
        if name not in self._nodes and self._is_local(name):
            self._nodes[name] = item.key

    async def _follow(self) -> bool:
        """Listen, publish and issue certificates; return whether everything succeeded."""
        cache = self._api.cache.of(node.RESOURCE)
        found = {
            name: address
            for name, key in self._nodes.items()
            if (item := cache.get(key)) and (address := address_of(item.document()))
        }
        is_published = await self._publish(sorted(set(found.values())))
        return await self._issue(found) and is_published

    async def _issue(self, found: Mapping[str, str]) -> bool:
        """Issue certificates to nodes that have a new address."""
        try:
            for each in found.items() - self._certified:
                await self._certify(*each)
                self._certified.add(each)
        except (OSError, ValueError) as error:
            log.warning("certificate of a node not issued, retrying error=%s", error)
            return False
        return True

    async def _publish(self, wanted: list[str]) -> bool:
        """Listen at addresses and publish those where that succeeds."""
        if self._listen is None:
            return True
        for address in wanted:
            await self._try(address, self._listen)
        answering = [address for address in wanted if address in self._open]
        try:
            if answering and answering != self._published:
                await bootstrap.publish(self._api, answering, self._port)
                self._published = answering
        except (StoreError, StatusError) as error:
            log.warning("endpoints of the API server not published, retrying error=%s", error)
            return False
        return answering == wanted

    async def _try(self, address: str, listen: Listen) -> None:
        if address in self._open:
            return
        try:
            await listen(address)
        except OSError as error:
            # The agent has not created its bridge yet, or is in another network namespace.
            log.debug("not listening address=%s error=%s", address, error)
        else:
            self._open.add(address)


def is_ready(document: Mapping[str, Any]) -> bool:
    """Return whether a node is ready."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def address_of(document: Mapping[str, Any]) -> str:
    """Return the address of a node in the network of its pods; empty if it has none.

    No other address counts: the server must not listen on the network, nor sign a certificate for
    an address of another machine or of the Service `kubernetes`, because a node says so.
    """
    for each in (document.get("status") or {}).get("addresses") or ():
        address = each.get("address", "")
        if each.get("type") == "InternalIP" and any(
            is_allocatable(network, address) for network in (POD_NETWORK, LOOPBACK_PODS)
        ):
            return str(address)
    return ""
