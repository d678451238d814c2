"""ServerMembership: the servers of one store, each with a Lease, as kube-apiservers have.

A server announces itself before it answers, and then waits until no other one can take itself for
alone (`ALONE_SECONDS`). A server that could not renew its Lease for long stops answering, and
announces itself anew. So a server that sees no Lease of another knows for a while that no other one
acknowledges writes.
"""

import asyncio
import logging
from base64 import b32encode
from hashlib import sha256
from math import inf
from random import Random
from typing import Any, Final

import msgspec

from kedge.api.coordination_v1 import lease
from kedge.apiserver.prepare import random_uid
from kedge.apiserver.watchcache import Change, Item, WatchCache
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_micro_time, format_time
from kedge.storage.store import RevisionConflict, Store, StoreError

log = logging.getLogger(__name__)

ALONE_SECONDS: Final = 1.0
"""For how long a server may take itself for alone after it has seen that it is."""
JOIN_SECONDS: Final = 1.2
"""How long a server waits between its announcement and its first answer."""
RENEW_SECONDS: Final = 5.0
LIVE_SECONDS: Final = 15
"""A server that has not renewed its Lease for so long is taken for dead: nothing is sent to it."""
GONE_SECONDS: Final = 300.0
"""Its Lease is deleted after so long. Until then no other server takes itself for alone."""
LAPSE_SECONDS: Final = 100.0
"""A server that could not renew its Lease for so long answers no requests until it has."""
NAMESPACE: Final = "kube-system"
PREFIX: Final = lease.RESOURCE.key(NAMESPACE, "apiserver-")
LABELS: Final = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
URL: Final = "kedge.io/server-url"
"""The annotation with the address at which other servers reach this one."""
ADDRESS: Final = "kedge.io/advertised-address"
"""The annotation with the host and the port of a server for pods and other machines."""


class PeerServer(msgspec.Struct, frozen=True):
    """Another server, as its Lease says."""

    name: str
    url: str
    address: str
    """HOST PORT for pods and other machines; empty if they do not reach it."""
    revision: int
    heard: float
    """When the Lease was seen to change, by the clock of this server: other clocks may differ."""


class ServerMembership:
    """The Lease of this server, and those of the others."""

    def __init__(self, store: Store, cache: WatchCache, clock: Clock, identity: str) -> None:
        """`identity` differs between the servers, and is the same after a restart."""
        self._store = store
        self._cache = cache
        self._clock = clock
        self.identity = identity
        self.name = lease_name(identity)
        self._key = lease.RESOURCE.key(NAMESPACE, self.name)
        self._annotations = {URL: "", ADDRESS: ""}
        self._acquired = ""
        self._renewed = clock.monotonic()
        self._answers_from = inf
        self._peers: dict[str, PeerServer] = {}
        self._writing = asyncio.Lock()
        """Held by the one who writes the Lease: several tasks do."""
        self._has_left = False
        leases = cache.of(lease.RESOURCE)
        for item in leases.values():
            self._note(item)
        leases.listeners.add(self._changed)

    @property
    def is_alone(self) -> bool:
        return not self._peers and self.is_current()

    @property
    def has_peers(self) -> bool:
        """Whether there are other servers, dead ones included."""
        return bool(self._peers)

    @property
    def peers(self) -> list[PeerServer]:
        """The other servers that are alive."""
        now = self._clock.monotonic()
        return [each for each in self._peers.values() if now < each.heard + LIVE_SECONDS]

    def is_current(self) -> bool:
        """Whether the others know of this server."""
        now = self._clock.monotonic()
        return now >= self._answers_from and now < self._renewed + LAPSE_SECONDS

    async def join(self) -> None:
        """Announce this server; returns when it may answer. Raises StoreError."""
        await self._renew()
        await self._cache.reached(await self._store.newest())
        if self._peers:
            await self._clock.sleep(JOIN_SECONDS)
        self._answers_from = self._clock.monotonic()

    async def announce(self, url: str, address: str) -> None:
        """Say where other servers reach this one, and where pods do; raises StoreError."""
        self._annotations = {URL: url, ADDRESS: address}
        await self._renew()

    async def leave(self) -> None:
        """Say that this server is no more; the Lease is not renewed again."""
        self._has_left = True
        try:
            async with self._writing:
                found = await self._store.get(self._key)
                if found is not None:
                    await self._store.delete(self._key, expect=found.revision)
        except StoreError as error:
            log.warning("lease of this server not deleted error=%s", error)

    async def run(self) -> None:
        """Renew the Lease, and delete those of servers that are gone, until cancelled."""
        while True:
            await self._clock.sleep(RENEW_SECONDS)
            try:
                await self._renew()
                await self._forget_gone()
            except (StoreError, OSError) as error:
                log.warning("lease of this server not renewed error=%s", error)

    async def _renew(self) -> None:
        began = self._clock.monotonic()
        has_lapsed = began >= self._renewed + LAPSE_SECONDS
        async with self._writing:
            if self._has_left:
                return
            found = await self._store.get(self._key)
            value = self._value(None if found is None else found.value)
            await self._store.put(self._key, value, expect=found.revision if found else 0)
        self._renewed = began
        if has_lapsed:
            self._answers_from = self._clock.monotonic() + JOIN_SECONDS

    async def _forget_gone(self) -> None:
        now = self._clock.monotonic()
        for each in list(self._peers.values()):
            if now >= each.heard + GONE_SECONDS:
                key = lease.RESOURCE.key(NAMESPACE, each.name)
                try:
                    await self._store.delete(key, expect=each.revision)
                except RevisionConflict:
                    continue  # it has come back, or another server was faster
                log.info("lease of a server deleted that is gone name=%s", each.name)

    def _value(self, present: bytes | None) -> bytes:
        now = self._clock.now()
        meta: dict[str, Any] = _metadata_of(present) or {
            "name": self.name,
            "namespace": NAMESPACE,
            "uid": random_uid(Random()),
            "creationTimestamp": format_time(now),
        }
        self._acquired = self._acquired or format_micro_time(now)
        return msgspec.json.encode(
            {
                "kind": lease.RESOURCE.kind,
                "apiVersion": lease.RESOURCE.api_version,
                "metadata": meta | {"labels": LABELS, "annotations": self._annotations},
                "spec": {
                    "holderIdentity": self.identity,
                    "leaseDurationSeconds": LIVE_SECONDS,
                    "acquireTime": self._acquired,
                    "renewTime": format_micro_time(now),
                },
            }
        )

    def _changed(self, change: Change | None) -> None:
        if change is None:
            return
        if change.type == "DELETED":
            self._peers.pop(change.item.key, None)
        else:
            self._note(change.item)

    def _note(self, item: Item) -> None:
        if not item.key.startswith(PREFIX) or item.key == self._key:
            return
        document = item.document()
        meta = document["metadata"]
        if (meta.get("labels") or {}).get(*LABELS) != next(iter(LABELS.values())):
            self._peers.pop(item.key, None)
            return
        notes = meta.get("annotations") or {}
        self._peers[item.key] = PeerServer(
            meta["name"],
            notes.get(URL, ""),
            notes.get(ADDRESS, ""),
            item.revision,
            self._clock.monotonic(),
        )


def lease_name(identity: str) -> str:
    """Return the name of a server's Lease, of the form that kube-apiservers use."""
    return f"apiserver-{b32encode(sha256(identity.encode()).digest())[:26].decode().lower()}"


def _metadata_of(value: bytes | None) -> dict[str, Any]:
    """Return the metadata of a Lease that is kept; empty if there is none that can be read."""
    try:
        document = msgspec.json.decode(value or b"{}")
        return dict(document.get("metadata") or {})
    except (msgspec.DecodeError, AttributeError):
        return {}
