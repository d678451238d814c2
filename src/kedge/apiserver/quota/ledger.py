"""Ledger: what is used of every quota at this moment, writes that are under way included."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec

from kedge.api.core_v1 import resource_quota
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.resource_quota import ResourceQuotaSpec
from kedge.api.model import Object
from kedge.api.quota.account import QuotaAccount, greater, increase, listed
from kedge.api.quota.extended_names import ExtendedNames, extended_names
from kedge.api.quota.measure import QuotaMeasure, QuotaMeter, Usage
from kedge.api.quota.meters import PODS, RESOURCE_CLAIMS, Kind, kinds_of, meter_of
from kedge.api.resource import Resource, dec_hook
from kedge.api.resource_v1 import device_class, resource_claim
from kedge.apiserver.request import Request, stored
from kedge.apiserver.watchcache import Change, Item, ResourceCache, Selection, WatchCache
from kedge.machinery.clock import Clock
from kedge.machinery.selectors import FieldSelector, LabelRequirements


class _Sketch(msgspec.Struct, frozen=True):
    """A quota without its status, which changes far more often than the rest."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()


_sketch = msgspec.json.Decoder(_Sketch, dec_hook=dec_hook)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


Listener = Callable[[Change | None], None]


class Followed:
    """A resource whose objects are counted."""

    def __init__(self, cache: ResourceCache, kind: Kind, meter: QuotaMeter) -> None:
        self.cache = cache
        self.kind = kind
        self.meter = meter
        self._measures: dict[str, tuple[Item, QuotaMeasure]] = {}
        self._listener: Listener | None = None

    def listen(self, listener: Listener) -> None:
        """Call the listener with each change."""
        self._listener = listener
        self.cache.listeners.add(listener)

    def end(self) -> None:
        """Call the listener no more, and let it go: it may hold this object."""
        if self._listener is not None:
            self.cache.listeners.discard(self._listener)
            self._listener = None

    def measure(self, key: str) -> QuotaMeasure | None:
        """Return the usage of an object in the cache; None if it is not there."""
        item = self.cache.get(key)
        if item is None:
            self._measures.pop(key, None)
            return None
        known = self._measures.get(key)
        if known is not None and known[0] is item:
            return known[1]
        obj = self.cache.resource.decode(item.body) if self.meter.looks else None
        measure = self.meter.measure(obj)
        if self.meter.looks:
            self._measures[key] = item, measure
        return measure

    def within(self, namespace: str) -> Iterator[str]:
        """The objects of a namespace."""
        everything = Selection(self.cache.resource, namespace, LabelRequirements(), FieldSelector())
        return (item.key for item in self.cache.select(everything))


class QuotaClaim(msgspec.Struct, frozen=True):
    """The usage of an object that is about to be written."""

    followed: Followed
    key: str
    measure: QuotaMeasure
    refusal: str = ""
    """Why it may not; empty if it may."""
    number: int = 0
    """Differs between the claims of this server, also between those of one object."""
    quotas: Sequence[str] = ()
    """The names of the quotas that count the object."""


class QuotaLedger:
    """Counts the objects in the cache and those that were admitted but are not yet in the cache.

    An account is opened at the first write that needs it and follows the cache from then on. An
    admitted write is charged at once; when the write is over, whether it succeeded or not, the
    cache decides. Nothing here waits, so two writes cannot be granted the same room.
    """

    def __init__(self, cache: WatchCache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._specs: dict[str, dict[str, ResourceQuotaSpec]] = {}
        """Every quota, by namespace and name."""
        self._accounts: dict[str, dict[str, QuotaAccount]] = {}
        """The accounts that some write needed."""
        self._followed: dict[str, Followed] = {}
        """By where their objects are stored."""
        self._numbers = count(1)
        self.newest_claim = 0
        """The number of the last claim."""
        self._listeners: list[Callable[[str, str], None]] = []
        self._claims: dict[str, list[QuotaClaim]] = {}
        """Admitted writes that have not finished, by the keys of the objects."""
        self._held: dict[int, tuple[Request, list[QuotaClaim]]] = {}
        """The same, by the identity of the request, which lives as long as it stands here."""
        self._foreign: dict[str, list[QuotaClaim]] = {}
        """Admitted writes of other servers, by namespace; they are among the claims."""
        self._falling: dict[str, tuple[datetime, Followed]] = {}
        """Objects that will take less at some moment without being written."""
        self._first_fall = _NEVER
        """Return at latest the first of these times: thousands of pods may be terminating, and
        every write asks."""
        quotas = cache.of(resource_quota.RESOURCE)
        for item in quotas.values():
            self._take(item)
        quotas.listeners.add(self._quota_changed)
        self._classes = cache.of(device_class.RESOURCE)
        self._extended = self._extended_names()
        self._classes.listeners.add(self._class_changed)

    def limits(self, namespace: str) -> bool:
        """Whether there is any quota in the namespace."""
        return namespace in self._specs

    # Quotas.

    def listen(self, listener: Callable[[str, str], None]) -> None:
        """Call the listener with namespace and name of each changed quota that has an account."""
        self._listeners.append(listener)

    def _quota_changed(self, change: Change | None) -> None:
        if change is None:
            return
        if change.type == "DELETED":
            self._drop(change.item.key)
            return
        self._take(change.item)
        namespace, name = _place(change.item.key)
        if name in self._accounts.get(namespace, ()):
            for listener in self._listeners:
                listener(namespace, name)

    def _take(self, item: Item) -> None:
        namespace, name = _place(item.key)
        spec = _sketch.decode(item.body).spec
        specs = self._specs.setdefault(namespace, {})
        if specs.get(name) != spec:
            specs[name] = spec
            self._accounts.get(namespace, {}).pop(name, None)

    def _drop(self, key: str) -> None:
        namespace, name = _place(key)
        specs = self._specs.get(namespace, {})
        specs.pop(name, None)
        self._accounts.get(namespace, {}).pop(name, None)
        if not specs:
            self._specs.pop(namespace, None)
            self._accounts.pop(namespace, None)

    def _class_changed(self, change: Change | None) -> None:
        extended = self._extended_names()
        if change is not None and extended != self._extended:
            self._extended = extended
            self._accounts.clear()

    def accounts_in(self, namespace: str) -> Collection[str]:
        """Return the names of the quotas with an account, which some write has needed."""
        return tuple(self._accounts.get(namespace, ()))

    def used(self, namespace: str, name: str, *, whole: bool) -> Usage:
        """Return the used amounts of a quota, writes under way included: of the kinds that are
        counted, which all are from now on if the `whole` quota is asked for."""
        self._let_fall()
        if name not in self._specs.get(namespace, {}):
            return {}
        account = self._account(namespace, name)
        # A new account, in place of one that a write has needed, counts nothing yet.
        if whole or not account.used:
            for followed in self._followed_for(kinds_of(account.hard, self._extended)):
                if not account.has_begun(followed.kind):
                    self._begin(account, namespace, followed)
        return account.used

    def _followed_for(self, kinds: Collection[Kind]) -> Iterator[Followed]:
        """The resources of some kinds, those that exist; claims after pods, which cover them."""
        found = [each.resource for each in self._cache.all()]
        for resource in sorted(found, key=lambda each: each.plural != PODS[1]):
            if (resource.group, resource.plural) in kinds and resource.namespaced:
                followed = self._follow(resource)
                if followed is not None:
                    yield followed

    def _extended_names(self) -> ExtendedNames:
        decode = device_class.RESOURCE.decode
        return extended_names(decode(item.body) for item in self._classes.values())

    # Accounts.

    def _open(self, namespace: str, followed: Followed) -> Iterator[tuple[str, QuotaAccount]]:
        """The accounts of a namespace that count objects of a resource."""
        for name in sorted(self._specs.get(namespace, {})):
            account = self._account(namespace, name)
            if account.names(followed.kind, followed.meter):
                for each in self._counted_with(followed) if account.shared else (followed,):
                    if not account.has_begun(each.kind):
                        self._begin(account, namespace, each)
                yield name, account

    def _account(self, namespace: str, name: str) -> QuotaAccount:
        accounts = self._accounts.setdefault(namespace, {})
        account = accounts.get(name)
        if account is None:
            spec = self._specs[namespace][name]
            account = accounts[name] = QuotaAccount(spec, self._extended)
        return account

    def _counted_with(self, followed: Followed) -> Iterator[Followed]:
        """The resources that count under the same names as one; claims after pods, which cover
        them."""
        if followed.kind not in (PODS, RESOURCE_CLAIMS):
            yield followed
            return
        for resource in (pod.RESOURCE, resource_claim.RESOURCE):
            if (each := self._follow(resource)) is not None:
                yield each

    def _begin(self, account: QuotaAccount, namespace: str, followed: Followed) -> None:
        account.begin(followed.kind, followed.meter)
        prefix = f"{followed.cache.resource.prefix}{namespace}/"
        under_way = [key for key in self._claims if key.startswith(prefix)]
        for key in dict.fromkeys((*followed.within(namespace), *under_way)):
            account.put(followed.kind, key, self._charge(account, followed, key))

    def _charge(self, account: QuotaAccount, followed: Followed, key: str) -> Usage:
        """Charge an object as it is in the cache, or as the write under way would leave it."""
        kind, meter = followed.kind, followed.meter
        charge: Usage = {}
        measure = followed.measure(key)
        under_way = self._claims.get(key, ())
        self._falling.pop(key, None)
        if measure is None and not under_way and kind == RESOURCE_CLAIMS:
            account.uncover(key)
        if measure is not None:
            account.cover(measure.covered_by, key)
            charge = account.charge(kind, meter, measure, measure.at(self._clock.now()), key)
            if measure.until is not None:
                self._falling[key] = measure.until, followed
                self._first_fall = min(self._first_fall, measure.until)
        for claim in under_way:
            account.cover(claim.measure.covered_by, key)
            claimed = account.charge(kind, meter, claim.measure, claim.measure.usage, key)
            charge = greater(charge, claimed)
        return charge

    def _settle(self, followed: Followed, key: str) -> None:
        """Bring all accounts in line with the cache and what is under way."""
        for account in self._accounts.get(_place(key)[0], {}).values():
            if account.has_begun(followed.kind):
                account.put(followed.kind, key, self._charge(account, followed, key))
                if followed.kind == PODS and (covered := account.covered_claim(key)):
                    claims = self._followed[resource_claim.RESOURCE.registry]
                    account.put(claims.kind, covered, self._charge(account, claims, covered))

    def _let_fall(self) -> None:
        """Settle the objects whose moment has come."""
        now = self._clock.now()
        if now <= self._first_fall:
            return
        for key in [key for key, (until, _) in self._falling.items() if now > until]:
            self._settle(self._falling[key][1], key)
            self._falling.pop(key, None)
        self._first_fall = min((until for until, _ in self._falling.values()), default=_NEVER)

    # The cache.

    def _follow(self, resource: Resource[Any]) -> Followed | None:
        """A resource, followed from now on; None if no quota counts it."""
        known = self._followed.get(resource.registry)
        if known is not None:
            return known
        kind = resource.group, resource.plural
        meter = meter_of(kind)
        if meter is None:
            return None
        try:
            followed = Followed(self._cache.of(resource), kind, meter)
        except KeyError:
            # A custom resource whose definition went while the request was under way.
            return None
        self._followed[resource.registry] = followed
        followed.listen(partial(self._changed, followed))
        return followed

    def _changed(self, followed: Followed, change: Change | None) -> None:
        if change is None:
            followed.end()
            self._leave(followed)
        elif _place(change.item.key)[0] in self._accounts:
            self._settle(followed, change.item.key)

    def _leave(self, followed: Followed) -> None:
        """A custom resource is gone or no longer what it was: count it anew when it is needed."""
        self._followed.pop(followed.cache.resource.registry, None)
        for accounts in self._accounts.values():
            for account in accounts.values():
                account.end(followed.kind)

    # Writes.

    def claim(self, request: Request, obj: Object, *, new: bool) -> QuotaClaim | None:
        """Return the usage of a write and whether it fits; None if no quota counts it."""
        followed = self._follow(stored(request.resource))
        if followed is None:
            return None
        self._let_fall()
        key = stored(request.resource).key(request.namespace, obj.metadata.name)
        measure = followed.meter.measure(obj)
        concerned = [
            (name, account)
            for name, account in self._open(request.namespace, followed)
            if account.covers(followed.meter, measure)
        ]
        refusal = _silence(concerned, followed, obj)
        for name, account in concerned:
            refusal = refusal or _excess(name, account, followed, key, measure, new=new)
        self.newest_claim = next(self._numbers)
        quotas = [name for name, _ in concerned]
        return QuotaClaim(followed, key, measure, refusal, self.newest_claim, quotas)

    def hold(self, request: Request, claim: QuotaClaim) -> None:
        """Charge what was claimed, until the request is over."""
        self._held.setdefault(id(request), (request, []))[1].append(claim)
        self._claims.setdefault(claim.key, []).append(claim)
        self._settle(claim.followed, claim.key)

    def set_foreign(self, namespace: str, claims: Iterable[tuple[str, QuotaMeasure]]) -> None:
        """Charge the writes that other servers have admitted in a namespace, and no others."""
        now = [claim for each in claims if (claim := self._foreign_claim(*each)) is not None]
        before = self._foreign.pop(namespace, [])
        for claim in before:
            self._forget(claim)
        for claim in now:
            self._claims.setdefault(claim.key, []).append(claim)
        if now:
            self._foreign[namespace] = now
        for key, followed in {each.key: each.followed for each in (*before, *now)}.items():
            self._settle(followed, key)

    def _foreign_claim(self, key: str, measure: QuotaMeasure) -> QuotaClaim | None:
        cache = self._cache.at(key)
        followed = None if cache is None else self._follow(cache.resource)
        return None if followed is None else QuotaClaim(followed, key, measure)

    def held_in(self, namespace: str) -> Iterator[QuotaClaim]:
        """Yield the admitted writes of this server in a namespace."""
        for _, claims in self._held.values():
            yield from (each for each in claims if _place(each.key)[0] == namespace)

    def _forget(self, claim: QuotaClaim) -> None:
        left = self._claims[claim.key]
        left.remove(claim)
        if not left:
            del self._claims[claim.key]

    def holds(self, request: Request) -> bool:
        """Whether the request is charged for anything."""
        return id(request) in self._held

    def release(self, request: Request) -> bool:
        """The request is over: what it wrote is in the cache, what it did not counts no more.
        Returns whether it was charged for anything."""
        _, claims = self._held.pop(id(request), (request, []))
        for claim in claims:
            self._forget(claim)
            self._settle(claim.followed, claim.key)
        return bool(claims)


def _silence(concerned: list[tuple[str, QuotaAccount]], followed: Followed, obj: Object) -> str:
    """Why an object cannot even be counted; empty if it can."""
    for name, account in concerned:
        names = account.names(followed.kind, followed.meter)
        if missing := followed.meter.missing(obj, names):
            return f"failed quota: {name}: {missing}"
    return ""


def _excess(
    name: str,
    account: QuotaAccount,
    followed: Followed,
    key: str,
    measure: QuotaMeasure,
    *,
    new: bool,
) -> str:
    """Why an object does not fit in; empty if it does."""
    charge = account.charge(followed.kind, followed.meter, measure, measure.usage, key)
    # As upstream: a new object needs room of its own even if one of its name exists.
    requested = charge if new else increase(charge, account.charged(followed.kind, key))
    exceeded = [
        each
        for each, amount in requested.items()
        if account.used[each] + amount > account.hard[each]
    ]
    if not exceeded:
        return ""
    return (
        f"exceeded quota: {name}, requested: {listed(requested, exceeded)}, "
        f"used: {listed(account.used, exceeded)}, limited: {listed(account.hard, exceeded)}"
    )


def _place(key: str) -> tuple[str, str]:
    """The namespace and the name of an object that lives in a namespace."""
    _, namespace, name = key.rsplit("/", 2)
    return namespace, name
