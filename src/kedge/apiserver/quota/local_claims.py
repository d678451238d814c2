"""LocalQuotaClaims: the claims of a server that is the only one on its store.

The ledger alone decides. A write of the status contains all claims that were made before it, so
creates that come together share one. It takes one more commit before that of the object, as in
kube-apiserver: a client that sees the object finds it counted.
"""

import asyncio
from weakref import WeakValueDictionary

from kedge.api.model import Object
from kedge.apiserver.quota.ledger import QuotaClaim, QuotaLedger
from kedge.apiserver.quota.statuses import QuotaStatuses
from kedge.apiserver.quota.upkeep import UPKEEP_SECONDS, QuotaUpkeep
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import WatchCache
from kedge.machinery.clock import Clock
from kedge.storage.store import Store


class _Turn:
    """The writes of a namespace whose claims are to come into the status."""

    __slots__ = ("__weakref__", "lock", "names", "written")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.names: set[str] = set()
        """The quotas that are charged for those that wait."""
        self.written = 0
        """The number of the last claim that is in the status."""


class LocalQuotaClaims:
    """Admits writes of the only server. The owner must `run` it."""

    def __init__(self, store: Store, cache: WatchCache, ledger: QuotaLedger, clock: Clock) -> None:
        self.ledger = ledger
        self._statuses = QuotaStatuses(store, cache, ledger, clock)
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
        self._set_back = QuotaUpkeep(self._raise, clock, after_seconds=0)
        self._released = QuotaUpkeep(self._bring_up, clock, after_seconds=UPKEEP_SECONDS)
        ledger.listen(self._quota_changed)

    async def admit(self, request: Request, obj: Object, *, new: bool, dry: bool) -> str:
        # A request that tries again, under another name or on a newer object, begins anew.
        self.release(request)
        claim = self.ledger.claim(request, obj, new=new)
        if claim is None or claim.refusal or dry:
            return "" if claim is None else claim.refusal
        self.ledger.hold(request, claim)
        if claim.quotas:
            await self._into_status(request.namespace, claim)
        return ""

    def release(self, request: Request) -> None:
        if self.ledger.release(request):
            # If nothing was stored, the status has too much.
            self._released.add(request.namespace)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._set_back.run())
            tasks.create_task(self._released.run())

    async def _into_status(self, namespace: str, claim: QuotaClaim) -> None:
        turn = self._turns.get(namespace)
        if turn is None:
            turn = self._turns[namespace] = _Turn()
        turn.names.update(claim.quotas)
        async with turn.lock:
            # One before may have written for all that waited.
            if claim.number <= turn.written:
                return
            names, turn.names = turn.names | set(claim.quotas), set()
            newest = self.ledger.newest_claim
            try:
                await self._statuses.bring_up(namespace, names)
            except BaseException:
                # The next one writes for all that wait, too.
                turn.names |= names
                raise
            turn.written = newest

    def _quota_changed(self, namespace: str, name: str) -> None:
        # A controller may have set the status back: it did not know the writes under way.
        if self._statuses.due(namespace, [name], may_fall=False):
            self._set_back.add(namespace)

    async def _raise(self, namespace: str) -> None:
        names = self.ledger.accounts_in(namespace)
        await self._statuses.bring_up(namespace, names, may_fall=False)

    async def _bring_up(self, namespace: str) -> None:
        await self._statuses.bring_up(namespace, self.ledger.accounts_in(namespace))
