"""The identity of a cluster in a shared store: servers with other keys must not serve its objects.

A token or certificate that one server issues must be good for all of them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from kedge.apiserver.several.records import PREFIX, claim, drop
from kedge.machinery.clock import Clock
from kedge.storage.store import RevisionConflict, Store, StoreError

KEY: Final = f"{PREFIX}identity"
FOUNDER: Final = f"{PREFIX}founder"
FOUNDING_SECONDS: Final = 20
"""For how long others wait for a server that writes the first objects; it may have died."""


class ClusterIdentity(msgspec.Struct, frozen=True):
    """Hashes of what all servers of a cluster must have."""

    authority: str
    signing_key: str


class OtherCluster(StoreError):
    """The objects in the store belong to a cluster with other keys."""

    def __init__(self, what: str, pki: Path) -> None:
        super().__init__(
            f"the objects in this store are those of a cluster with another {what}: copy 'pki' and"
            f" 'token' from the directory of one of its servers to {pki.parent}, and start this one"
            f' again. If its keys are lost, run "etcdctl del {KEY}" (PostgreSQL: "SELECT'
            f" SCHEMA.remove('{KEY}')\"): tokens and certificates of the old ones are void then"
        )


@asynccontextmanager
async def founding(store: Store, clock: Clock) -> AsyncIterator[None]:
    """Let one server at a time write the first objects of a cluster: of several that are started
    together, the others find them."""
    until = clock.monotonic() + FOUNDING_SECONDS
    entry = None
    while entry is None and clock.monotonic() < until:
        entry = await claim(store, FOUNDER, b"", lambda _: False, FOUNDING_SECONDS)
        if entry is None:
            await clock.sleep(0.1)
    try:
        yield
    finally:
        if entry is not None:
            await drop(store, FOUNDER, entry.revision)


def identity_in(pki: Path) -> ClusterIdentity:
    """Return the identity that the keys in a directory give."""
    return ClusterIdentity(_hash(pki / "ca.crt"), _hash(pki / "sa.pub"))


async def check(store: Store, pki: Path) -> None:
    """Record the identity in a store that has none; raises OtherCluster if it has another."""
    own = identity_in(pki)
    try:
        await store.put(KEY, msgspec.json.encode(own), expect=0)
    except RevisionConflict as race:
        if race.current is not None:
            _compare(race.current.value, own, pki)


def _compare(value: bytes, own: ClusterIdentity, pki: Path) -> None:
    try:
        known = msgspec.json.decode(value, type=ClusterIdentity)
    except msgspec.DecodeError:
        raise OtherCluster("identity, which cannot be read", pki) from None
    if known.authority != own.authority:
        raise OtherCluster("certificate authority (ca.crt)", pki)
    if known.signing_key != own.signing_key:
        raise OtherCluster("key for service account tokens (sa.key)", pki)


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
