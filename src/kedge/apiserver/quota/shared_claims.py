"""SharedQuotaClaims: servers of one store grant the room of a quota once.

A server knows the stored objects and its own admitted writes, but not those of others. So the
servers keep one record for each namespace in which a quota was asked for room: all writes that are
admitted and not over. A write is admitted by a compare-and-swap of this record, judged on a cache
that is not older than the record. Any other admission since then makes the comparison fail, so two
servers cannot grant the same room. Upstream compares and swaps the usage in the quota's status,
which its controller may set back while a write is under way.

Writes of one server that arrive together are admitted by one write of the record.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from kedge.api.model import Object
from kedge.api.quota.measure import QuotaMeasure
from kedge.api.quota.status import readable
from kedge.apiserver.quota.ledger import QuotaClaim, QuotaLedger
from kedge.apiserver.quota.statuses import TRIES, QuotaStatuses, contended
from kedge.apiserver.quota.upkeep import UPKEEP_SECONDS, QuotaUpkeep
from kedge.apiserver.request import Request
from kedge.apiserver.several.records import PREFIX
from kedge.apiserver.watchcache import WatchCache
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Quantity
from kedge.machinery.write_guard import guarded_by
from kedge.storage.store import RevisionConflict, Store, StoreEntry, StoreError

log = logging.getLogger(__name__)

KEYS: Final = f"{PREFIX}quotaclaims/"
EMPTY_SECONDS: Final = 600
"""How long a record without claims is kept. It is not deleted at once: a server that knew that
there is none could not tell that there was one meanwhile."""
CLAIM_SECONDS: Final = 120.0
"""Claims of a server that was killed count for so long: longer than any request lasts."""
PATIENCE_SECONDS: Final = 1.0
"""How long a refusal waits for writes of other servers that are under way: they may fail."""
PAUSE_SECONDS: Final = 0.05


class SentClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """One admitted write, as the record has it."""

    server: str
    key: str
    usage: Mapping[str, str]
    scopes: Mapping[str, Sequence[str]] = {}
    covered_by: str = ""
    number: int = 0
    """Differs between the writes of a server, also between those of one object."""


class Waiter:
    """A write that waits for its admission."""

    def __init__(self, request: Request, obj: Object, new: bool, dry: bool, now: float) -> None:
        self.request = request
        self.obj = obj
        self.new = new
        self.dry = dry
        self.give_up = now + PATIENCE_SECONDS
        self.is_done = False
        self.refusal = ""
        self.error: Exception | None = None


class ClaimRecord(msgspec.Struct, frozen=True):
    """The record of a namespace."""

    revision: int = 0
    claims: tuple[SentClaim, ...] = ()


_record = msgspec.json.Decoder(tuple[SentClaim, ...])


class SharedQuotaClaims:
    """Admits writes of one server in agreement with the others. The owner must `run` it."""

    def __init__(
        self, store: Store, cache: WatchCache, ledger: QuotaLedger, clock: Clock, server: str
    ) -> None:
        """`server` names this process, and no other one."""
        self._store = store
        self._cache = cache
        self.ledger = ledger
        self._clock = clock
        self._server = server
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, list[Waiter]] = {}
        self._records: dict[str, ClaimRecord] = {}
        self._first_seen: dict[tuple[str, str, str, int], float] = {}
        self._statuses = QuotaStatuses(store, cache, ledger, clock)
        self._set_back = QuotaUpkeep(self._raise, clock, after_seconds=0)
        self._released = QuotaUpkeep(self._clean_up, clock, after_seconds=UPKEEP_SECONDS)
        ledger.listen(self._quota_changed)

    async def admit(self, request: Request, obj: Object, *, new: bool, dry: bool) -> str:
        namespace = request.namespace
        waiter = Waiter(request, obj, new, dry, self._clock.monotonic())
        waiting = self._waiting.setdefault(namespace, [])
        waiting.append(waiter)
        try:
            async with self._locks.setdefault(namespace, asyncio.Lock()):
                # One before may have decided for all that waited.
                if not waiter.is_done:
                    await self._decide(namespace, waiting, waiter)
        finally:
            if waiter in waiting:
                waiting.remove(waiter)
        if waiter.error is not None:
            raise waiter.error
        return waiter.refusal

    def release(self, request: Request) -> None:
        if self.ledger.release(request):
            # The claim may leave the record, and if nothing was stored the status has too much.
            self._released.add(request.namespace)

    async def run(self) -> None:
        """Keep records and statuses free of writes that are over, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._set_back.run())
            tasks.create_task(self._released.run())

    def _quota_changed(self, namespace: str, name: str) -> None:
        # A controller may have set the status back: it did not know the writes under way.
        if self._statuses.due(namespace, [name], may_fall=False):
            self._set_back.add(namespace)

    async def _raise(self, namespace: str) -> None:
        async with self._locks.setdefault(namespace, asyncio.Lock()):
            names = self.ledger.accounts_in(namespace)
            if self._statuses.due(namespace, names, may_fall=False):
                await self._bring_up(namespace, names, may_fall=False)

    async def _clean_up(self, namespace: str) -> None:
        try:
            async with self._locks.setdefault(namespace, asyncio.Lock()):
                await self._clean(namespace)
                names = self.ledger.accounts_in(namespace)
                if self._statuses.due(namespace, names):
                    await self._bring_up(namespace, names)
        except StoreError:
            # Whether the record was written is not known. Claims that stayed there would take room
            # on the other servers.
            self._records.pop(namespace, None)
            raise

    async def _decide(self, namespace: str, waiting: list[Waiter], own: Waiter) -> None:
        """Admit or refuse all that wait, until one of them is done; one that came later goes on."""
        try:
            for _ in range(TRIES):
                if own.is_done:
                    return
                if not await self._try(namespace, waiting):
                    await self._clock.sleep(PAUSE_SECONDS)
            raise contended()
        except (StoreError, StatusError) as error:
            # Whether the record was written is not known.
            self._records.pop(namespace, None)
            self._released.add(namespace)
            for each in [each for each in waiting if not each.is_done]:
                self.ledger.release(each.request)
                each.error, each.is_done = error, True

    async def _try(self, namespace: str, waiting: Sequence[Waiter]) -> bool:
        """Judge by the record as it is known, and write it; False if some wait for the writes of
        others."""
        record = self._records.get(namespace)
        if record is None:
            record = await self._read(namespace)
        await self._cache.reached(record.revision)
        # Only now: a request that was given up meanwhile must not be charged.
        batch = [each for each in waiting if not each.is_done]
        others = self._others(namespace, record)
        self.ledger.set_foreign(namespace, [self._claim(each) for each in others])
        claims = {id(each): self._judge(each) for each in batch}
        own = [self._sent(each) for each in self.ledger.held_in(namespace)]
        admitted = [
            claim
            for each in batch
            if (claim := claims[id(each)]) is not None and not claim.refusal and not each.dry
        ]
        try:
            if admitted:
                await self._write(namespace, record, (*others, *own))
            elif (await self._read(namespace)).revision != record.revision:
                return self._again(batch)
        except RevisionConflict as race:
            self._take(namespace, race.current)
            if race.current is None:
                await self._cache.reached(await self._store.newest())
            return self._again(batch)
        if names := {name for claim in admitted for name in claim.quotas}:
            await self._bring_up(namespace, names, at=self._records[namespace].revision)
        now, waits = self._clock.monotonic(), False
        for each in batch:
            claim = claims[id(each)]
            each.refusal = "" if claim is None else claim.refusal
            # The writes of others may come to nothing.
            if each.refusal and others and now < each.give_up:
                waits = True
                continue
            each.is_done = True
        return not waits

    def _again(self, batch: Sequence[Waiter]) -> bool:
        """Undo what was charged: the record had changed."""
        for each in batch:
            self.ledger.release(each.request)
        return True

    def _judge(self, waiter: Waiter) -> QuotaClaim | None:
        """Return the claim of a write, and charge it if it fits."""
        # A request that tries again, under another name or on a newer object, begins anew.
        self.ledger.release(waiter.request)
        claim = self.ledger.claim(waiter.request, waiter.obj, new=waiter.new)
        if claim is not None and not claim.refusal and not waiter.dry:
            self.ledger.hold(waiter.request, claim)
        return claim

    async def _bring_up(
        self, namespace: str, names: Collection[str], *, at: int = 0, may_fall: bool = True
    ) -> None:
        """Write the statuses of quotas. The ledger has the claims of the record as it was when the
        store was at least `at` a revision."""
        for _ in range(TRIES):
            newest = self._statuses.newest(namespace, names)
            if newest > at:
                # Another server may have written claims into the status that are not known here.
                record = await self._read(namespace)
                await self._cache.reached(record.revision)
                others = self._others(namespace, record)
                self.ledger.set_foreign(namespace, [self._claim(each) for each in others])
                at = max(newest, record.revision)
                continue
            try:
                await self._statuses.write(self._statuses.due(namespace, names, may_fall=may_fall))
            except RevisionConflict as race:
                await self._statuses.caught_up(race)
            else:
                return
        raise contended()

    async def _read(self, namespace: str) -> ClaimRecord:
        found = await self._store.get(KEYS + namespace)
        if found is None:
            # Claims that are gone were of objects that the caches must have.
            await self._cache.reached(await self._store.newest())
        return self._take(namespace, found)

    def _take(self, namespace: str, entry: StoreEntry | None) -> ClaimRecord:
        record = ClaimRecord()
        if entry is not None:
            try:
                record = ClaimRecord(entry.revision, _record.decode(entry.value))
            except msgspec.DecodeError as error:
                log.error("quota claims unreadable namespace=%s error=%s", namespace, error)
                record = ClaimRecord(entry.revision)
        self._records[namespace] = record
        return record

    async def _write(
        self, namespace: str, record: ClaimRecord, claims: tuple[SentClaim, ...]
    ) -> None:
        # A leader may write this for all that wait. If its time is over, only its own write fails.
        with guarded_by(None):
            entry = await self._store.put(
                KEYS + namespace,
                msgspec.json.encode(claims),
                expect=record.revision,
                ttl=0 if claims else EMPTY_SECONDS,
            )
        self._records[namespace] = ClaimRecord(entry.revision, claims)

    async def _clean(self, namespace: str) -> None:
        """Write the record without claims that are over; raises StoreError."""
        record = self._records.get(namespace) or await self._read(namespace)
        own = [self._sent(each) for each in self.ledger.held_in(namespace)]
        if {each for each in map(_id, record.claims) if each[0] == self._server} <= {
            _id(each) for each in own
        }:
            return
        try:
            await self._write(namespace, record, (*self._others(namespace, record), *own))
        except RevisionConflict as race:
            self._take(namespace, race.current)
            self._released.add(namespace)

    def _others(self, namespace: str, record: ClaimRecord) -> list[SentClaim]:
        """Return the claims of other servers, without those that were left behind."""
        now = self._clock.monotonic()
        found = [each for each in record.claims if each.server != self._server]
        known = {
            _seen(namespace, each): self._first_seen.get(_seen(namespace, each), now)
            for each in found
        }
        for key in [key for key in self._first_seen if key[0] == namespace]:
            del self._first_seen[key]
        self._first_seen.update(known)
        return [each for each in found if now < known[_seen(namespace, each)] + CLAIM_SECONDS]

    def _sent(self, claim: QuotaClaim) -> SentClaim:
        measure = claim.measure
        return SentClaim(
            self._server,
            claim.key,
            {name: str(readable(amount)) for name, amount in measure.usage.items()},
            {name: tuple(values) for name, values in measure.scopes.items()},
            measure.covered_by,
            claim.number,
        )

    def _claim(self, sent: SentClaim) -> tuple[str, QuotaMeasure]:
        usage = {name: Quantity.parse(amount) for name, amount in sent.usage.items()}
        return sent.key, QuotaMeasure(usage, sent.scopes, covered_by=sent.covered_by)


def _id(claim: SentClaim) -> tuple[str, str, int]:
    return claim.server, claim.key, claim.number


def _seen(namespace: str, claim: SentClaim) -> tuple[str, str, str, int]:
    return namespace, *_id(claim)
