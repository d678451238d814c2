"""ServerMembership: the servers of one store, each with a Lease, as kube-apiservers have.

A server announces itself before it answers, and then waits until no other one can take itself for
alone (`ALONE_SECONDS`). A server that could not renew its Lease for long stops answering, and
announces itself anew. So a server that sees no Lease of another knows for a while that no other one
acknowledges writes.

Others may write Leases in kube-system, too. A Lease without the proof of a server of this cluster
is that of a kube-apiserver, or forged: this server then asks the store more often than it must,
and sends nothing to an address that such a Lease names. A Lease that another client
deleted still counts for as long as its server may answer.
"""

import asyncio
import logging
from base64 import b32encode
from hashlib import sha256
from math import inf
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api.coordination_v1 import lease
from kedge.apiserver.prepare import random_uid
from kedge.apiserver.several.lease_proof import (
    ADDRESS,
    BOOT,
    PROOF,
    REVISION,
    URL,
    LeaseProof,
)
from kedge.apiserver.watchcache import Change, Item, WatchCache
from kedge.machinery.clock import Clock, lease_clock
from kedge.machinery.durations import format_micro_time, format_time, parse_time
from kedge.storage.store import RevisionConflict, Store, StoreError

log = logging.getLogger(__name__)

ALONE_SECONDS: Final = 1.0
"""For how long a server may take itself for alone after it has seen that it is."""
JOIN_SECONDS: Final = 1.2
"""How long a server waits between its announcement and its first answer."""
RENEW_SECONDS: Final = 5.0
LIVE_SECONDS: Final = 15
"""A server that has not renewed its Lease for so long is taken for dead: nothing is sent to it."""
TWIN_SECONDS: Final = 60
"""How old the Lease may be of a server with the same name that is looked for at the start."""
GONE_SECONDS: Final = 300.0
"""Its Lease is deleted after so long. Until then no other server takes itself for alone."""
LAPSE_SECONDS: Final = 100.0
"""A server that could not renew its Lease for so long answers no requests until it has."""
_TRIES: Final = 10
NAMESPACE: Final = "kube-system"
PREFIX: Final = lease.RESOURCE.key(NAMESPACE, "apiserver-")
LABELS: Final = {"apiserver.kubernetes.io/identity": "kube-apiserver"}


class IdentityInUse(StoreError):
    """Another server with the name of this one is alive."""

    def __init__(self, identity: str) -> None:
        super().__init__(
            f"another server of this cluster is {identity}, too. Servers are told apart by"
            " /etc/machine-id, host name and directory: give this machine a host name or a"
            " machine-id of its own, and start it again"
        )


class PeerServer(msgspec.Struct, frozen=True):
    """Another server, as its Lease says."""

    name: str
    url: str
    """Where it takes requests; empty if its Lease has no proof."""
    address: str
    """HOST PORT for pods and other machines; empty if they do not reach it."""
    revision: int
    heard: float
    """When it was seen to renew the Lease, by the clock of this server: other clocks may differ."""
    renewal: int = 0
    """Which renewal that was; 0 if its Lease has no proof."""
    is_deleted: bool = False
    """Whether the Lease is gone, though its server did not say that it leaves."""


class ServerMembership:
    """The Lease of this server, and those of the others."""

    def __init__(
        self,
        store: Store,
        cache: WatchCache,
        clock: Clock,
        *,
        identity: str,
        proof: LeaseProof,
        boot: str = "",
    ) -> None:
        """`identity` differs between the servers, and is the same after a restart. `boot` differs
        after each start of the machine."""
        self._store = store
        self._cache = cache
        self._clock = clock
        self._leases = lease_clock(clock)
        """A cluster for tests may stop its clock. Its Lease is renewed nevertheless, as the others
        go on."""
        self.identity = identity
        self.name = lease_name(identity)
        self._key = lease.RESOURCE.key(NAMESPACE, self.name)
        self._proof = proof
        self._annotations = {URL: "", ADDRESS: "", BOOT: boot}
        self._acquired = ""
        self._last_renewal = 0
        self._renewed = self._leases.monotonic()
        self._answers_from = inf
        self._peers: dict[str, PeerServer] = {}
        self._newest: dict[str, int] = {}
        """By key, the newest renewal that a server has proven."""
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
        now = self._leases.monotonic()
        return [each for each in self._peers.values() if now < each.heard + LIVE_SECONDS]

    def is_current(self) -> bool:
        """Whether the others know of this server."""
        now = self._leases.monotonic()
        return now >= self._answers_from and now < self._renewed + LAPSE_SECONDS

    async def join(self) -> None:
        """Announce this server; returns when it may answer. Raises StoreError."""
        await self._look_for_twin()
        await self._renew()
        await self._cache.reached(await self._store.newest())
        if self._peers:
            await self._leases.sleep(JOIN_SECONDS)
        self._answers_from = self._leases.monotonic()

    async def announce(self, url: str, address: str) -> None:
        """Say where other servers reach this one, and where pods do; raises StoreError."""
        self._annotations |= {URL: url, ADDRESS: address}
        await self._renew()

    async def leave(self) -> None:
        """Say that this server is no more; the Lease is not renewed again."""
        if self._has_left:
            return
        self._has_left = True
        try:
            async with self._writing:
                found = await self._store.get(self._key)
                if found is None:
                    return
                farewell = self._value(found.value, holder="")
                said = await self._store.put(self._key, farewell, expect=found.revision)
                await self._store.delete(self._key, expect=said.revision)
        except StoreError as error:
            log.warning("lease of this server not deleted error=%s", error)

    async def run(self) -> None:
        """Renew the Lease, and delete those of servers that are gone, until cancelled. Raises
        IdentityInUse."""
        while True:
            await self._leases.sleep(RENEW_SECONDS)
            try:
                await self._renew()
                await self._forget_gone()
            except IdentityInUse:
                raise
            except (StoreError, OSError) as error:
                log.warning("lease of this server not renewed error=%s", error)

    async def _renew(self) -> None:
        began = self._leases.monotonic()
        has_lapsed = began >= self._renewed + LAPSE_SECONDS
        async with self._writing:
            if self._has_left:
                return
            await self._write()
        self._renewed = began
        if has_lapsed:
            self._answers_from = self._leases.monotonic() + JOIN_SECONDS

    async def _write(self) -> None:
        """Write the Lease, also if another client writes it over and over; raises StoreError."""
        present = await self._store.get(self._key)
        for tries_left in reversed(range(_TRIES)):
            if present is not None:
                self._check_twin(present.value)
            value = self._value(present.value if present else None, holder=self.identity)
            try:
                await self._store.put(self._key, value, expect=present.revision if present else 0)
                return
            except RevisionConflict as race:
                if not tries_left:
                    raise
                present = race.current

    async def _look_for_twin(self) -> None:
        """Wait whether a server with this name is alive; raises IdentityInUse. One that was started
        since this machine was has ended, as its successor starts now."""
        found = await self._store.get(self._key)
        renewal = self._renewal_in(found.value if found else None)
        if found is None or not renewal:
            return
        document = _document(found.value)
        notes, renewed = document["metadata"]["annotations"], document["spec"]["renewTime"]
        age = abs((self._clock.now() - parse_time(renewed)).total_seconds())
        if notes.get(BOOT) == self._annotations[BOOT] or age > TWIN_SECONDS:
            return
        log.info(
            "waiting whether another server has the name of this one identity=%s", self.identity
        )
        await self._leases.sleep(RENEW_SECONDS + 1)
        again = await self._store.get(self._key)
        if self._renewal_in(again.value if again else None) > renewal:
            self._has_left = True
            raise IdentityInUse(self.identity)

    def _check_twin(self, present: bytes) -> None:
        """Raise IdentityInUse if another server, which began before this one, renews the Lease."""
        if not self._last_renewal or self._renewal_in(present) <= self._last_renewal:
            return
        log.error("another server renews the lease of this one identity=%s", self.identity)
        if _document(present)["spec"]["acquireTime"] <= self._acquired:
            self._has_left = True  # the Lease is that of the other one
            raise IdentityInUse(self.identity)

    async def _forget_gone(self) -> None:
        now = self._leases.monotonic()
        for key, each in list(self._peers.items()):
            if each.is_deleted and now >= each.heard + LAPSE_SECONDS:
                del self._peers[key]
            elif not each.is_deleted and now >= each.heard + GONE_SECONDS:
                try:
                    await self._store.delete(key, expect=each.revision)
                except RevisionConflict:
                    continue  # it has come back, or another server was faster
                log.info("lease of a server deleted that is gone name=%s", each.name)

    def _value(self, present: bytes | None, *, holder: str) -> bytes:
        """Return the Lease; one without a holder says that the server leaves."""
        now = self._clock.now()
        self._acquired = self._acquired or format_micro_time(now)
        self._last_renewal = max(
            self._store.revision, self._last_renewal, self._renewal_in(present) + 1
        )
        notes = {**self._annotations, REVISION: str(self._last_renewal)}
        document: dict[str, Any] = {
            "kind": lease.RESOURCE.kind,
            "apiVersion": lease.RESOURCE.api_version,
            "metadata": {
                "name": self.name,
                "namespace": NAMESPACE,
                "uid": random_uid(Random()),
                "creationTimestamp": format_time(now),
                **_origin_of(present),
                "labels": LABELS,
                "annotations": notes,
            },
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": LIVE_SECONDS,
                "acquireTime": self._acquired,
                "renewTime": format_micro_time(now),
            },
        }
        document["metadata"]["annotations"] = {**notes, PROOF: self._proof.of(document)}
        return msgspec.json.encode(document)

    def _renewal_in(self, present: bytes | None) -> int:
        """Return which renewal of this server the Lease is of, maybe one before a restart; 0 if
        another client wrote it."""
        document = _document(present)
        if not document.get("metadata") or not self._proof.fits(document):
            return 0
        return _renewal_of(document)

    def _changed(self, change: Change | None) -> None:
        if change is None:
            return
        if change.type == "DELETED":
            self._deleted(change.item)
        else:
            self._note(change.item)

    def _note(self, item: Item) -> None:
        if not item.key.startswith(PREFIX) or item.key == self._key:
            return
        document = item.document()
        meta = document["metadata"]
        if (meta.get("labels") or {}).get(*LABELS) != next(iter(LABELS.values())):
            self._deleted(item)
            return
        known = self._peers.get(item.key)
        renewal = self._renewal(item.key, document)
        if renewal:
            notes = meta["annotations"]
            self._newest[item.key] = renewal
            self._peers[item.key] = PeerServer(
                meta["name"],
                notes[URL],
                notes[ADDRESS],
                item.revision,
                self._leases.monotonic(),
                renewal,
            )
        elif known is not None and known.renewal:
            # Another client wrote it: it says nothing about the server, which will write it anew.
            self._peers[item.key] = replace(known, revision=item.revision, is_deleted=False)
        else:
            now = self._leases.monotonic()
            self._peers[item.key] = PeerServer(meta["name"], "", "", item.revision, now)

    def _renewal(self, key: str, document: dict[str, Any]) -> int:
        """Return which renewal of a server this is; 0 without a proof that it is a new one."""
        if not self._proof.fits(document):
            return 0
        renewal = _renewal_of(document)
        return renewal if renewal > self._newest.get(key, 0) else 0

    def _deleted(self, item: Item) -> None:
        known = self._peers.get(item.key)
        if known is None:
            return
        if self._is_farewell(item) or self._leases.monotonic() >= known.heard + LAPSE_SECONDS:
            del self._peers[item.key]
        else:
            self._peers[item.key] = replace(known, is_deleted=True)

    def _is_farewell(self, item: Item) -> bool:
        """Whether a server wrote this as the last state of its Lease."""
        document = item.document()
        spec = document.get("spec") or {}
        if spec.get("holderIdentity") or not self._proof.fits(document):
            return False
        return _renewal_of(document) == self._newest.get(item.key)


def lease_name(identity: str) -> str:
    """Return the name of a server's Lease, of the form that kube-apiservers use."""
    return f"apiserver-{b32encode(sha256(identity.encode()).digest())[:26].decode().lower()}"


def _renewal_of(document: dict[str, Any]) -> int:
    """Return which renewal a Lease with a proof is of."""
    return int(document["metadata"]["annotations"][REVISION])


def _document(value: bytes | None) -> dict[str, Any]:
    """Return a Lease that is kept; empty if there is none that can be read."""
    try:
        document = msgspec.json.decode(value or b"{}")
        return dict(document)
    except (msgspec.DecodeError, TypeError, ValueError):
        return {}


def _origin_of(present: bytes | None) -> dict[str, Any]:
    """Return what stays of the metadata of a Lease: others may have written the rest."""
    meta = _document(present).get("metadata") or {}
    return {name: meta[name] for name in ("uid", "creationTimestamp") if name in meta}
