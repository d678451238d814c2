"""QuotaAccount: the usage of each object of one quota, and the sum."""

from collections.abc import Iterable, Iterator, Mapping

from kedge.api.core_v1.resource_quota import (
    ResourceQuotaSpec,
    ScopedResourceSelectorRequirement,
)
from kedge.api.quota.extended_names import ExtendedNames, shared_names
from kedge.api.quota.measure import ZERO, QuotaMeasure, QuotaMeter, Usage, matches
from kedge.api.quota.meters import PODS, RESOURCE_CLAIMS, Kind
from kedge.machinery.quantity import Quantity

_NOTHING: Usage = {}


class QuotaAccount:
    """The usage of one quota, counted kind by kind.

    Pods and claims to devices share the names of extended resources. The claim that the scheduler
    makes for the resources of a pod is covered by the pod: it counts only beyond what the pod does.
    """

    def __init__(self, spec: ResourceQuotaSpec, extended: ExtendedNames) -> None:
        self.spec = spec
        self.hard = spec.hard
        self.shared = shared_names(spec.hard, extended)
        """The names under which both pods and claims to devices count."""
        self.used: dict[str, Quantity] = {}
        """The used amounts, by name; only of the kinds that are counted."""
        self._extended = extended
        self._requirements = tuple(requirements(spec))
        self._names: dict[Kind, frozenset[str]] = {}
        self._charges: dict[Kind, dict[str, Usage]] = {}
        self._covered: dict[str, str] = {}
        """The claim that each pod covers, by the pod's name: one, or claims could multiply."""
        self._covering: dict[str, str] = {}
        """The pod that covers each claim."""
        self._pods: dict[str, Usage] = {}
        """The recorded usage of pods, by name."""

    def names(self, kind: Kind, meter: QuotaMeter) -> frozenset[str]:
        """The names under which the quota counts objects of a kind."""
        names = self._names.get(kind)
        if names is None:
            names = meter.names(self.hard)
            if kind == RESOURCE_CLAIMS:
                names |= self.shared
            self._names[kind] = names
        return names

    def covers(self, meter: QuotaMeter, measure: QuotaMeasure) -> bool:
        """Whether an object is in all the quota's scopes."""
        return all(matches(each, meter, measure.scopes) for each in self._requirements)

    def has_begun(self, kind: Kind) -> bool:
        return kind in self._charges

    def begin(self, kind: Kind, meter: QuotaMeter) -> None:
        """Count objects of the kind from now on; the caller adds the existing ones one by one."""
        self.end(kind)
        self._charges[kind] = {}
        for name in self.names(kind, meter):
            self.used.setdefault(name, ZERO)

    def end(self, kind: Kind) -> None:
        """Forget everything about a kind."""
        for key in [*self._charges.get(kind, ())]:
            self.remove(kind, key)
        self._charges.pop(kind, None)
        counted = {name for each in self._charges for name in self._names.get(each, ())}
        for name in self._names.get(kind, frozenset()) - counted:
            self.used.pop(name, None)

    def charge(
        self, kind: Kind, meter: QuotaMeter, measure: QuotaMeasure, usage: Usage, key: str
    ) -> Usage:
        """The part of an object's usage that this quota counts."""
        names = self.names(kind, meter)
        if not names or not self.covers(meter, measure):
            return _NOTHING
        if kind == RESOURCE_CLAIMS and self.shared:
            usage = self._uncovered(self._with_extended(usage), measure.covered_by, key)
        return {name: amount for name, amount in usage.items() if name in names and amount}

    def _with_extended(self, usage: Usage) -> Usage:
        """Return the usage of a claim with the extended resources that its classes name."""
        found = dict(usage)
        for name, amount in usage.items():
            if (named := self._extended.get(name)) is not None:
                found[named] = found.get(named, ZERO) + amount
        return found

    def _uncovered(self, usage: Usage, pod: str, key: str) -> Usage:
        """Return the usage of a claim without what the pod it was made for has of it."""
        if not pod or self._covered.get(pod, key) != key:
            return usage
        own = self._pods.get(pod, _NOTHING)
        return {
            name: max(amount - own[name], ZERO) if name in own and name in self.shared else amount
            for name, amount in usage.items()
        }

    def cover(self, pod: str, key: str) -> None:
        """Count the usage of a claim as the pod's from now on, unless it covers another."""
        if pod and self._covered.setdefault(pod, key) == key:
            self._covering[key] = pod

    def uncover(self, key: str) -> None:
        """A claim is gone."""
        if (pod := self._covering.pop(key, None)) is not None:
            del self._covered[pod]

    def covered_claim(self, key: str) -> str:
        """Return the claim that a pod covers; empty if there is none."""
        return self._covered.get(_name(key), "")

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
        for known, at in self._places(kind, key):
            if charge:
                known[at] = charge
            else:
                known.pop(at, None)
        return True

    def _places(self, kind: Kind, key: str) -> Iterator[tuple[dict[str, Usage], str]]:
        yield self._charges[kind], key
        if kind == PODS:
            yield self._pods, _name(key)

    def remove(self, kind: Kind, key: str) -> bool:
        """An object takes nothing any more; says whether it took anything."""
        if kind == RESOURCE_CLAIMS:
            self.uncover(key)
        return self.put(kind, key, _NOTHING)


def _name(key: str) -> str:
    """Return the name of an object; keys are names, or paths that end in them."""
    return key.rpartition("/")[2]


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
