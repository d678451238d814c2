"""Snapshots: the objects of a cluster for tests, to bring them back later."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Final

import msgspec

from kedge.api.testing.snapshot_info import RestoreResult, SnapshotInfo
from kedge.apiserver import objects_file
from kedge.apiserver.api import Api
from kedge.machinery.durations import format_micro_time
from kedge.machinery.errors import StatusError, not_found
from kedge.storage.bulk import carry_out
from kedge.storage.store import RevisionConflict, StoreEntry

ROOT: Final = "/registry/"
KEPT: Final = (
    f"{ROOT}health",
    *(f"{ROOT}{kind}/" for kind in ("minions", "leases", "csinodes", "events")),
)
"""Objects that stay as they are: those with which live nodes and servers tell that they live, and
events, which expire by themselves."""
MOST_SNAPSHOTS: Final = 32
MOST_BYTES: Final = 256 << 20
"""Bytes of all snapshots together."""
TRIES: Final = 100
"""How often an object is restored that a controller changes at the same time."""


class ObjectSnapshot(msgspec.Struct, frozen=True):
    """The stored objects at one revision."""

    info: SnapshotInfo
    entries: Mapping[str, StoreEntry]


class RestorePlan(msgspec.Struct, frozen=True):
    """The writes that bring a snapshot back."""

    deleted: Sequence[StoreEntry]
    written: Sequence[StoreEntry]
    """Entries of the snapshot, the oldest objects first: owners exist before what they own."""
    current: Mapping[str, StoreEntry]


def plan_restore(
    snapshot: Mapping[str, StoreEntry], current: Mapping[str, StoreEntry]
) -> RestorePlan:
    """Return the writes that turn the current objects into those of a snapshot."""
    deleted = [entry for key, entry in current.items() if key not in snapshot]
    written = [
        entry
        for key, entry in snapshot.items()
        if key not in current or current[key].value != entry.value
    ]
    return RestorePlan(deleted, sorted(written, key=lambda entry: entry.created), current)


def chosen(entries: Iterable[StoreEntry]) -> dict[str, StoreEntry]:
    """Return the entries that snapshots hold, by key."""
    return {entry.key: entry for entry in entries if not entry.key.startswith(KEPT)}


class Snapshots:
    """Takes, holds and restores snapshots. They are in memory, and end with the server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._held: dict[str, ObjectSnapshot] = {}
        self._numbers = count(1)

    def infos(self) -> list[SnapshotInfo]:
        return [each.info for each in self._held.values()]

    async def take(self) -> SnapshotInfo:
        """Take a snapshot of all objects."""
        page = await self._api.store.list(ROOT)
        entries = chosen(page.entries)
        size = sum(len(entry.value) for entry in entries.values())
        self._check_room(size)
        info = SnapshotInfo(
            id=f"snapshot-{next(self._numbers)}",
            time=format_micro_time(self._api.clock.now()),
            revision=page.revision,
            objects=len(entries),
            bytes=size,
        )
        self._held[info.id] = ObjectSnapshot(info, entries)
        return info

    def _check_room(self, size: int) -> None:
        taken = sum(each.info.bytes for each in self._held.values())
        if len(self._held) >= MOST_SNAPSHOTS or taken + size > MOST_BYTES:
            why = f"there are {len(self._held)} snapshots with {taken} bytes already: delete some"
            raise StatusError(403, "Forbidden", why)

    def delete(self, name: str) -> SnapshotInfo:
        """Forget a snapshot; 404 if there is none of that name."""
        return self._held.pop(self._find(name).info.id).info

    def _find(self, name: str) -> ObjectSnapshot:
        found = self._held.get(name)
        if found is None:
            raise not_found("", "snapshots", name)
        return found

    def content(self, name: str) -> bytes:
        """Return the objects of a snapshot, for a cluster that begins with them."""
        return objects_file.encode(self._find(name).entries.values())

    async def restore(self, name: str) -> RestoreResult:
        """Bring the objects of a snapshot back, as changes that every watch sees."""
        snapshot = self._find(name)
        page = await self._api.store.list(ROOT)
        plan = plan_restore(snapshot.entries, chosen(page.entries))
        # Not one by one: controllers see the result before they react to its first part.
        deletes = (self._delete(entry) for entry in plan.deleted)
        puts = (self._put(entry, plan.current.get(entry.key)) for entry in plan.written)
        await carry_out(chain(deletes, puts), self._api.clock)
        revision = self._api.store.revision
        await self._api.cache.reached(revision)
        created = sum(entry.key not in plan.current for entry in plan.written)
        return RestoreResult(
            created=created,
            updated=len(plan.written) - created,
            deleted=len(plan.deleted),
            revision=revision,
        )

    async def _put(self, entry: StoreEntry, current: StoreEntry | None) -> None:
        for _ in range(TRIES):
            expect = 0 if current is None else current.revision
            try:
                await self._api.store.put(entry.key, entry.value, expect=expect)
                return
            except RevisionConflict as race:
                current = race.current
        raise busy(entry.key)

    async def _delete(self, current: StoreEntry | None) -> None:
        for _ in range(TRIES):
            if current is None:
                return
            try:
                await self._api.store.delete(current.key, expect=current.revision)
                return
            except RevisionConflict as race:
                current = race.current
        raise busy(current.key if current else "")


def busy(key: str) -> StatusError:
    """Return the error for an object that others change without a pause."""
    why = f"{key} changes all the time: stop the client that writes it, and restore again"
    return StatusError(409, "Conflict", why)
