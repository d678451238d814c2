"""QuotaAccount: the usage of each object of one quota, and the sum."""

from collections.abc import Iterable, Iterator, Mapping

from kedge.api.core_v1.resource_quota import (
    ResourceQuotaSpec,
    ScopedResourceSelectorRequirement,
)
from kedge.api.quota.measure import ZERO, QuotaMeasure, QuotaMeter, Usage, matches
from kedge.api.quota.meters import Kind
from kedge.machinery.quantity import Quantity

_NOTHING: Usage = {}


class QuotaAccount:
    """The usage of one quota, counted kind by kind."""

    def __init__(self, spec: ResourceQuotaSpec) -> None:
        self.spec = spec
        self.hard = spec.hard
        self.used: dict[str, Quantity] = {}
        """The used amounts, by name; only of the kinds that are counted."""
        self._requirements = tuple(requirements(spec))
        self._names: dict[Kind, frozenset[str]] = {}
        self._charges: dict[Kind, dict[str, Usage]] = {}

    def names(self, kind: Kind, meter: QuotaMeter) -> frozenset[str]:
        """The names under which the quota counts objects of a kind."""
        names = self._names.get(kind)
        if names is None:
            names = self._names[kind] = meter.names(self.hard)
        return names

    def covers(self, meter: QuotaMeter, measure: QuotaMeasure) -> bool:
        """Whether an object is in all the quota's scopes."""
        return all(matches(each, meter, measure.scopes) for each in self._requirements)

    def has_begun(self, kind: Kind) -> bool:
        return kind in self._charges

    def begin(self, kind: Kind, meter: QuotaMeter) -> None:
        """Count objects of the kind from now on; the caller adds the existing ones one by one."""
        self._charges[kind] = {}
        for name in self.names(kind, meter):
            self.used[name] = ZERO

    def end(self, kind: Kind) -> None:
        """Forget everything about a kind."""
        for name in self._names.get(kind, ()):
            self.used.pop(name, None)
        self._charges.pop(kind, None)

    def charge(self, kind: Kind, meter: QuotaMeter, measure: QuotaMeasure, usage: Usage) -> Usage:
        """The part of an object's usage that this quota counts."""
        names = self.names(kind, meter)
        if not names or not self.covers(meter, measure):
            return _NOTHING
        return {name: amount for name, amount in usage.items() if name in names and amount}

    def charged(self, kind: Kind, key: str) -> Usage:
        """Return the recorded usage of an object."""
        return self._charges[kind].get(key, _NOTHING)

    def put(self, kind: Kind, key: str, charge: Usage) -> bool:
        """An object takes this much from now on; says whether that is anything new."""
        charges = self._charges[kind]
        before = charges.get(key, _NOTHING)
        if before == charge:
            return False
        for name, amount in charge.items():
            self.used[name] += amount
        for name, amount in before.items():
            self.used[name] -= amount
        if charge:
            charges[key] = charge
        else:
            del charges[key]
        return True

    def remove(self, kind: Kind, key: str) -> bool:
        """An object takes nothing any more; says whether it took anything."""
        return self.put(kind, key, _NOTHING)


def requirements(spec: ResourceQuotaSpec) -> Iterator[ScopedResourceSelectorRequirement]:
    """All conditions on what a quota counts, in one form."""
    for scope in spec.scopes:
        yield ScopedResourceSelectorRequirement(scopeName=scope, operator="Exists")
    if spec.scopeSelector is not None:
        yield from spec.scopeSelector.matchExpressions


def increase(after: Usage, before: Usage) -> dict[str, Quantity]:
    """By how much each amount grows; those that do not are left out."""
    grown = ((name, amount - before.get(name, ZERO)) for name, amount in after.items())
    return {name: amount for name, amount in grown if amount.nanos > 0}


def greater(one: Usage, other: Usage) -> dict[str, Quantity]:
    """The greater of both for each name."""
    result = dict(one)
    for name, amount in other.items():
        if amount > result.get(name, ZERO):
            result[name] = amount
    return result


def listed(amounts: Mapping[str, Quantity], names: Iterable[str]) -> str:
    """Amounts as an error tells them."""
    return ",".join(f"{name}={amounts.get(name, ZERO)}" for name in sorted(names))
