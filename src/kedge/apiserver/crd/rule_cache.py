"""Keeps the compiled CEL rules of definitions that are in use."""

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kedge.api.apiextensions_v1.rule_tree import RuleNode

MOST_CHARACTERS: Final = 4 << 20
"""Expressions that stay compiled, in characters; each takes some hundred bytes of memory."""


class RuleCache:
    """Compiled rules by schema, the most recently used ones.

    Validation runs in several threads, hence the lock. Two threads may compile the same rules.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._trees: OrderedDict[int, tuple[Mapping[str, Any], RuleNode | None, int]]
        self._trees = OrderedDict()
        """By the identity of the schema, which the entry keeps alive."""
        self._size = 0

    def has(self, schema: Mapping[str, Any]) -> bool:
        """Tell whether the rules of a schema are compiled."""
        return id(schema) in self._trees

    def rules(self, schema: Mapping[str, Any]) -> "RuleNode | None":
        """Return the rules of a schema, compiled; None if it has none."""
        with self._lock:
            found = self._trees.get(id(schema))
            if found is not None:
                self._trees.move_to_end(id(schema))
                return found[1]
        # Not above: CEL takes long to import, and few clusters have rules.
        from kedge.api.apiextensions_v1.rule_tree import rule_tree

        tree = rule_tree(schema)
        self._keep(schema, tree)
        return tree

    def forget(self, schema: Mapping[str, Any]) -> None:
        """Drop the rules of a schema that is no longer served."""
        with self._lock:
            self._drop(id(schema))

    def _keep(self, schema: Mapping[str, Any], tree: "RuleNode | None") -> None:
        size = 100 + (tree.size() if tree is not None else 0)
        with self._lock:
            self._drop(id(schema))
            self._trees[id(schema)] = schema, tree, size
            self._size += size
            while self._size > MOST_CHARACTERS and len(self._trees) > 1:
                self._drop(next(iter(self._trees)))

    def _drop(self, key: int) -> None:
        found = self._trees.pop(key, None)
        if found is not None:
            self._size -= found[2]
