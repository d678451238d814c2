"""The wanted and the written content of a table; the cost of a change depends on the change."""

from collections import Counter
from collections.abc import Mapping
from typing import Generic, TypeVar

from kedge.node.network.nftables.batch import Batch, SetSpec
from kedge.node.network.ruleset import RangeElements, RuleChain, Ruleset

D = TypeVar("D")
Elements = dict[str, dict[bytes, bytes]]


class _Held(Generic[D]):
    """Declarations by name. A name stands for one content, which several holders may need."""

    def __init__(self) -> None:
        self.wanted: dict[str, D] = {}
        self.written: set[str] = set()
        self.touched: set[str] = set()
        self._holders: Counter[str] = Counter()

    def hold(self, name: str, declared: D) -> None:
        self._holders[name] += 1
        if name not in self.wanted:
            self.wanted[name] = declared
            self.touched.add(name)

    def release(self, name: str) -> bool:
        """Give up one hold; return whether it was the last."""
        self._holders[name] -= 1
        if self._holders[name]:
            return False
        del self._holders[name], self.wanted[name]
        self.touched.add(name)
        return True

    def new(self) -> list[str]:
        return sorted((self.touched & self.wanted.keys()) - self.written)

    def gone(self) -> list[str]:
        return sorted((self.touched & self.written) - self.wanted.keys())

    def confirm(self) -> None:
        self.written |= self.touched & self.wanted.keys()
        self.written -= self.touched - self.wanted.keys()
        self.touched.clear()


class TableContent:
    """Sets, chains and elements. Sets and chains never change; elements do."""

    def __init__(self, sets: Mapping[str, SetSpec], chains: Mapping[str, RuleChain]) -> None:
        self._base_chains = dict(chains)
        self._sets: _Held[SetSpec] = _Held()
        self._chains: _Held[RuleChain] = _Held()
        self._ranges: dict[str, RangeElements] = {}
        self._wanted: Elements = {}
        self._written: Elements = {}
        self._touched: dict[str, set[bytes]] = {}
        for name, spec in sets.items():
            self._sets.hold(name, spec)

    def hold_set(self, name: str, spec: SetSpec, ranges: RangeElements | None = None) -> None:
        self._sets.hold(name, spec)
        if ranges is not None:
            self._ranges[name] = ranges

    def release_set(self, name: str) -> None:
        """Give up a set; the last holder must have removed its elements."""
        if self._sets.release(name):
            self._ranges.pop(name, None)

    def hold_chain(self, name: str, chain: RuleChain) -> None:
        self._chains.hold(name, chain)

    def release_chain(self, name: str) -> None:
        self._chains.release(name)

    def put(self, name: str, key: bytes, data: bytes = b"") -> None:
        """Add an element to a set, or replace its data."""
        elements = self._wanted.setdefault(name, {})
        if elements.get(key) != data:
            elements[key] = data
            self._touched.setdefault(name, set()).add(key)

    def drop(self, name: str, key: bytes) -> None:
        elements = self._wanted.get(name, {})
        if elements.pop(key, None) is not None:
            self._touched.setdefault(name, set()).add(key)
        if not elements:
            self._wanted.pop(name, None)

    def elements(self, name: str) -> Mapping[bytes, bytes]:
        """Return the wanted elements of a set."""
        return self._wanted.get(name, {})

    def everything(self) -> Ruleset:
        """Return the whole wanted content."""
        chains = {**self._base_chains, **self._chains.wanted}
        return Ruleset(self._sets.wanted, chains, self._wanted, self._ranges)

    def change(self, table: str) -> Batch:
        """Return the batch that leads from the written to the wanted content."""
        made = Batch(table)
        gone_sets, gone_chains = self._sets.gone(), self._chains.gone()
        for name in self._sets.new():
            made.add_set(name, self._sets.wanted[name])
            if name in self._ranges:
                made.add_ranges(name, *self._ranges[name])
        new_chains = self._chains.new()
        for name in new_chains:
            made.add_chain(name)
        for name in new_chains:
            made.add_rules(name, self._chains.wanted[name].rules)
        self._change_elements(made, set(gone_sets))
        # Emptied first: they may refer to each other.
        for name in gone_chains:
            made.flush_chain(name)
        for name in gone_chains:
            made.delete_chain(name)
        for name in gone_sets:
            made.delete_set(name)
        return made

    def _change_elements(self, made: Batch, gone: set[str]) -> None:
        added: Elements = {}
        for name in sorted(self._touched.keys() - gone):
            before, wanted = self._written.get(name, {}), self._wanted.get(name, {})
            changed = [key for key in self._touched[name] if before.get(key) != wanted.get(key)]
            made.delete_elements(name, [key for key in changed if key in before])
            added[name] = {key: wanted[key] for key in changed if key in wanted}
        for name, elements in added.items():
            made.add_elements(name, elements)

    def confirm(self) -> None:
        """Note that the kernel has the wanted content."""
        self._sets.confirm()
        self._chains.confirm()
        for name, keys in self._touched.items():
            wanted, written = self._wanted.get(name, {}), self._written.setdefault(name, {})
            for key in keys:
                if key in wanted:
                    written[key] = wanted[key]
                else:
                    written.pop(key, None)
            if not written:
                del self._written[name]
        self._touched.clear()
