"""The rules of all Services together, and the difference to those that the kernel has."""

from collections import Counter
from typing import Generic, TypeVar

from kedge.node.network.nftables.batch import Batch, SetSpec
from kedge.node.network.ruleset import RuleChain, Ruleset
from kedge.node.services.service_rules import ElementKey, KeyClaim, ServiceRules

D = TypeVar("D")
_NOTHING = ServiceRules({}, {}, {})


class _Shared(Generic[D]):
    """Declarations by name, each held by one or more Services."""

    def __init__(self) -> None:
        self.wanted: dict[str, D] = {}
        self.written: dict[str, D] = {}
        self.touched: set[str] = set()
        self._holders: Counter[str] = Counter()

    def replace(self, old: dict[str, D], new: dict[str, D]) -> None:
        for name in old.keys() - new.keys():
            self._holders[name] -= 1
            if not self._holders[name]:
                del self._holders[name], self.wanted[name]
            self.touched.add(name)
        self._holders.update(new.keys() - old.keys())
        for name, declared in new.items():
            if self.wanted.get(name) != declared:
                self.wanted[name] = declared
                self.touched.add(name)

    def changed(self) -> list[str]:
        """Return the names of new and changed declarations."""
        touched = sorted(self.touched & self.wanted.keys())
        return [name for name in touched if self.written.get(name) != self.wanted[name]]

    def gone(self) -> list[str]:
        return sorted((self.touched & self.written.keys()) - self.wanted.keys())

    def confirm(self) -> None:
        for name in self.touched:
            if name in self.wanted:
                self.written[name] = self.wanted[name]
            else:
                self.written.pop(name, None)
        self.touched.clear()


class ServiceDatapath:
    """The wanted and the written rules of all Services. The cost of a change depends on the changed
    Services alone."""

    def __init__(self) -> None:
        self._services: dict[str, ServiceRules] = {}
        self._claims: dict[bytes, dict[str, KeyClaim]] = {}
        self._written: dict[bytes, dict[ElementKey, bytes]] = {}
        self._touched: set[bytes] = set()
        self._chains: _Shared[RuleChain] = _Shared()
        self._sets: _Shared[SetSpec] = _Shared()

    def put(self, service: str, rules: ServiceRules) -> None:
        """Replace the rules of one Service."""
        old = self._services.get(service, _NOTHING)
        self._services[service] = rules
        self._replace(service, old, rules)

    def remove(self, service: str) -> None:
        self._replace(service, self._services.pop(service, _NOTHING), _NOTHING)

    def names(self) -> list[str]:
        return list(self._services)

    def everything(self) -> Ruleset:
        """Return all wanted rules."""
        elements: dict[str, dict[bytes, bytes]] = {}
        for claims in self._claims.values():
            for element, data in _winner(claims).items():
                elements.setdefault(element.map, {})[element.key] = data
        return Ruleset(self._sets.wanted, self._chains.wanted, elements)

    def change(self, table: str) -> Batch:
        """Return the batch that leads from the written to the wanted rules."""
        made = Batch(table)
        gone_sets, gone_chains = self._declare(made)
        deleted, added = self._changed_elements()
        for name, keys in deleted.items():
            made.delete_elements(name, keys)
        for name, elements in added.items():
            made.add_elements(name, elements)
        # Emptied first: they may refer to each other.
        for name in gone_chains:
            made.flush_chain(name)
        for name in gone_chains:
            made.delete_chain(name)
        for name in gone_sets:
            made.delete_set(name)
        return made

    def confirm(self) -> None:
        """Note that the kernel has all wanted rules."""
        for key in self._touched:
            if claims := self._claims.get(key):
                self._written[key] = _winner(claims)
            else:
                self._written.pop(key, None)
        self._touched.clear()
        self._chains.confirm()
        self._sets.confirm()

    def _replace(self, service: str, old: ServiceRules, new: ServiceRules) -> None:
        self._sets.replace(old.sets, new.sets)
        self._chains.replace(old.chains, new.chains)
        for key in old.keys.keys() - new.keys.keys():
            claims = self._claims[key]
            del claims[service]
            if not claims:
                del self._claims[key]
            self._touched.add(key)
        for key, claim in new.keys.items():
            claims = self._claims.setdefault(key, {})
            if claims.get(service) != claim:
                claims[service] = claim
                self._touched.add(key)

    def _declare(self, made: Batch) -> tuple[list[str], list[str]]:
        """Add new sets and chains; return the names of those to delete at the end."""
        sets, chains = self._sets, self._chains
        for name in sets.changed():
            made.add_set(name, sets.wanted[name])
        changed = chains.changed()
        for name in changed:
            if name not in chains.written:
                made.add_chain(name)
        for name in changed:
            if name in chains.written:
                made.flush_chain(name)
            made.add_rules(name, chains.wanted[name].rules)
        return sets.gone(), chains.gone()

    def _changed_elements(self) -> tuple[dict[str, list[bytes]], dict[str, dict[bytes, bytes]]]:
        deleted: dict[str, list[bytes]] = {}
        added: dict[str, dict[bytes, bytes]] = {}
        for key in self._touched:
            claims = self._claims.get(key)
            before, wanted = self._written.get(key, {}), _winner(claims) if claims else {}
            for element, data in before.items():
                if wanted.get(element) != data:
                    deleted.setdefault(element.map, []).append(element.key)
            for element, data in wanted.items():
                if before.get(element) != data:
                    added.setdefault(element.map, {})[element.key] = data
        return deleted, added


def _winner(claims: dict[str, KeyClaim]) -> dict[ElementKey, bytes]:
    if len(claims) == 1:
        return next(iter(claims.values())).elements
    first = min(claims, key=lambda service: (claims[service].rank, service))
    return claims[first].elements
