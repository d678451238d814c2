"""QuotaStatuses: write what the ledger counts into the status of quotas.

As in kube-apiserver, a client that reads a quota after its create was acknowledged finds the object
counted. There the status is the count. Here it only shows the count of the ledger, which decides,
so a controller that sets a status back makes no room.

The ledger follows the watch cache, which applies the writes of all keys in their order. So an
amount that is computed while the cache has a quota at some revision contains every object that was
stored before it, and the store accepts it only if the quota is still at that revision.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api.core_v1.resource_quota import (
    RESOURCE,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
)
from kedge.api.quota.measure import Usage
from kedge.api.quota.status import at_least, is_complete, status_of
from kedge.api.resource import dec_hook
from kedge.apiserver import managed
from kedge.apiserver.api import to_stored_bytes
from kedge.apiserver.quota.ledger import QuotaLedger
from kedge.apiserver.verbs.write import all_but_status
from kedge.apiserver.watchcache import Item, WatchCache
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError, conflict
from kedge.machinery.quantity import Quantity
from kedge.machinery.write_guard import guarded_by
from kedge.storage.store import RevisionConflict, Store

MANAGER: Final = "kube-apiserver"
"""The field manager of the status, as upstream."""
TRIES: Final = 200
"""How often a write that others are faster with begins again."""


class _Quota(msgspec.Struct, frozen=True):
    """A quota without its metadata."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


_quota = msgspec.json.Decoder(_Quota, dec_hook=dec_hook)


class DueStatus(msgspec.Struct, frozen=True):
    """A status that differs from the count."""

    item: Item
    """The quota as it is."""
    status: ResourceQuotaStatus
    """The status that it should have."""


class QuotaStatuses:
    """Writes the statuses of one server."""

    def __init__(self, store: Store, cache: WatchCache, ledger: QuotaLedger, clock: Clock) -> None:
        self._store = store
        self._cache = cache
        self._quotas = cache.of(RESOURCE)
        self._ledger = ledger
        self._clock = clock

    def newest(self, namespace: str, names: Iterable[str]) -> int:
        """Return the newest revision of these quotas."""
        found = (self._quotas.get(RESOURCE.key(namespace, name)) for name in names)
        return max((item.revision for item in found if item is not None), default=0)

    def due(
        self, namespace: str, names: Iterable[str], *, may_fall: bool = True
    ) -> Sequence[DueStatus]:
        """Return the statuses of these quotas that differ from the count. Without `may_fall`,
        amounts in a status that are greater than the count stay: others take care of them."""
        found = (self._due(namespace, name, may_fall) for name in sorted(names))
        return [each for each in found if each is not None]

    def _due(self, namespace: str, name: str, may_fall: bool) -> DueStatus | None:
        item = self._quotas.get(RESOURCE.key(namespace, name))
        if item is None:
            return None
        quota = _quota.decode(item.body)
        whole = not is_complete(quota.spec, quota.status)
        used: Usage = self._ledger.used(namespace, name, whole=whole)
        if not may_fall:
            used = at_least(quota.status.used, used)
        status = status_of(quota.spec, quota.status, used)
        return None if status == quota.status else DueStatus(item, status)

    async def write(self, due: Iterable[DueStatus]) -> None:
        """Write statuses; returns once readers see them. Raises RevisionConflict."""
        for each in due:
            value = _with_status(each, format_time(self._clock.now()))
            # The status is for all that wait. If the time of a leader is over, only its own write
            # fails.
            with guarded_by(None):
                entry = await self._store.put(each.item.key, value, expect=each.item.revision)
            await self._cache.reached(entry.revision)

    async def caught_up(self, race: RevisionConflict) -> None:
        """Return once the cache has the write that was faster."""
        won = race.current.revision if race.current is not None else await self._store.newest()
        await self._cache.reached(won)

    async def bring_up(
        self, namespace: str, names: Collection[str], *, may_fall: bool = True
    ) -> None:
        """Write the statuses of these quotas as often as others are faster."""
        for _ in range(TRIES):
            try:
                await self.write(self.due(namespace, names, may_fall=may_fall))
            except RevisionConflict as race:
                await self.caught_up(race)
            else:
                return
        raise contended()


def _with_status(due: DueStatus, now: str) -> bytes:
    """Return a quota with another status, as the store keeps it."""
    live = due.item.document()
    status = {"hard": _texts(due.status.hard), "used": _texts(due.status.used)}
    new: dict[str, Any] = live | {"status": status, "metadata": dict(live["metadata"])}
    owners = managed.after_update(
        RESOURCE.schema,
        live,
        new,
        manager=MANAGER,
        api_version=RESOURCE.api_version,
        subresource="status",
        now=now,
        ignore=all_but_status(RESOURCE),
    )
    if owners:
        new["metadata"]["managedFields"] = owners
    else:
        new["metadata"].pop("managedFields", None)
    return to_stored_bytes(RESOURCE, new)


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def contended() -> StatusError:
    """Return the error for a write that others were always faster with."""
    why = "too many writes in this namespace at once, try again"
    return conflict("", "resourcequotas", "", why)
