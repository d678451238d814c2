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
from kedge.apiserver.allocation.ledger import RECORD_SECONDS
from kedge.apiserver.prepare import random_uid
from kedge.apiserver.watchcache import Item, WatchCache
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time, parse_time
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
        self._unused: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    def find(self, address: str) -> Item | None:
        return self._cache.of(self._resource).get(self._resource.key("", address))

    def blocks(
        self, address: str, owner: Callable[[str], str | None], is_dead: Callable[[int], bool]
    ) -> bool:
        """Return whether an IPAddress keeps a writer from this address.

        One that a server stored for a Service which does not have the address does not: its
        deletion is under way, or its Service was never stored. `owner` returns the key of the
        stored Service that has an address. `is_dead` returns whether no Service can be stored any
        more for an IPAddress of a revision; without another server, each Service that is not
        stored is known to this one.
        """
        item = self.find(address)
        if item is None:
            return False
        if not _is_left_over(item, owner(address)):
            return True
        return not is_dead(item.revision) and not self._is_old(item)

    def _is_old(self, item: Item) -> bool:
        """Whether the request that stored an IPAddress is over for sure."""
        try:
            made = parse_time(item.document()["metadata"].get("creationTimestamp") or "")
        except ValueError:
            return False
        return (self._clock.now() - made).total_seconds() > RECORD_SECONDS

    async def store(self, address: str, service: ServiceName, is_free: Callable[[], bool]) -> int:
        """Return the revision of the IPAddress of a Service, once it is stored; raises
        AddressInUse.

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
            except RevisionConflict as race:
                won = race.current.revision if race.current is not None else 0
                await self._cache.reached(max(won, self._store.revision))
                continue
            await self._cache.reached(entry.revision)
            return entry.revision
        raise AddressInUse(address)

    def delete_soon(self, address: str, up_to: int) -> None:
        """Have `run` delete the IPAddress of an address that no Service has, unless it was written
        after a revision: then it is that of another Service."""
        self._unused.put_nowait((address, up_to))

    async def run(self, is_taken: Callable[[str], bool]) -> None:
        """Delete IPAddresses that are no longer used, until cancelled."""
        while True:
            address, up_to = await self._unused.get()
            item = self.find(address)
            if (
                item is None
                or item.revision > up_to
                or is_taken(address)
                or not _is_managed(item.document())
            ):
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
