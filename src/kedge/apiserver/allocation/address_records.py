"""AddressRecords: the IPAddress objects that say in the store which Service has which address.

An IPAddress is stored before the Service that gets its address, and deleted after it. So whatever
moment the server is killed at, every address of a stored Service has its IPAddress. An IPAddress
without a Service can be left over, and only keeps its address out of use until it is deleted.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from kedge.api.builtin.service_networks import (
    ALLOCATOR,
    MANAGED_BY_LABEL,
    ServiceName,
    labels,
    parent_reference,
    parent_service,
)
from kedge.api.core_v1.service import RESOURCE as SERVICES
from kedge.api.resource import Resource
from kedge.apiserver.prepare import random_uid
from kedge.apiserver.watchcache import Item, WatchCache
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.storage.store import RevisionConflict, Store, StoreError

log = logging.getLogger(__name__)

_TRIES: Final = 5


class AddressInUse(Exception):
    """The IPAddress exists and belongs to something else."""


class AddressRecords:
    """Stores and deletes the IPAddresses of cluster IPs. The owner must `run` it."""

    def __init__(
        self, store: Store, cache: WatchCache, resource: Resource[Any], clock: Clock, random: Random
    ) -> None:
        self._store = store
        self._cache = cache
        self._resource = resource
        self._clock = clock
        self._random = random
        self._unused: asyncio.Queue[str] = asyncio.Queue()

    def find(self, address: str) -> Item | None:
        return self._cache.of(self._resource).get(self._resource.key("", address))

    def blocks(self, address: str, owner: Callable[[str], str | None]) -> bool:
        """Return whether an IPAddress keeps a writer from this address.

        One that the server stored for a Service which does not have the address does not: its
        deletion is under way, or its Service was never stored. `owner` returns the key of the
        stored Service that has an address.
        """
        item = self.find(address)
        return item is not None and not _is_left_over(item, owner(address))

    async def store(self, address: str, service: ServiceName, is_free: Callable[[], bool]) -> None:
        """Return once the IPAddress of a Service is stored; raises AddressInUse.

        `is_free` says whether an IPAddress that exists may be replaced.
        """
        value = msgspec.json.encode(self._document(address, service))
        for _ in range(_TRIES):
            item = self.find(address)
            if item is not None and not is_free():
                raise AddressInUse(address)
            revision = item.revision if item is not None else 0
            try:
                entry = await self._store.put(
                    self._resource.key("", address), value, expect=revision
                )
            except RevisionConflict:
                await self._cache.reached(self._store.revision)
                continue
            await self._cache.reached(entry.revision)
            return
        raise AddressInUse(address)

    def delete_soon(self, address: str) -> None:
        """Have `run` delete the IPAddress of an address that no Service has."""
        self._unused.put_nowait(address)

    async def run(self, is_taken: Callable[[str], bool]) -> None:
        """Delete IPAddresses that are no longer used, until cancelled."""
        while True:
            address = await self._unused.get()
            item = self.find(address)
            if item is None or is_taken(address) or not _is_managed(item.document()):
                continue
            try:
                await self._store.delete(item.key, expect=item.revision)
            except RevisionConflict:
                continue  # another writer has it now
            except StoreError as error:
                # It only blocks its address; the repair controller deletes it later.
                log.warning("unused IPAddress not deleted address=%s error=%s", address, error)

    def _document(self, address: str, service: ServiceName) -> dict[str, Any]:
        return {
            "kind": self._resource.kind,
            "apiVersion": self._resource.api_version,
            "metadata": {
                "name": address,
                "uid": random_uid(self._random),
                "creationTimestamp": format_time(self._clock.now()),
                "labels": labels(address),
            },
            "spec": {"parentRef": parent_reference(service)},
        }


def _is_managed(document: dict[str, Any]) -> bool:
    """Return whether the server stored the IPAddress, for a Service."""
    managed = (document["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == ALLOCATOR
    return managed and parent_service(document) is not None


def _is_left_over(item: Item, owner: str | None) -> bool:
    document = item.document()
    service = parent_service(document)
    if service is None or not _is_managed(document):
        return False
    return owner is None or owner == SERVICES.key(*service)
